"""What commands print of a value that a function found while it works."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ggufspec.cli.entry.output import echo, echo_sentence, echo_table
from ggufspec.units import format_bytes

if TYPE_CHECKING:
    from ggufspec.measure import Deadline, Session
    from ggufspec.modelfiles import api, hub
    from ggufspec.publishing import Bundle
    from ggufspec.tuning import DraftSource, DraftSources, TuningForecast


def print_survey(survey: hub.Survey, *, err: bool = True) -> None:
    """Print the files of a pair with their sizes, what is cached already, and the free disk space."""
    rows = []
    for item in survey.items:
        size, cached = item.file.size_bytes, item.here_bytes
        state = "cached" if item.is_here else f"{cached / size:.0%} cached" if cached else "to download"
        rows.append([f"{item.repo}/{item.file.path}", format_bytes(size), state])
    rows += [
        [str(model.path), format_bytes(model.size_bytes or 0), "local"]
        for model in survey.pair.models
        if model.repo is None
    ]
    echo_table(["file", "size", ""], rows, err=err)
    _print_room(survey.missing_bytes, survey, err=err)
    if survey.missing_bytes:
        terms = "; ".join(f"{term} ({repo})" for repo, term in survey.terms.items())
        echo(f"licence: {terms}", err=err)


def print_conversion(made: api.ConvertedHead, *, err: bool = True) -> None:
    """Print what is downloaded and installed for a conversion, its size, and the free disk space."""
    from ggufspec.llama.convert import DISK_BYTES, DOWNLOAD_BYTES

    surveys = made.models.surveys
    rows = [
        [
            f"{item.repo}/{item.file.path}",
            format_bytes(item.file.size_bytes),
            "cached" if item.is_here else "",
        ]
        for survey in surveys
        for item in survey.items
    ]
    if rows:
        echo_table(["file", "size", ""], rows, err=err)
    for survey in surveys[:1]:
        _print_room(made.models.missing_bytes, survey, err=err)
    if made.is_installed:
        echo("converter: installed", err=err)
        return
    download, disk = format_bytes(DOWNLOAD_BYTES), format_bytes(DISK_BYTES)
    echo(f"converter: to install, with PyTorch: about {download} to download, {disk} on the disk", err=err)


def _print_room(missing_bytes: int, survey: hub.Survey | hub.CheckpointSurvey, *, err: bool) -> None:
    free = format_bytes(survey.free_bytes)
    echo(f"to download: {format_bytes(missing_bytes)}; free at {survey.folder}: {free}", err=err)


def _print_bundle(bundle: Bundle) -> None:
    from ggufspec import publishing

    echo(publishing.describe_bundle(bundle), nl=False)


def _print_session(session: Session) -> None:
    """Print what was chosen, and the warnings before the first run."""
    from ggufspec.analysis import warnings

    _print_notes(session)
    for name, text in warnings.warning_advice(session.doubts).items():
        echo_sentence(f"warning {name}: {text}")


def _print_notes(value: Session | TuningForecast | DraftSources) -> None:
    for note in value.notes:
        echo_sentence(note)


def _print_limit(deadline: Deadline) -> None:
    if deadline.limit_s is not None:
        echo(f"{deadline.describe()}: {deadline.describe_left()}", err=True)


def _print_sources(sources: DraftSources) -> None:
    """Print what may draft for a target."""
    _print_notes(sources)
    echo_table(["drafts", "method", "size", ""], list(map(_describe_source, sources.sources)), err=True)


def _describe_source(source: DraftSource) -> list[str]:
    model = None if source.survey is None else source.survey.pair.target
    size = "" if model is None else format_bytes(model.size_bytes or 0)
    state = source.left_out or source.note or ("to download" if source.missing_bytes else "")
    return [source.name, source.method.value, size, state]


def print_found(value: object) -> None:
    """Print a value; a value of any other type is left out."""
    shown = _PRINTED.get(type(value).__name__)
    if shown is not None:
        shown(value)


_PRINTED: Mapping[str, Callable[[Any], None]] = {
    "Survey": print_survey,
    "ConvertedHead": print_conversion,
    "Bundle": _print_bundle,
    "Deadline": _print_limit,
    "DraftSources": _print_sources,
    "Session": _print_session,
    "TuningForecast": _print_notes,
}
"""By the name of the class, so that no other command's room is imported."""
