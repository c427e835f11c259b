"""What ``bench`` shows while and after it measures."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

from ggufspec import errors, frames, measuring, report
from ggufspec.cli._options import emit
from ggufspec.domain import RunResult, Status
from ggufspec.report.overview import overview
from ggufspec.request import Session
from ggufspec.results import ResultSet

_ERRORS: dict[Status, type[errors.GgufspecError]] = {
    Status.SUMMARY_LOST: errors.SummaryLostError,
    Status.DRAFTING_INACTIVE: errors.DraftingInactiveError,
    Status.DRAFTER_REFUSED: errors.DrafterRefusedError,
    Status.PROMPT_TOO_LONG: errors.ContextTooSmallError,
    Status.LOAD_FAILED: errors.ModelFileError,
    Status.OUT_OF_MEMORY: errors.OutOfMemoryError,
    Status.DISK_FULL: errors.DiskFullError,
    Status.CRASHED: errors.ChildCrashedError,
    Status.FAILED: errors.ChildCrashedError,
    Status.TIMED_OUT: errors.ChildTimedOutError,
}
_HINTS = {
    Status.OUT_OF_MEMORY: "put fewer layers on the GPU (--ngl), or use a smaller --ctx or quantization",
    Status.TIMED_OUT: "allow more time with --timeout, or ask for fewer tokens with -n",
    Status.PROMPT_TOO_LONG: "use a larger --ctx or a shorter prompt",
}


def commands(session: Session) -> str:
    """Return the commands of a bench, one line per distinct run, ready to paste into a shell."""
    unset = [word for name in sorted(os.environ) if name.startswith("LLAMA_") for word in ("-u", name)]
    env = shlex.join(["env", *unset, "LC_ALL=C", "XDG_CONFIG_HOME=/nonexistent"])
    lines = dict.fromkeys(
        f'(cd "$(mktemp -d)" && {env} {shlex.join(session.engine.argv(cell.spec))} </dev/null)\n'
        for cell in session.suite.cells()
    )
    return "".join(lines)


def measure(session: Session, *, command: tuple[str, ...], output: str, out: Path | None) -> ResultSet:
    """Run a bench under a progress bar; what was measured is shown even when it is interrupted."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    cells = list(session.suite.cells())
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    results: ResultSet | None = None
    try:
        with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
            task = progress.add_task("measuring", total=len(cells))
            for results in measuring.record(session.suite, session.engine, session.install, command=command):
                done = len(results.runs)
                following = cells[done].spec if done < len(cells) else cells[-1].spec
                progress.update(
                    task, completed=done, description=f"{following.role.value} · {following.prompt.id}"
                )
    finally:
        if results is not None:
            emit(table(results, output), out)
    assert results is not None
    return results


def table(results: ResultSet, output: str) -> str:
    """Return a bench's table in the wanted format."""
    if output == "md":
        return overview(results)
    return report.render(frames.summary(results), output, title="summary")


def raise_for_failures(results: ResultSet) -> None:
    """Turn the first failed run of a finished bench into its error.

    Raises:
        GgufspecError: the class that belongs to the run's status.
    """
    failed = [run for run in results.measured if run.sample.status is not Status.OK]
    if failed:
        raise _error(failed[0], len(failed), results)


def _error(run: RunResult, count: int, results: ResultSet) -> errors.GgufspecError:
    status = run.sample.status
    log = results.folder / "logs" / f"{run.log}.err"
    of = (
        f"{count} of {len(results.measured)} runs failed, first {run.spec.role.value} on {run.spec.prompt.id}"
    )
    return _ERRORS[status](
        f"{of}: {status.value}: {run.error or 'see the log'}", _HINTS.get(status, "") or f"its log is {log}"
    )
