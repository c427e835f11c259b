"""The sink of the command line: prints what a function says, draws its progress, and asks its questions."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ggufspec.cli.entry import verbosity
from ggufspec.cli.entry.output import echo, echo_sentence, echo_table
from ggufspec.errors import ConsentNeededError
from ggufspec.steps import Sink, finish
from ggufspec.units import format_bytes

if TYPE_CHECKING:
    from ggufspec.measure import Deadline, Session
    from ggufspec.modelfiles import api, hub
    from ggufspec.publishing import Bundle
    from ggufspec.results import ResultSet
    from ggufspec.tuning import DraftSource, DraftSources, TuningForecast


E = TypeVar("E")
R = TypeVar("R")
T = TypeVar("T")


READ_AS = "ggufspec.read_as"
"""The key of click's context for the command line that a pasted command was read as."""


class Terminal(Sink):
    """What runs a command on the command line; with ``--quiet``, standard error is discarded anyway.

    Args:
        describe_ended: prints what was measured of a bench that ended early, and returns a sentence about how
            to go on; None where the command says that.
    """

    def __init__(self, describe_ended: Callable[[ResultSet], str] | None = None) -> None:
        context = click.get_current_context(silent=True)
        level = verbosity.Verbosity() if context is None else verbosity.current(context)
        self.is_quiet = level.quiet
        self.begun_s = level.begun_s
        self.describe_ended = describe_ended
        self.build_seconds: dict[str, float] = {}  # of each step
        self._shown: dict[type, object] = {}

    def say(self, sentence: str) -> None:
        """Print a sentence on standard error."""
        echo_sentence(sentence)

    def show(self, event: object) -> None:
        """Print what was found, and keep the last of each kind."""
        self._shown[type(event)] = event
        draw = _PRINTED.get(type(event).__name__)
        if draw is not None:
            draw(event)

    def last(self, kind: type[T]) -> T | None:
        """Return the last value of a kind that was shown; None without one."""
        shown = self._shown.get(kind)
        return shown if isinstance(shown, kind) else None

    def finish(self, steps: Generator[E, None, R]) -> R:
        """Run steps to their end with their progress: a bar on a terminal, otherwise lines."""
        draw: Callable[[E], None] | None = None
        with ExitStack() as stack:

            def show(event: E) -> None:
                nonlocal draw
                if draw is None:  # of steps without an event there is nothing to draw
                    draw = stack.enter_context(self._start_drawing(event))
                draw(event)

            return finish(steps, show)

    def _start_drawing(self, event: Any) -> AbstractContextManager[Callable[[Any], None]]:
        """Return what draws the events of one piece of work, of which this is the first."""
        from ggufspec.cli.entry import drawing

        match type(event).__name__:  # so that no other command's room is imported
            case "TransferProgress":
                return drawing.draw_transfers()
            case "BuildProgress":
                return drawing.draw_build(event, self.build_seconds)
            case "Stage":
                from ggufspec.measure import NO_DEADLINE, Deadline

                return drawing.draw_forecast(self.last(Deadline) or NO_DEADLINE)
        from ggufspec.cli.entry.growing import draw_bench

        return draw_bench(event, self.describe_ended)

    def each(self, items: Sequence[T], name: Callable[[T], str]) -> Iterable[T]:
        """Return the items under a bar with the time left."""
        from ggufspec.cli.entry.drawing import iterate_with_progress

        return iterate_with_progress(items, name)

    def agree(self, question: str, needs: str, *, can_undo: bool = False) -> None:
        """Ask whether to go on.

        Raises:
            ConsentNeededError: there is no terminal to ask on, or nothing may be printed.
            Abort: the answer is no.
        """
        self.refuse_unasked(needs)
        click.confirm(question, abort=True, err=True)

    def refuse_unasked(self, needs: str) -> None:
        """Refuse what needs consent where nobody can be asked.

        Raises:
            ConsentNeededError: there is no terminal to ask on, or nothing may be printed.
        """
        if self.is_quiet or not sys.stdin.isatty():
            reason = "; --quiet does not ask" if self.is_quiet else ""
            raise ConsentNeededError(f"{needs} needs confirmation{reason}", "add --yes")

    def command(self, function: str, asked: object) -> tuple[str, ...]:
        """Return the command line of this process, without a token."""
        return words_of_process()


def read_standard_input() -> str:
    """Return the text on standard input, at most as much as is read of a file.

    Raises:
        GgufspecError: it is not UTF-8.
    """
    from ggufspec import prompts, userfiles  # `--help` starts faster without them

    return prompts.decode(sys.stdin.buffer.read(userfiles.MOST_BYTES), "standard input")


def words_of_process() -> tuple[str, ...]:
    """Return this program's command line as text, without a token; bytes that are not UTF-8 are replaced.

    Of a pasted command, it is what it was read as: its own text may hold secrets.
    """
    context = click.get_current_context(silent=True)
    if context is not None and READ_AS in context.meta:
        read_as: tuple[str, ...] = context.meta[READ_AS]
        return read_as
    from ggufspec import redaction  # `--help` starts faster without it

    words = redaction.without_token_option(sys.argv)
    return tuple(os.fsencode(word).decode(errors="replace") for word in words)


def print_survey(survey: hub.Survey, *, err: bool = True) -> None:
    """Print the files of a pair with their sizes, what is cached already, and the free disk space."""
    here = [model for model in survey.pair.models if model.repo is None]
    local = [[str(model.path), format_bytes(model.size_bytes or 0), "local"] for model in here]
    echo_table(["file", "size", ""], [*map(_describe_item, survey.items), *local], err=err)
    _print_room(survey.missing_bytes, survey, err=err)
    if survey.missing_bytes:
        terms = "; ".join(f"{term} ({repo})" for repo, term in survey.terms.items())
        echo(f"licence: {terms}", err=err)


def _describe_item(item: hub.FetchItem) -> list[str]:
    """Return the name, the size and the state of a file of the Hub."""
    size, cached = item.file.size_bytes, item.here_bytes
    state = "cached" if item.is_here else f"{cached / size:.0%} cached" if cached else "to download"
    return [f"{item.repo}/{item.file.path}", format_bytes(size), state]


def print_conversion(made: api.ConvertedHead, *, err: bool = True) -> None:
    """Print what is downloaded and installed for a conversion, its size, and the free disk space."""
    from ggufspec.llama.convert import DISK_BYTES, DOWNLOAD_BYTES

    surveys = made.models.surveys
    rows = [_describe_item(item) for survey in surveys for item in survey.items]
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
    few = warnings.MeasurementWarning.FEW_REPEATS  # as was asked for: the table says what it cannot show
    for name, text in warnings.warning_advice(doubt for doubt in session.doubts if doubt is not few).items():
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
