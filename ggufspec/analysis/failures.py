"""Do two arms fail alike? What fails is often what is slow, so what is left of an arm may be its fast runs.

A time limit that cuts the slow runs of one arm alone makes that arm faster than it is, and no interval of the
other runs knows of it. Where both arms lose alike, their ratio keeps its meaning.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ggufspec.domain import RequestOutcome, Status
from ggufspec.results import Runs

_LEAST = 2  # a single failure is an accident, and clipping would leave such a run out, too
_LARGEST_SHARE = 0.02
"""Of the runs, by which two arms may differ.

Where one run in fifty is cut that takes 30 % longer, a mean moves by 0.6 %: less than ``judging.THRESHOLD``.
"""


@dataclass(frozen=True, kw_only=True)
class Failures:
    """How many runs, or requests of several users, failed, and of how many."""

    failed: int = 0
    of: int = 0

    @property
    def share(self) -> float:
        """From 0 to 1."""
        return self.failed / self.of if self.of else 0.0

    def differs_from(self, other: Failures) -> bool:
        """Whether so many more failed on one side that what is left may be its fast ones."""
        is_more = abs(self.failed - other.failed) >= _LEAST
        return is_more and abs(self.share - other.share) > _LARGEST_SHARE


def count_failures(runs: Sequence[Runs]) -> tuple[Failures, Failures]:
    """Return the failures of an arm's runs, and of the requests in those of several users."""
    statuses = [status for one in runs for status in one.column("status")]
    outcomes = [
        request.outcome
        for one in runs
        for traffic in one.column("traffic")
        if traffic is not None
        for request in traffic.requests
        if request.outcome is not RequestOutcome.STOPPED  # by ggufspec, at the end of a run
    ]
    return (
        Failures(failed=len(statuses) - statuses.count(Status.OK), of=len(statuses)),
        Failures(failed=sum(outcome is not RequestOutcome.OK for outcome in outcomes), of=len(outcomes)),
    )


def fails_unlike(one: Sequence[Runs], other: Sequence[Runs]) -> bool:
    """Whether the runs or requests of one arm fail more often than those of another."""
    pairs = zip(count_failures(one), count_failures(other), strict=True)
    return any(first.differs_from(second) for first, second in pairs)
