"""The time limit of a command, which begins when its process starts."""

from __future__ import annotations

import time

import click

from ggufspec import proc
from ggufspec.cli.entry import verbosity
from ggufspec.cli.entry.output import echo
from ggufspec.measure import RUN_SHARE, Deadline
from ggufspec.units import format_duration

_LONGEST_START_S = 5.0  # of the interpreter; an older process runs other things beside this command
_ANNOUNCED_S = 1.0  # downloads that take longer are said not to count


def begin_limit(limit_s: float | None, *, run_share: float = 1.0) -> Deadline:
    """Return a time limit that began with this process, or with the command where that is older.

    Args:
        limit_s: seconds; None for no limit.
        run_share: of the limit, what one run may take.
    """
    begun_s = verbosity.current(click.get_current_context()).begun_s
    age_s = proc.process_age_s()
    if age_s is not None and 0 <= begun_s - (time.monotonic() - age_s) <= _LONGEST_START_S:
        begun_s = time.monotonic() - age_s
    return Deadline.start(limit_s, begun_s=begun_s, run_share=run_share)


def begin_tuning(limit_s: float | None) -> Deadline:
    """Return the limit of a tuning, of which a run may take a quarter."""
    return begin_limit(limit_s, run_share=RUN_SHARE)


def announce_limit(deadline: Deadline) -> None:
    """Print how much of a limit is left."""
    if deadline.limit_s is not None:
        echo(f"{deadline.describe()}: {describe_left(deadline)}", err=True)


def without_network(deadline: Deadline, since_s: float, what: str = "downloads") -> Deadline:
    """Return a limit in which a search of the Hub or a download does not count, and print that.

    Args:
        deadline: the limit.
        since_s: how many of its seconds had passed before it.
        what: does not count, for the line that says so.
    """
    seconds = deadline.elapsed_s - since_s
    if seconds >= _ANNOUNCED_S and deadline.limit_s is not None:
        echo(f"{what}: {format_duration(seconds)} not counted for --max-time", err=True)
    return deadline.without(seconds)


def describe_left(deadline: Deadline) -> str:
    """Return how much of a limit has passed and is left: ``12 s elapsed, 1 min 48 s left``."""
    elapsed = _whole(deadline.elapsed_s)
    if deadline.limit_s is None:
        return f"{elapsed} elapsed"
    return f"{elapsed} elapsed, {_whole(max(0.0, deadline.left_s))} left"


def _whole(seconds: float) -> str:
    """Return a duration in whole seconds."""
    return format_duration(seconds) if seconds >= 60 else f"{seconds:.0f} s"
