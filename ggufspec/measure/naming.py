"""The models that a request names: files on this machine, or on the Hub, from which a bench fetches them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TypeVar

from ggufspec.domain import ModelFile, ModelName
from ggufspec.errors import GgufspecError, NotCachedError
from ggufspec.measure.deadline import Deadline
from ggufspec.modelfiles import choosing, hub
from ggufspec.options import RunOptions
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
    head = find_head(targets[0], hub.Access.of(asked))
    return asked.replace(draft_model=tuple(head if name == choosing.AUTO else name for name in names))


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


def find_head(target: ModelName, access: hub.Access) -> ModelName:
    """Return the name of the head beside a target, for ``survey_models`` or ``find_model``.

    Raises:
        DrafterRefusedError: there is none that belongs to the target.
        GgufspecError: the target is not available, or the Hub cannot be asked.
    """
    if isinstance(target, str):
        model = hub.survey_model(target, access).pair.target
    else:
        model = find_model(target, access)
    head = choosing.find_head(model, access)
    return head if head.repo is None else f"{head.repo}@{head.revision}/{head.filename}"


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
