"""Which models a request means, and what drafts with them: BenchOptions -> ChosenModels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from ggufspec import engines
from ggufspec.domain import Chain, Method, ModelFile, ModelName, Pair, Program
from ggufspec.errors import GgufspecError
from ggufspec.measure import naming
from ggufspec.modelfiles import catalog, gguf, hub
from ggufspec.modelfiles.compat import Head, read_head, usable_methods
from ggufspec.options import BenchOptions, RunOptions


@dataclass(frozen=True, kw_only=True)
class ChosenModels:
    """The models of a bench, which are on this machine, and what drafts.

    Attributes:
        name: of what is measured.
        targets: each is measured with each drafter.
        drafters: those that draft by one of ``ways``.
        reason: why these models.
        pair: what they were made from; None for files.
        ways: methods and chains that draft.
        cards: the headers.
        heads: the models among them that are heads, or targets with layers for MTP.
    """

    name: str
    targets: tuple[ModelFile, ...]
    drafters: tuple[ModelFile, ...]
    reason: str
    pair: Pair | None = None
    ways: tuple[Chain, ...] = ()
    cards: Mapping[ModelFile, gguf.ModelCard] = field(default_factory=dict)
    heads: Mapping[ModelFile, Head] = field(default_factory=dict)

    @property
    def files(self) -> tuple[ModelFile, ...]:
        """All of them."""
        return (*self.targets, *self.drafters)

    @property
    def is_embedded(self) -> bool:
        """Whether they are a pair that comes with ggufspec."""
        return self.pair is not None and catalog.is_embedded(self.pair.name)

    @property
    def notes(self) -> tuple[str, ...]:
        """Which models were chosen, and why."""
        return (f"pair: {self.name} ({self.reason})",)


def choose_models(request: RunOptions) -> ChosenModels:
    """Choose the models: named files, a named pair, the last fetched one, the embedded one.

    Drafters are left out where no method loads one.

    Raises:
        GgufspecError: a subclass for each thing that cannot work: a file that is not here or is damaged, a
            method that is unknown, a drafter that drafts by none of the methods.
    """
    models, stated = _named(request), _stated_ways(request)
    if stated and not any(way.method.drafts_with_model for way in stated):
        if request.draft_model is not None:
            raise GgufspecError(
                "a drafter was given, and no method that drafts with one", "add draft-model to --method"
            )
        models = replace(models, drafters=())
    cards = {model: hub.validate_model(model, models.pair) for model in models.files if model.path}
    heads = _heads(cards)
    ways = stated or _infer_ways(models.drafters, heads)
    models = replace(models, ways=ways, cards=cards, heads=heads)
    return replace(models, drafters=_drafting_by(request, models))


def _heads(cards: Mapping[ModelFile, gguf.ModelCard]) -> dict[ModelFile, Head]:
    return {model: head for model, card in cards.items() if (head := read_head(card)) is not None}


def find_methods(request: RunOptions) -> tuple[str, ...]:
    """Return what the models of a request draft by: the pair's own method, or what the headers say.

    Layers for MTP in a target count, too. Only headers are read.

    Raises:
        GgufspecError: as ``prepare_session`` does for models that cannot be used.
    """
    stated = _stated_ways(request)
    if stated:
        return tuple(map(str, stated))
    models = _named(request)
    cards = {model: gguf.read_card(model.path) for model in models.files if model.path}
    heads = _heads(cards)
    ways = list(_infer_ways(models.drafters, heads))
    in_target = Chain(Method.DRAFT_MTP)
    if in_target not in ways and any(model in heads for model in models.targets):
        ways.append(in_target)
    return tuple(map(str, ways))


def find_drafters(request: RunOptions) -> tuple[ModelFile, ...]:
    """Return the drafters of a request, which are on this machine: those that are named, or the pair's own.

    Raises:
        GgufspecError: as ``prepare_session`` does for models that cannot be used.
    """
    return _named(request).drafters


def _stated_ways(request: RunOptions) -> tuple[Chain, ...]:
    """Return what drafts by the request or the catalogue; nothing where the headers of the files decide.

    Raises:
        CatalogError: no pair has this name.
        NotCachedError: files of the pair that was fetched last are gone.
        UnsupportedMethodError: it is a method that cannot be measured here.
        GgufspecError: a method is unknown.
    """
    if request.method is not None:
        return tuple(dict.fromkeys(map(_parse_way, request.method)))
    if request.target is not None or request.draft_model is not None:
        return ()
    pair, _ = _pair(request)
    way = catalog.drafting_method(pair)
    return () if way is None or catalog.entry_of(pair) is None else (way,)


def with_pairs_drafting(request: BenchOptions, engine: str) -> tuple[BenchOptions, tuple[str, ...]]:
    """Return a request with the draft size and p-min of the pair's catalogue entry, where it names none.

    The entry's values are for its own drafter and method. Notes say what the engine cannot do.
    """
    if request.target is not None or request.draft_model is not None:
        return request, ()
    entry = catalog.entry_of(_pair(request)[0])
    if entry is None or (request.method is not None and _stated_ways(request) != (entry.chain,)):
        return request, ()
    request = request.replace(draft=request.draft or entry.gamma or ())
    if request.p_min is not None or not entry.p_min:
        return request, ()
    if engines.ENGINES[engine] is Program.TREE:
        why = f"the engine {engine} has none; --engine server does"
        return request, (f"p-min: {entry.p_min:g} of the pair is left out, because {why}",)
    return request.replace(p_min=entry.p_min), ()


def _parse_way(name: str) -> Chain:
    try:
        return Chain.parse(name)
    except ValueError as error:
        raise GgufspecError(
            str(error), "name a method, or a chain such as ngram-mod+draft-model, with --method"
        ) from error


def _infer_ways(drafters: Sequence[ModelFile], heads: Mapping[ModelFile, Head]) -> tuple[Chain, ...]:
    """Return the usual method of each drafter; a draft model's where there is none."""
    methods = [usable_methods(heads.get(drafter))[0] for drafter in drafters] or [Method.DRAFT_MODEL]
    return tuple(dict.fromkeys(map(Chain, methods)))


def _drafting_by(request: RunOptions, models: ChosenModels) -> tuple[ModelFile, ...]:
    """Return the drafters that draft by one of the methods.

    Raises:
        GgufspecError: a drafter that was named drafts by none of them, or a method has nothing to draft with.
    """
    heads, methods = models.heads, {way.method for way in models.ways}
    used = tuple(
        drafter for drafter in models.drafters if methods.intersection(usable_methods(heads.get(drafter)))
    )
    unused = next((drafter for drafter in models.drafters if drafter not in used), None)
    if unused is not None and (request.draft_model is not None or Method.DRAFT_MODEL in methods):
        usual = usable_methods(heads.get(unused))[0].value
        raise GgufspecError(
            f"{unused.filename} drafts by {usual}, not by {', '.join(map(str, models.ways))}",
            f"add {usual} to --method, or leave this drafter out",
        )
    for method in sorted(method for method in methods if method.is_head):
        if any(method in usable_methods(heads.get(drafter)) for drafter in used):
            continue
        if method is not Method.DRAFT_MTP:
            raise GgufspecError(
                f"{method.value} needs a head, and no drafter is one", "name its GGUF with --draft-model"
            )
        bare = next((target for target in models.targets if target not in heads), None)
        if bare is not None:
            raise GgufspecError(
                f"{bare.filename} has no layers for MTP",
                "name a target that has them, or a GGUF of such layers with --draft-model",
            )
    return used


def _named(request: RunOptions) -> ChosenModels:
    if request.target is not None:
        targets, drafters = (_files(request, names) for names in (request.target, request.draft_model))
        stems = [Path(model.filename).stem for model in (*targets, *drafters)]
        name = " + ".join(stems) if len(stems) <= 2 else f"{stems[0]} + {len(stems) - 1} more"
        return ChosenModels(name=name, targets=targets, drafters=drafters, reason="as given")
    drafters = _files(request, naming.list_names(request))
    listed, reason = _pair(request)
    pair = hub.resolve(listed, offline=request.offline)
    own = (pair.draft,) if pair.draft else ()
    return ChosenModels(
        name=pair.name, targets=(pair.target,), drafters=drafters or own, reason=reason, pair=pair
    )


def _pair(request: RunOptions) -> tuple[Pair, str]:
    """Return the pair that is meant where no target is named; its files need not be here."""
    if request.pair is not None:
        return catalog.find_pair(request.pair), "as named"
    last = hub.last_pair()
    if last is not None:
        return last, "the last fetched pair"
    return catalog.find_pair(catalog.EMBEDDED), "the embedded pair, as nothing was fetched yet"


def _files(request: RunOptions, names: tuple[ModelName, ...] | None) -> tuple[ModelFile, ...]:
    return tuple(naming.find_model(name, hub.Access.of(request)) for name in dict.fromkeys(names or ()))
