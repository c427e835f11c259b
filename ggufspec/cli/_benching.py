"""What ``bench`` shows while and after it measures."""

from __future__ import annotations

import os
import shlex
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from ggufspec import api, doubts, errors, measuring, report, request
from ggufspec.cli import _resuming
from ggufspec.cli._asking import given
from ggufspec.cli._options import emit
from ggufspec.domain import RunResult, Status
from ggufspec.doubts import Doubt
from ggufspec.engines import ending
from ggufspec.report.overview import overview
from ggufspec.request import Session
from ggufspec.results import ResultSet

_SAID_AT_ONCE = {Doubt.THREADS_ABOVE_FREE_CORES.value}
"""Warnings that do not wait for the table: a bench may take hours that are worth nothing."""


def prepare(asked: dict[str, Any]) -> Session:
    """Check what was asked for, and say what was chosen."""
    session = request.prepare(request.Request(**given(asked)))
    for note in session.notes:
        click.echo(note, err=True)
    return session


def show_commands(session: Session, out: Path | None) -> None:
    """Print the commands of a bench, one line per distinct run, ready to paste into a shell."""
    unset = [word for name in sorted(os.environ) if name.startswith("LLAMA_") for word in ("-u", name)]
    env = shlex.join(["env", *unset, "LC_ALL=C", "XDG_CONFIG_HOME=/nonexistent"])
    suite = session.suite
    specs = (spec for block in suite.blocks for prompt in suite.prompts for spec in block.on(prompt))
    lines = dict.fromkeys(
        f'(cd "$(mktemp -d)" && {env} {shlex.join(session.engine.argv(spec))} </dev/null)\n' for spec in specs
    )
    emit("".join(lines), out)


def run(session: Session, *, name: str | None, resume: str | None, output: str, out: Path | None) -> None:
    """Measure under a progress bar and print the table, also when it was interrupted.

    Raises:
        GgufspecError: the class that belongs to the first failed run.
    """
    if name is not None and resume is not None:
        raise click.UsageError("--name is for a new result, --resume for one to go on with: give one of them")
    latest = begun = api.begin(
        session, command=tuple(sys.argv), name=name, resume=resume, warnings=look_around(session)
    )
    try:
        for latest in shown(session, begun):  # noqa: B007  # the last one is what was measured
            pass
    except BaseException as error:
        with uninterrupted():
            session.engine.close()
            emit(table(latest, output), out)
            again = _resuming.command_line(sys.argv, latest.meta.id)
            click.echo(f"{ended(error, latest)}{_resuming.continued(again)}", err=True)
        raise
    session.engine.close()
    emit(table(latest, output), out)
    raise_for_failures(latest)


def look_around(session: Session) -> dict[str, str]:
    """Return the warnings about this machine as it is now, and print those that cannot wait for the table."""
    warnings = api.look_around(session)
    for warning in _SAID_AT_ONCE & warnings.keys():
        click.echo(f"warning {warning}: {warnings[warning]}", err=True)
    return warnings


def ended(error: BaseException, results: ResultSet) -> str:
    """Return a sentence about a bench that came to an early end: by a signal, or by an error."""
    why = "Stopped by an error" if isinstance(error, Exception) else "Interrupted"
    return f"{why}, {_resuming.progress(results)}."


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Let Ctrl-C wait for the end of the block, in which a bench is wound up."""
    previous = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)


def shown(session: Session, begun: ResultSet) -> Iterator[ResultSet]:
    """Measure under a progress bar; yield the growing results."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        seen, done = len(begun.runs), len(begun.current)
        said = {*begun.meta.doubts}
        task = progress.add_task("measuring", total=session.suite.n_runs, completed=done)
        for store in measuring.record(
            session.suite, session.engine, session.install, begun, render=session.render
        ):
            if len(store.runs) > seen:  # counted as they come: to sort all of them out takes ever longer
                seen, last = len(store.runs), store.runs[-1]
                done += not (last.warmup or last.anchor or last.rerun)
                about = f"{last.spec.role.value} · {last.spec.prompt.id}"
                progress.update(task, completed=done, description=about)
                for warning in _SAID_AT_ONCE.intersection(last.doubts) - said:
                    said.add(warning)
                    text = f"warning {warning}: {doubts.ADVICE[Doubt(warning)]}"
                    console.print(text, markup=False, highlight=False, soft_wrap=True)
            yield store


def table(results: ResultSet, output: str) -> str | bytes:
    """Return a bench's table in the wanted format."""
    if output == "md":
        return _resuming.incomplete(results) + overview(results)
    from ggufspec import frames  # pandas is slow to import, and most tables need none of it

    return report.render(frames.summary(results), output, title="summary")


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
