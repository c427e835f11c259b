"""Benches on the command line: load, list, delete and continue them; what ends with an exit code."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ggufspec import results
from ggufspec.cli.entry.output import echo, emit_page
from ggufspec.cli.entry.parameters import FieldOption
from ggufspec.cli.entry.terminal import Terminal, words_of_process
from ggufspec.domain import RunResult, Status
from ggufspec.errors import DoubtfulError, GgufspecError, ResultsError
from ggufspec.options import divide_words
from ggufspec.report.text import overview
from ggufspec.results import ResultSet

if TYPE_CHECKING:
    from ggufspec.forecast import Forecast
    from ggufspec.results import Configuration


def load_bench(run: str, *, salvage: bool = False) -> ResultSet:
    """Load a bench, and print warnings about damaged parts.

    Raises:
        ResultsError: there is no such bench, or it is damaged.
    """
    return results.load_each([run], Terminal(), salvage=salvage)[0]


def refuse_doubtful(stored: Sequence[ResultSet], *, undecided: Sequence[str] = ()) -> None:
    """Raise for ``--strict`` if a warning puts a verdict of these benches in doubt, or one is undecided.

    Args:
        stored: the benches.
        undecided: ids of those whose verdict is open.

    Raises:
        DoubtfulError: naming the warnings.
    """
    from ggufspec.analysis import review, warnings

    doubts = {bench.meta.id: warnings.doubtful(review.warnings(bench)) for bench in stored}
    found = {bench: names + ("undecided",) * (bench in undecided) for bench, names in doubts.items()}
    named = "; ".join(f"{bench}: {', '.join(names)}" for bench, names in found.items() if names)
    if named:
        raise DoubtfulError(
            f"warnings put a verdict in doubt: {named}",
            "the advice follows the table; leave out --strict to accept the result as it is",
        )


def load_forecasts(folder: Path) -> tuple[Forecast, ...]:
    """Return the forecasts of a bench; if damaged, none, with a warning."""
    from ggufspec.forecast import profiles

    try:
        return profiles.kept(folder)
    except ResultsError as error:
        echo(f"warning: {error.message}; the forecasts are left out", err=True)
        return ()


def load_configuration(folder: Path) -> Configuration | None:
    """Return the tuned configuration of a bench; None without one, or with a warning if it is damaged."""
    if not results.has_configuration(folder):
        return None
    try:
        return results.read_configuration(str(folder))
    except ResultsError as error:
        echo(f"warning: {error.message}; the tuned configuration is left out", err=True)
        return None


def find_tuned(name: str) -> str:
    """Return the bench that confirmed a tuned configuration, as ``load_bench`` takes it.

    Raises:
        ResultsError: there is no such configuration.
    """
    return str(results.find_configuration(name).parent)


def print_list(output: str, out: Path | None) -> None:
    """Print or write the list of stored benches."""
    from ggufspec.analysis import listing

    benches = listing.stored_benches()
    page = partial(overview.bench_list, benches, output)
    emit_page(page, lambda frames: frames.benches(benches), output, out, title="benches")


def print_table(results: ResultSet, output: str, out: Path | None) -> None:
    """Print or write a bench's table."""
    emit_page(
        lambda: describe_incomplete(results) + overview.overview(results, output),
        lambda frames: frames.summary(results),
        *(output, out),
        meta=results.meta,
        title="summary",
        schema="summary",
    )


def raise_for_failures(results: ResultSet) -> None:
    """Raise the error of the first failed run of a finished bench.

    Raises:
        GgufspecError: the class that belongs to the run's status.
    """
    failed = [run for run in results.current if run.sample.status is not Status.OK]
    if failed:
        raise _error(failed[0], len(failed), results)


def _error(run: RunResult, count: int, results: ResultSet) -> GgufspecError:
    from ggufspec.analysis import MeasurementWarning, warnings
    from ggufspec.engines import failure_error

    status = run.sample.status
    log = results.folder / "logs" / f"{run.log}.err"
    summary = (
        f"{count} of {len(results.current)} runs failed, first {run.spec.role.value} on {run.spec.prompt.id}"
    )
    error = failure_error(
        status, f"{summary}: {status.value}: {run.error or 'see the log'}", f"the log is {log}"
    )
    if status is Status.TIMED_OUT and "--max-time" in (run.error or ""):
        error.hint = "allow more time with --max-time, or ask for fewer tokens with -n"
    if status is Status.TIMED_OUT and MeasurementWarning.THREADS_ABOVE_FREE_CORES.value in run.doubts:
        error.hint = warnings.ADVICE[MeasurementWarning.THREADS_ABOVE_FREE_CORES]
    return error


def describe_continuing(results: ResultSet) -> str:
    """Return a sentence with the command that continues a bench of this command line."""
    return describe_command(command_line(words_of_process(), results.meta.id))


def describe_incomplete(results: ResultSet) -> str:
    """Return the line above the table of an incomplete bench; an empty text for a complete one."""
    if results.is_complete is not False:
        return ""
    command = command_line(results.meta.command, results.meta.id)
    return f"Incomplete: {overview.describe_count(results)}.{describe_command(command)}\n\n"


def describe_command(command: str | None) -> str:
    """Return a sentence with the command that continues a bench; an empty text without a command."""
    return "" if command is None else f" Continue with: {command}"


def command_line(argv: Sequence[str], name: str) -> str | None:
    """Return the command that continues a bench, ready to paste into a shell.

    Args:
        argv: the command line that started it.
        name: the bench.

    Returns:
        The command; None if a notebook started it, or a command without --resume, such as ``tune``.
    """
    commands = click.get_current_context().find_root()
    assert isinstance(commands.command, click.Group)
    words = argv[1:]
    command = next((word for word in words if not word.startswith("-")), None)  # only flags stand before it
    started_by = commands.command.get_command(commands, command) if command else None
    parameters = [] if started_by is None else started_by.params
    options = [parameter.option for parameter in parameters if isinstance(parameter, FieldOption)]
    if not any("--resume" in option.names for option in options):
        return None
    kept = (
        word
        for option, part in divide_words(words, options)
        if option is None or option.python_name not in {"name", "resume"}
        for word in part
    )
    return shlex.join(["ggufspec", *kept, "--resume", name])
