"""Which pair is meant, by a name, by two models or by a tuned configuration, and its headers.

Nothing is downloaded but these.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from ggufspec import digests
from ggufspec.domain import Chain, Method, ModelFile, ModelName, Pair, RunSpec
from ggufspec.errors import DrafterRefusedError, ModelFileError, NotCachedError
from ggufspec.modelfiles import catalog, gguf, hub
from ggufspec.modelfiles.compat import heads, mtp_layers, read_head, usable_methods
from ggufspec.modelfiles.gguf import ModelCard

AUTO = "auto"
"""In place of a drafter's name: the head beside the target."""


def choose_pair(
    name: str | None, target: ModelName | None, draft: ModelName | None, access: hub.Access
) -> Pair:
    """Return a pair by its name or its models; by default the pair fetched last, otherwise the embedded one.

    Args:
        name: a pair of the catalogue.
        target: a path or a model reference.
        draft: likewise, or AUTO.
        access: access to the Hub.

    Raises:
        ValueError: a name and a target were given, or a drafter alone.
        GgufspecError: there is no such pair, its drafting method is not supported, or one of its models is
            not available.
    """
    if name is not None and target is not None:
        raise ValueError("name a pair or a target, not both")
    if target is not None:
        located = _locate(target, access)
        drafter = None
        if draft is not None:
            drafter = find_head(located, access) if draft == AUTO else _locate(draft, access)
        return Pair(name="as given", target=located, draft=drafter)
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


def find_head(target: ModelFile, access: hub.Access) -> ModelFile:
    """Return the head beside a target: in its repository, or in the folder of a local file.

    It is the first one that belongs to the target by its header, in the order of llama.cpp's -hf: MTP,
    DSpark, DFlash, EAGLE-3.

    Raises:
        DrafterRefusedError: there is none.
        GgufspecError: the Hub cannot be asked, or a header cannot be read.
    """
    if target.repo is not None:
        where, listed = target.repo, hub.find_heads(target, access)
    else:
        assert target.path is not None, "a local file"
        where, listed = str(target.path.parent), hub.find_heads_in_folder(target.path)
    card = hub.read_card(target, access)
    faults = []
    for head in listed:
        wrong = heads.find_faults(card, hub.read_card(head, access))
        if not wrong:
            return hub.locate(hub.of_model(head), access)
        faults.append(f"{head.filename}: {wrong[0]}")
    has_layers = mtp_layers(card) > 0
    raise DrafterRefusedError(
        f"{where} has no head that belongs to {target.filename}"
        + "".join(f"; {fault}" for fault in faults[:1]),
        "its own layers for MTP draft with --method draft-mtp; leave out -md auto"
        if has_layers
        else f"look for drafters elsewhere: ggufspec suggest {target.reference}",
    )


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


def _locate(name: ModelName, access: hub.Access) -> ModelFile:
    if isinstance(name, ModelFile):
        return name
    reference = hub.parse_reference(str(name), catalog.load_catalogue(), endpoint=access.endpoint)
    return hub.locate(reference, access)


def locate_pair(spec: RunSpec) -> Pair:
    """Return the pair of a configuration with the models' paths on this machine.

    Raises:
        ModelFileError: a model is not here, or another file is in its place.
        NotCachedError: a model of the Hub is not in the cache.
    """
    draft = None if spec.drafter is None else _locate_tuned(spec.drafter)
    return Pair(name=spec.pair.name, target=_locate_tuned(spec.pair.target), draft=draft)


def _locate_tuned(model: ModelFile) -> ModelFile:
    """Return a model with its path: the one that was tuned, otherwise that in the cache of the Hub."""
    if model.path is not None and model.path.is_file():
        _refuse_other(model, model.path)
        return model
    if model.repo is None:
        raise ModelFileError(
            f"there is no file {model.path}, which the tuned configuration names",
            "put the file back, or tune again",
        )
    remote = ModelFile(filename=model.filename, repo=model.repo, revision=model.revision)
    placed = hub.resolve(Pair(name=model.repo, target=remote), offline=True).target
    assert placed.path is not None
    _refuse_other(model, placed.path)
    return placed


def _refuse_other(model: ModelFile, path: Path) -> None:
    """Raise where a file is not the one that was tuned, as far as that is known without reading it."""
    size = sum(part.stat().st_size for part in gguf.part_paths(path) if part.is_file())
    digest = digests.remembered(path) if model.sha256 is not None else None
    if model.size_bytes in {None, size} and (digest is None or digest.sha256 == model.sha256):
        return
    raise changed_file(path)


def changed_file(path: Path) -> ModelFileError:
    """Return the error for a file in the place of the one that was tuned."""
    return ModelFileError(
        f"{path} is not the file that was tuned: its size or checksum differs",
        "put that file back, or tune again",
    )
