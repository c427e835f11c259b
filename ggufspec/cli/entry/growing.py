"""A bench while it is measured: its table grows on the terminal, and an early end says how to go on."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Self

from rich.console import Console
from rich.live import Live
from rich.text import Text

from ggufspec.analysis import Arm, MeasurementWarning, arms, warnings
from ggufspec.cli.entry.output import echo
from ggufspec.harmless import harmless
from ggufspec.measure import NO_DEADLINE, BenchProgress, Session, api
from ggufspec.report.text import overview, tables
from ggufspec.results import ResultSet

EVERY_S = 60.0
"""How often a line is printed where there is no terminal."""


class LiveText:
    """On a terminal, a text that is replaced in place and removed at the end; otherwise a line a minute."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Start to count the first minute."""
        self._clock = clock
        self._console = Console(stderr=True)
        is_drawn = self._console.is_terminal and not self._console.is_dumb_terminal
        self._live = (
            Live(
                console=self._console,
                auto_refresh=False,
                transient=True,
                redirect_stdout=False,  # tables ask it for its encoding
                vertical_overflow="crop",
            )
            if is_drawn
            else None
        )
        self._printed_at = clock()

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def show(self, text: Callable[[int], str], line: Callable[[], str]) -> None:
        """Draw the text, or print the line if a minute has passed since the last one.

        Args:
            text: returns what to draw, for a terminal with so many lines.
            line: returns what to print.
        """
        if self._live is not None:
            drawn = Text(harmless(text(self._console.size.height)), no_wrap=True, overflow="ellipsis")
            drawn.highlight_regex(r"^\d.*$", "cyan")  # how far it is, apart from the table
            self._live.update(drawn, refresh=True)
        elif self._clock() - self._printed_at >= EVERY_S:
            self._printed_at = self._clock()
            self.print(line())

    def print(self, text: str) -> None:
        """Print a line that stays."""
        shown = harmless(tables.fit_terminal(text, self._console.file))
        self._console.print(shown, markup=False, highlight=False, soft_wrap=True)


GROUPING_SHARE = 50.0
"""Seconds of measuring for each second of grouping runs into arms."""

_PRINTED_AT_ONCE = {MeasurementWarning.THREADS_ABOVE_FREE_CORES.value}
"""Warnings that are printed before the table: they can make hours of measuring useless."""


@contextmanager
def draw_bench(
    first: BenchProgress, describe_ended: Callable[[ResultSet], str] | None = None
) -> Iterator[Callable[[BenchProgress], None]]:
    """Let the table of a bench grow on the terminal; at an early end, say how to go on.

    Args:
        first: how the bench begins.
        describe_ended: returns a sentence about how to see or continue a bench that ended early; None where
            the command says that.
    """
    results, pace = first.results, _TableState(first.session, first.results)
    printed = {*results.meta.doubts}

    def show(event: BenchProgress) -> None:
        nonlocal results
        n_shown, results = len(results.runs), event.results
        if len(results.runs) > n_shown:  # counted one by one: counting all again takes longer each time
            last = results.runs[-1]
            pace.n_done += not (last.warmup or last.anchor or last.rerun or last.remeasured)
            for warning in _PRINTED_AT_ONCE.intersection(last.doubts) - printed:
                printed.add(warning)
                live.print(f"warning {warning}: {warnings.ADVICE[MeasurementWarning(warning)]}")
        if results.upcoming is not None:
            shown, progress = results, pace.progress(results)
            live.show(
                lambda height: overview.growing_table(pace.group(shown), progress, height=height),
                lambda: overview.growing_line(pace.group(shown), progress),
            )

    try:
        with LiveText() as live:
            yield show
    except BaseException as error:
        if describe_ended is not None:
            with api.defer_interrupts():
                reason = "Stopped by an error" if isinstance(error, Exception) else "Interrupted"
                how = describe_ended(results)
                echo(f"{reason} after {overview.describe_count(results)}.{how}", err=True)
        raise


class _TableState:
    """How far a bench is, and the arms as they were when they were grouped last.

    To group many runs takes long. So it is done again only after fifty times the seconds that it took.
    """

    def __init__(self, session: Session, opened: ResultSet) -> None:
        self._suite, self._deadline = session.suite, session.deadline or NO_DEADLINE
        self.n_done = self._n_before = len(opened.current)  # runs of an earlier session
        self._started = time.monotonic()
        self._groups: Sequence[Arm] = ()
        self._group_again_at = 0.0

    def progress(self, store: ResultSet) -> overview.Progress:
        n_measured, n_planned, left = self.n_done - self._n_before, self._suite.n_runs, None
        if n_measured:
            left = (time.monotonic() - self._started) / n_measured * (n_planned - self.n_done)
            left = min(left, max(0.0, self._deadline.left_s))
        return overview.Progress(
            n_done=self.n_done,
            n_planned=max(n_planned, self.n_done),
            is_most=self._suite.stopping is not None,
            left_s=left,
            running=store.upcoming,
        )

    def group(self, store: ResultSet) -> Sequence[Arm]:
        started = time.monotonic()
        if started >= self._group_again_at:
            self._groups = arms.group(store)
            ended = time.monotonic()
            self._group_again_at = ended + GROUPING_SHARE * (ended - started)
        return self._groups
