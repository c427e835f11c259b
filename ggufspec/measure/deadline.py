"""A time limit: when it began, what is left, and how long one run may take."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from ggufspec import units
from ggufspec.steps import Sink

if TYPE_CHECKING:
    from ggufspec.engines import Engine

RUN_SHARE = 0.25
"""Of a tuning's time limit, what one run, trace or load may take."""
OVERRUN = 0.1
"""Of a time limit, by which the last run may exceed it before it is ended."""
_ANNOUNCED_S = 1.0  # downloads that take longer are said not to count
_SHORTEST_S = 0.1  # a time limit of a process: 0 would mean none in some libraries


@dataclass(frozen=True, kw_only=True)
class Deadline:
    """A time limit that has begun.

    Attributes:
        limit_s: seconds for everything; None for no limit.
        begun_s: when it began, by ``clock``.
        reserved_s: seconds at the end that are kept for later stages.
        run_share: of the limit, what one run may take.
        clock: returns seconds.
    """

    limit_s: float | None = None
    begun_s: float = 0.0
    reserved_s: float = 0.0
    run_share: float = 1.0
    clock: Callable[[], float] = field(default=time.monotonic, repr=False, compare=False)

    @classmethod
    def start(
        cls,
        limit_s: float | None,
        *,
        begun_s: float | None = None,
        run_share: float = 1.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> Deadline:
        """Return a limit that begins now, or that began at ``begun_s``."""
        begun_s = clock() if begun_s is None else begun_s
        return cls(limit_s=limit_s, begun_s=begun_s, run_share=run_share, clock=clock)

    @property
    def elapsed_s(self) -> float:
        """Seconds since the beginning."""
        return self.clock() - self.begun_s

    @property
    def left_s(self) -> float:
        """Seconds until the reserve; infinite without a limit, negative after the end."""
        return math.inf if self.limit_s is None else self.limit_s - self.reserved_s - self.elapsed_s

    def is_over(self) -> bool:
        """Whether no time is left."""
        return self.left_s <= 0

    @property
    def longest_run_s(self) -> float:
        """Seconds that one run may take; infinite without a limit."""
        return math.inf if self.limit_s is None else self.limit_s * self.run_share

    def fits(self, seconds: float) -> bool:
        """Whether something that takes so long ends in time."""
        return seconds <= self.left_s

    def timeout_s(self, own_s: float | None = None) -> float | None:
        """Return after how many seconds a run that begins now is ended; None for never.

        A run may exceed the limit by a tenth, so that a slightly wrong expectation does not cost it.

        Args:
            own_s: a further limit of each run; None for no other.
        """
        if self.limit_s is None:
            return own_s
        left_s = self.limit_s * (1 + OVERRUN) - self.elapsed_s
        least_s = min(self.longest_run_s, max(_SHORTEST_S, left_s))
        return least_s if own_s is None else min(own_s, least_s)

    @contextmanager
    def limiting(self, engine: Engine) -> Iterator[None]:
        """Let an engine end a run that takes too long, in the block; its own time limit stays."""
        own_s = engine.timeout_s
        engine.timeout_s = self.timeout_s(own_s)
        try:
            yield
        finally:
            engine.timeout_s = own_s

    def without(self, seconds: float) -> Deadline:
        """Return the limit without seconds that do not count, such as those of a download."""
        return replace(self, begun_s=self.begun_s + seconds)

    def without_network(self, since_s: float, sink: Sink, what: str = "downloads") -> Deadline:
        """Return the limit in which a search of the Hub or a download does not count, and say that.

        Args:
            since_s: how many of its seconds had passed before it.
            sink: gets the sentence.
            what: does not count.
        """
        seconds = self.elapsed_s - since_s
        later = self.without(seconds)
        if seconds >= _ANNOUNCED_S and self.limit_s is not None:
            sink.say(f"{what}: {units.format_duration(seconds)} not counted for --max-time")
            sink.show(later)
        return later

    def reserve(self, seconds: float) -> Deadline:
        """Return the limit of a stage that leaves so many seconds for those after it."""
        return replace(self, reserved_s=self.reserved_s + seconds)

    def stage(self, seconds: float) -> Deadline:
        """Return the limit of a stage that may take so many seconds from now on."""
        if self.limit_s is None or seconds >= self.left_s:
            return self
        return self.reserve(self.left_s - seconds)

    def describe(self) -> str:
        """Return the option that sets the limit, with its value."""
        assert self.limit_s is not None
        return f"--max-time {units.duration_option(self.limit_s)}"

    def describe_left(self) -> str:
        """Return how much has passed and is left: ``12 s elapsed, 1 min 48 s left``."""
        elapsed = _describe_whole(self.elapsed_s)
        if self.limit_s is None:
            return f"{elapsed} elapsed"
        return f"{elapsed} elapsed, {_describe_whole(max(0.0, self.left_s))} left"


def _describe_whole(seconds: float) -> str:
    """Return a duration in whole seconds."""
    return units.format_duration(seconds) if seconds >= 60 else f"{seconds:.0f} s"


NO_DEADLINE = Deadline()
"""No limit."""
