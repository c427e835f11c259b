"""Which pair is meant, by a name or by two models, and its headers; nothing is downloaded but these."""

from __future__ import annotations

from dataclasses import replace

from ggufspec.domain import Chain, Method, ModelFile, Pair
from ggufspec.errors import NotCachedError
from ggufspec.modelfiles import catalog, hub
from ggufspec.modelfiles.compat import mtp_layers, read_head, usable_methods
from ggufspec.modelfiles.gguf import ModelCard


def choose_pair(name: str | None, target: str | None, draft: str | None, access: hub.Access) -> Pair:
    """Return a pair by its name or its models; by default the pair fetched last, otherwise the embedded one.

    Args:
        name: a pair of the catalogue.
        target: a path or a model reference.
        draft: likewise.
        access: access to the Hub.

    Raises:
        ValueError: a name and a target were given, or a drafter alone.
        GgufspecError: there is no such pair, its drafting method is not supported, or one of its models is
            not available.
    """
    if name is not None and target is not None:
        raise ValueError("name a pair or a target, not both")
    if target is not None:
        found = _locate(target, access)
        return Pair(name="as given", target=found, draft=None if draft is None else _locate(draft, access))
    if draft is not None:
        raise ValueError("a drafter needs a target")
    last = hub.last_pair() if name is None else None
    pair = last or catalog.find_pair(name or catalog.EMBEDDED)
    way = catalog.drafting_method(pair)
    if way is None or not way.method.drafts_with_model:
        pair = replace(pair, draft=None)
    if last is not None:
        return pair
    try:
        return hub.resolve(pair, offline=True)
    except NotCachedError:
        return hub.survey_pair(pair, access).pair


def choose_way(pair: Pair, method: str | None, draft: ModelCard | None) -> Chain | None:
    """Return what drafts: the named method, the pair's own, or that of the drafter; None where none says.

    Args:
        pair: the models.
        method: a method or a chain.
        draft: the drafter's header.

    Raises:
        ValueError: there is no such method.
        UnsupportedMethodError: the pair's own method cannot be measured here.
    """
    if method is not None:
        return Chain.parse(method)
    if catalog.entry_of(pair) is None and draft is not None:
        return Chain(usable_methods(read_head(draft))[0])
    return catalog.drafting_method(pair)


def drafts_by_mtp(way: Chain | None, target: ModelCard) -> bool:
    """Whether layers of the target itself draft.

    Raises:
        ValueError: they are asked for, and the target has none.
    """
    if way is None or way.method is not Method.DRAFT_MTP:
        return False
    if not mtp_layers(target):
        raise ValueError("the target has no layers for MTP; name a GGUF of such layers with -md")
    return True


def read_cards(pair: Pair, access: hub.Access) -> tuple[ModelCard, ModelCard | None]:
    """Read the headers of a pair, from the disk or from the Hub by HTTP range."""
    draft = None if pair.draft is None else hub.read_card(pair.draft, access, pair=pair)
    return hub.read_card(pair.target, access, pair=pair), draft


def _locate(text: str, access: hub.Access) -> ModelFile:
    reference = hub.parse_reference(text, catalog.load_catalogue(), endpoint=access.endpoint)
    return hub.locate(reference, access)
