"""From the names of models to their cards; only headers are read, from the disk or the Hub."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import click

from ggufspec.domain import Chain, Method, ModelFile, Pair
from ggufspec.errors import NotCachedError
from ggufspec.modelfiles import catalog, hub
from ggufspec.modelfiles.compat import mtp_layers

if TYPE_CHECKING:
    from ggufspec.modelfiles.gguf import ModelCard

EMBEDDED = "demo"


def read_cards(pair: Pair, access: hub.Access) -> tuple[ModelCard, ModelCard | None]:
    """Read the headers of a pair."""
    draft = None if pair.draft is None else hub.read_card(pair.draft, access, pair=pair)
    return hub.read_card(pair.target, access, pair=pair), draft


def choose_pair(name: str | None, target: str | None, draft: str | None, access: hub.Access) -> Pair:
    """Return a pair by its name or its models; by default the pair fetched last, otherwise the embedded one.

    Raises:
        GgufspecError: there is no such pair, its drafting method is not supported, or one of its models is
            not available.
    """
    if name is not None and target is not None:
        raise click.UsageError("name a pair or a target, not both")
    if target is not None:
        return Pair(
            name="as given",
            target=_locate(target, access),
            draft=None if draft is None else _locate(draft, access),
        )
    if draft is not None:
        raise click.UsageError("a drafter needs a target")
    last = hub.last_pair() if name is None else None
    pair = last or catalog.find_pair(name or EMBEDDED)
    way = catalog.drafting_method(pair)
    if way is None or not way.method.drafts_with_model:
        pair = replace(pair, draft=None)
    if last is not None:
        return pair
    try:
        return hub.resolve(pair, offline=True)
    except NotCachedError:
        return hub.survey_pair(pair, access).pair


def choose_way(pair: Pair, method: tuple[str, ...] | None) -> Chain | None:
    """Return what drafts: the named method, or the pair's own; None where neither says."""
    return Chain.parse(method[0]) if method else catalog.drafting_method(pair)


def drafts_by_mtp(way: Chain | None, target: ModelCard) -> bool:
    """Whether layers of the target itself draft.

    Raises:
        UsageError: they are asked for, and the target has none.
    """
    if way is None or way.method is not Method.DRAFT_MTP:
        return False
    if not mtp_layers(target):
        raise click.UsageError("the target has no layers for MTP; name a GGUF of such layers with -md")
    return True


def _locate(text: str, access: hub.Access) -> ModelFile:
    return hub.locate(hub.parse_reference(text, catalog.load_catalogue(), endpoint=access.endpoint), access)
