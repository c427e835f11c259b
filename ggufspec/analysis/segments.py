"""Where in the answers drafts are accepted: an arm in thinking, tool calls, JSON, code and prose, pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ggufspec import stats
from ggufspec.analysis import acceptance
from ggufspec.analysis.acceptance import Acceptance, AcceptanceIntervals
from ggufspec.analysis.arm import Arm
from ggufspec.domain import Estimate, Role, Sample, Segment, SegmentCounts, Status


@dataclass(frozen=True, kw_only=True)
class ArmInSegment:
    """An arm in the parts of one kind of all answers; speeds are geometric means over prompts."""

    arm: Arm
    segment: Segment

    @property
    def n_tokens(self) -> int:
        """Tokens of all runs, without the first one of each answer."""
        return sum(counts.n_tokens for counts in self._counts if counts is not None)

    @property
    def share(self) -> float:
        """The share of all tokens whose segment is known, 0 to 1."""
        tables = (table or () for table in self.arm.good.column("by_segment"))
        n_tokens: int = sum(counts.n_tokens for table in tables for counts in table)
        return self.n_tokens / n_tokens

    @cached_property
    def acceptance(self) -> Acceptance | None:
        """What was accepted; None where nothing was drafted."""
        return acceptance.of(self._samples) if self.arm.role is Role.DRAFTING else None

    @cached_property
    def intervals(self) -> AcceptanceIntervals | None:
        """The same with intervals over prompts, or over conversations."""
        return self.arm.with_intervals(self._samples)

    @cached_property
    def token_s(self) -> Estimate | None:
        """Seconds for each token."""
        return stats.mean_rate(self._table(lambda counts, seconds: seconds / counts.n_tokens))

    @cached_property
    def speedup(self) -> Estimate | None:
        """How many times faster tokens come than from the baseline in its parts of this kind."""
        if self.arm.baseline is None:
            return None
        alone = ArmInSegment(arm=self.arm.baseline, segment=self.segment)
        effect = self.arm.compare(self._rates, alone._rates)
        return effect.ratio if effect else None

    @property
    def _rates(self) -> stats.Rates:
        return self._table(lambda counts, seconds: counts.n_tokens / seconds if seconds else 0.0)

    @cached_property
    def _counts(self) -> list[SegmentCounts | None]:
        """What each good run has of this segment."""
        tables = self.arm.good.column("by_segment")
        return [next((one for one in table or () if one.segment == self.segment), None) for table in tables]

    @cached_property
    def _samples(self) -> list[Sample]:
        """The good runs, as if this segment were all of their answers."""
        nothing = SegmentCounts(self.segment, 0, 0, 0, 0)
        return [
            Sample(
                status=Status.OK,
                gen_tokens=counts.n_tokens,
                n_drafted=counts.n_drafted,
                n_accepted=counts.n_accepted,
                n_rounds=counts.n_rounds,
            )
            for counts in (counts or nothing for counts in self._counts)
        ]

    def _table(self, figure: Callable[[SegmentCounts, float], float]) -> stats.Rates:
        """Return a figure of the counts and seconds of each run, in the cells of the arm's rates."""
        tables, seconds = map(self.arm.good.column, ("by_segment", "segment_s"))
        values = [
            np.nan if counts is None else figure(counts, of_run[table.index(counts)])
            for counts, table, of_run in zip(self._counts, tables, seconds, strict=True)
        ]
        return self.arm.table(np.array(values, dtype=np.float64))


def of_segments(arm: Arm) -> Iterator[ArmInSegment]:
    """Yield an arm in each segment that its answers have."""
    tables = arm.good.column("by_segment")
    written = {counts.segment for table in tables for counts in table or ()}
    yield from (ArmInSegment(arm=arm, segment=segment) for segment in Segment if segment in written)
