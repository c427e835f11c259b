"""What ``bench`` shows while and after it measures."""

from __future__ import annotations

import os
import shlex
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from ggufspec import errors, units
from ggufspec.analysis import Doubt
from ggufspec.analysis import warnings as doubts
from ggufspec.cli.entry.output import echo
from ggufspec.cli.options.bench import given
from ggufspec.cli.options.shared import emit
from ggufspec.cli.steps import benches, resuming
from ggufspec.domain import RunResult, Status
from ggufspec.engines import ending
from ggufspec.harmless import CONTROL, one_line
from ggufspec.llama.install import environment
from ggufspec.measure import Session, api, measuring, refuse_endless, request
from ggufspec.report.text import formats, overview, tables
from ggufspec.results import ResultSet

_READ_BYTES_PER_S = 1e9  # and computing the digest
_LONG_BYTES = 1 << 30
_OWN = {"LC_ALL": "C.UTF-8", "XDG_CONFIG_HOME": "/nonexistent"}

_SAID_AT_ONCE = {Doubt.THREADS_ABOVE_FREE_CORES.value}
"""Warnings that do not wait for the table: a bench may take hours that are worth nothing."""


def prepare(asked: dict[str, Any]) -> Session:
    """Check what was asked for, and say what was chosen and what is doubtful already."""
    session = request.prepare(request.Request(**given(asked)))
    tell(session)
    return session


def tell(session: Session) -> None:
    """Say on standard error what was chosen, and warn of what is known before the first run."""
    for note in session.notes:
        echo(note, err=True)
    warn(doubts.advise(session.doubts))


def warn(advice: Mapping[str, str]) -> None:
    """Print warnings as a table ends with them."""
    for name, text in advice.items():
        echo(f"warning {name}: {text}", err=True)


def show_commands(session: Session, out: Path | None) -> None:
    """Print the commands of a bench, one line per distinct run, ready to paste into a shell."""
    switches = environment.switches()
    needed = [name for name in environment.inherited() if name not in {*switches, *_OWN}]
    env = " ".join(
        [
            "env -i",
            *(f'{name}="${name}"' for name in sorted(needed)),
            shlex.join(f"{name}={value}" for name, value in (switches | _OWN).items()),
        ]
    )
    suite = session.suite
    specs = (spec for block in suite.blocks for prompt in suite.prompts for spec in block.on(prompt))
    lines = dict.fromkeys(
        f'(cd "$(mktemp -d)" && {env} {" ".join(map(_quoted, session.engine.argv(spec)))} </dev/null)\n'
        for spec in specs
    )
    emit("".join(lines), out)


def _quoted(word: str) -> str:
    """Return a word for a shell; one with control characters in the form that shows them as escapes."""
    if not CONTROL.search(word):
        return shlex.quote(word)
    plain = word.replace("\\", "\\\\").replace("'", "\\'")
    escaped = CONTROL.sub(lambda match: "".join(f"\\x{byte:02x}" for byte in os.fsencode(match[0])), plain)
    return f"$'{escaped}'"


def announce_reading(session: Session) -> None:
    """Say that models are going to be read for their digests, where that takes longer than a moment."""
    sizes = request.unread_files(session)
    total = sum(sizes.values())
    if total >= _LONG_BYTES:
        seconds = units.format_duration(max(10.0, total / _READ_BYTES_PER_S))
        files = f"{units.counted(len(sizes), 'model file')} ({units.format_bytes(total)})"
        echo(f"reading {files} once, to know them by their content: about {seconds}", err=True)


def run(session: Session, *, name: str | None, resume: str | None, output: str, out: Path | None) -> None:
    """Measure under a progress bar and print the table, also when it was interrupted.

    Raises:
        GgufspecError: the class that belongs to the first failed run.
    """
    if name is not None and resume is not None:
        raise click.UsageError("--name is for a new result, --resume for one to go on with: give one of them")
    refuse_endless(session.suite)  # before models are read for hours
    announce_reading(session)
    session = request.identify(session)
    latest = begun = api.begin(
        session, command=command_line(), name=name, resume=resume, warnings=look_around(session)
    )
    benches.warn_of_damage(begun)
    try:
        for latest in shown(session, begun):  # noqa: B007  # the last one is what was measured
            pass
    except BaseException as error:
        with uninterrupted():
            session.engine.close()
            emit(table(latest, output), out)
            again = resuming.command_line(sys.argv, latest.meta.id)
            echo(f"{ended(error, latest)}{resuming.continued(again)}", err=True)
        raise
    session.engine.close()
    emit(table(latest, output), out)
    raise_for_failures(latest)


def look_around(session: Session) -> dict[str, str]:
    """Return the warnings about this machine as it is now, and print those that ``tell`` has not printed."""
    warnings, printed = api.look_around(session), doubts.advise(session.doubts)
    warn({name: text for name, text in warnings.items() if name not in printed})
    return warnings


def ended(error: BaseException, results: ResultSet) -> str:
    """Return a sentence about a bench that came to an early end: by a signal, or by an error."""
    why = "Stopped by an error" if isinstance(error, Exception) else "Interrupted"
    return f"{why}, {resuming.progress(results)}."


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Let Ctrl-C wait for the end of the block, in which a bench is wound up."""
    previous = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)


def command_line() -> tuple[str, ...]:
    """Return how this program was started, as text: bytes that are not UTF-8 cannot be stored."""
    return tuple(os.fsencode(word).decode(errors="replace") for word in sys.argv)


def shown(session: Session, begun: ResultSet) -> Iterator[ResultSet]:
    """Measure under a progress bar; yield the growing results."""
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        seen, done = len(begun.runs), len(begun.current)
        said = {*begun.meta.doubts}
        task = progress.add_task("measuring", total=session.suite.n_runs, completed=done)
        for store in measuring.record(
            session.suite,
            session.engine,
            session.install,
            begun,
            render=session.render,
            files=session.files or (),
        ):
            if len(store.runs) > seen:  # counted as they come: to sort all of them out takes ever longer
                seen, last = len(store.runs), store.runs[-1]
                done += not (last.warmup or last.anchor or last.rerun)
                about = f"{last.spec.role.value} · {one_line(last.spec.prompt.id)}"
                progress.update(task, completed=done, description=escape(about))
                for warning in _SAID_AT_ONCE.intersection(last.doubts) - said:
                    said.add(warning)
                    text = f"warning {warning}: {doubts.ADVICE[Doubt(warning)]}"
                    console.print(text, markup=False, highlight=False, soft_wrap=True)
            yield store


def table(results: ResultSet, output: str) -> str | bytes:
    """Return a bench's table in the wanted format."""
    if output in tables.FOR_PEOPLE:
        return resuming.incomplete(results) + overview.overview(results, output)
    from ggufspec.report import frames  # pandas is slow to import, and most tables need none of it

    origin = frames.origin(results.meta)
    return formats.render(frames.summary(results), output, title="summary", origin=origin)


def raise_for_failures(results: ResultSet) -> None:
    """Turn the first failed run of a finished bench into its error.

    Raises:
        GgufspecError: the class that belongs to the run's status.
    """
    failed = [run for run in results.current if run.sample.status is not Status.OK]
    if failed:
        raise _error(failed[0], len(failed), results)


def _error(run: RunResult, count: int, results: ResultSet) -> errors.GgufspecError:
    status = run.sample.status
    log = results.folder / "logs" / f"{run.log}.err"
    of = f"{count} of {len(results.current)} runs failed, first {run.spec.role.value} on {run.spec.prompt.id}"
    error = ending.error(status, f"{of}: {status.value}: {run.error or 'see the log'}", f"its log is {log}")
    if status is Status.TIMED_OUT and Doubt.THREADS_ABOVE_FREE_CORES.value in run.doubts:
        error.hint = doubts.ADVICE[Doubt.THREADS_ABOVE_FREE_CORES]
    return error
