"""The models that a request names, fetched where they are on the Hub, and how each pair drafts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

from ggufspec import engines
from ggufspec.domain import Chain, Method, ModelFile, ModelName, Pair, Program
from ggufspec.errors import GgufspecError, NotCachedError
from ggufspec.measure.deadline import Deadline
from ggufspec.modelfiles import catalog, choosing, gguf, hub
from ggufspec.modelfiles.compat import Head, read_head, usable_methods
from ggufspec.options import BenchOptions, RunOptions
from ggufspec.prompts import chat
from ggufspec.steps import SILENT, Sink

T = TypeVar("T", bound=RunOptions)


def list_names(asked: RunOptions) -> tuple[ModelName, ...]:
    """Return the names of all targets and drafters.

    Raises:
        GgufspecError: a drafter is named without a target.
    """
    if asked.draft_model is not None and asked.target is None and asked.pair is None:
        raise GgufspecError("a drafter was given without a target", "add --target")
    return tuple(dict.fromkeys((*(asked.target or ()), *(asked.draft_model or ()))))


def with_head(asked: T) -> T:
    """Return options with the name of the head beside the target in place of the drafter ``auto``.

    Raises:
        DrafterRefusedError: no head beside the target belongs to it.
        GgufspecError: there are several targets, or none, or one is not available.
    """
    names = asked.draft_model or ()
    if choosing.AUTO not in names:
        return asked
    of_pair = () if asked.pair is None else (f"{asked.pair}:target",)
    targets = asked.target or of_pair
    if len(targets) != 1:
        raise GgufspecError(
            "-md auto finds the head beside one target", "name one with --target, or a pair with --pair"
        )
    (target,), access = targets, hub.Access.of(asked)
    if isinstance(target, str):
        model = hub.survey_model(target, access).pair.target
    else:
        model = find_model(target, access)
    head = choosing.find_head(model, access)
    found = head if head.repo is None else f"{head.repo}@{head.revision}/{head.filename}"
    return asked.replace(draft_model=tuple(found if name == choosing.AUTO else name for name in names))


def with_models(asked: T, models: Mapping[str, ModelFile]) -> T:
    """Return options with model files in place of the texts that name them."""

    def files(names: tuple[ModelName, ...] | None) -> tuple[ModelName, ...]:
        return tuple(models.get(name, name) if isinstance(name, str) else name for name in names or ())

    return asked.replace(target=files(asked.target), draft_model=files(asked.draft_model))


def with_fetched(asked: T, sink: Sink = SILENT) -> T:
    """Return options with the files of the models that they name, after downloading those that are not here.

    Raises:
        ConsentNeededError: the download is large, and nobody can be asked.
        GgufspecError: a model is not found, not available offline, or the download fails.
    """
    asked, access = with_head(asked), hub.Access.of(asked)
    surveys = survey_models(list_names(asked), access)
    for survey in surveys.values():
        if survey.missing_bytes:
            hub.download(survey, access, sink, yes=asked.yes, remember=False)
    return with_models(asked, {text: file_of(survey) for text, survey in surveys.items()})


def fetch_in_time(asked: T, deadline: Deadline, sink: Sink) -> tuple[T, Deadline]:
    """Return options as ``with_fetched`` does, and the time limit, for which the downloads do not count."""
    since_s = deadline.elapsed_s
    return with_fetched(asked, sink), deadline.without_network(since_s, sink)


def survey_models(names: Iterable[ModelName], access: hub.Access) -> Mapping[str, hub.Survey]:
    """Return what is known of each model that is named by a text, before anything is downloaded.

    Raises:
        GgufspecError: a text is not a reference, or the model is not found.
    """
    texts = dict.fromkeys(name for name in names if isinstance(name, str))
    return {text: hub.survey_model(text, access) for text in texts}


def file_of(survey: hub.Survey) -> ModelFile:
    """Return the model of a survey once it is on this machine; a local one is known by its path alone."""
    model = survey.pair.target
    if model.repo is None:
        return ModelFile(filename=model.filename, path=model.path)
    return hub.add_paths(survey).target


def find_model(name: ModelName, access: hub.Access) -> ModelFile:
    """Return a named model on this machine; nothing is downloaded.

    Raises:
        NotCachedError: it is on the Hub, and has not been fetched.
        GgufspecError: the name is not a reference, or there is no such model.
    """
    if isinstance(name, ModelFile):
        return name
    if isinstance(name, Path):
        return ModelFile(filename=name.name, path=name.absolute())
    survey = hub.survey_model(name, access)
    if survey.missing_bytes:
        model = survey.pair.target
        raise NotCachedError(
            f"{model.repo}/{model.filename} is not on this machine",
            f"fetch it: ggufspec fetch --target {name}",
        )
    return file_of(survey)


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
    of_targets = [target for target in models.targets if target in cards]
    cards |= {target: chat.with_template(cards[target], request.chat_template_file) for target in of_targets}
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
    drafters = _files(request, list_names(request))
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
    return tuple(find_model(name, hub.Access.of(request)) for name in dict.fromkeys(names or ()))
