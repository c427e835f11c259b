"""Where in the answers drafts are accepted: an arm in thinking, tool calls, JSON, code and prose, pure.

And whether the answer depends on the text: speed-ups of categories, or of prompts, that truly differ.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean

import numpy as np

from ggufspec import stats
from ggufspec.analysis import acceptance
from ggufspec.analysis.acceptance import Acceptance, AcceptanceIntervals
from ggufspec.analysis.arm import Arm
from ggufspec.analysis.judging import judge_family
from ggufspec.domain import Estimate, Role, Sample, Segment, SegmentCounts, SpeedJudgement, Status


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


_LEAST_GAP = 1.1  # of the largest over the smallest speed-up: a smaller gap changes no choice
_ALPHA = 0.05


@dataclass(frozen=True, kw_only=True)
class TextGain:
    """The speed-up on the prompts of a category, or on a prompt; ``ratio`` is their geometric mean."""

    name: str
    ratio: float


def differing_gains(arm: Arm, baseline: Arm | None = None) -> tuple[TextGain, ...]:
    """Return the speed-ups by category, the largest first, where the texts truly differ; otherwise nothing.

    They do where the largest is at least a tenth above the smallest, and they differ significantly by more
    than their repeats scatter. Prompts are fixed: this is about these texts. Without two categories, prompts
    are compared: of files, each is a prompt of its own name.

    Args:
        arm: an arm that drafts.
        baseline: what it is compared with; by default its own.
    """
    baseline = baseline or arm.baseline
    if baseline is None:
        return ()
    cells = [cell for cell in arm.rates if cell in baseline.rates]
    category_of = _categories(arm)
    counting, measured = (
        _mean_logs(cells, rates, others, category_of)
        for rates, others in ((arm.rates, baseline.rates), (arm.measured, baseline.measured))
    )
    return _differing(counting, measured)


def judge_categories(arm: Arm, baseline: Arm | None = None) -> dict[str, SpeedJudgement]:
    """Judge an arm on the prompts of each category, so that all intervals hold together (``judge_family``).

    One prompt says nothing of its category, so each has two or more, and there are two such categories.
    Nothing is said of an arm whose text is not the target's own.

    Args:
        arm: an arm that drafts.
        baseline: what it is compared with; by default its own.
    """
    baseline, category_of = baseline or arm.baseline, _categories(arm)
    if baseline is None or arm.text_differs or not category_of:
        return {}
    prompts: dict[str, set[str]] = {}
    for prompt, category in category_of.items():
        prompts.setdefault(category, set()).add(prompt)
    several = [(name, arm.judge(baseline, ids)) for name, ids in prompts.items() if len(ids) > 1]
    judged = judge_family([pair for pair in several if pair[1].ratio is not None])
    return dict(judged) if len(judged) > 1 else {}


def _categories(arm: Arm) -> dict[str, str]:
    """Return the category of each prompt, its own name where it has none; nothing without two categories."""
    named = {spec.prompt.id: spec.prompt.category for spec in arm.good.specs}
    has_several = len({*named.values()} - {None}) > 1
    return {prompt: category or prompt for prompt, category in named.items()} if has_several else {}


def _mean_logs(
    cells: Sequence[stats.Cell], rates: stats.Rates, baseline: stats.Rates, category_of: Mapping[str, str]
) -> dict[str, dict[int, float]]:
    """Return the mean log ratio of each category in each repeat; of each prompt that has none."""
    logs: dict[str, dict[int, list[float]]] = {}
    for prompt, repeat in cells:
        name = category_of.get(prompt, prompt)
        ratio = rates[prompt, repeat] / baseline[prompt, repeat]
        logs.setdefault(name, {}).setdefault(repeat, []).append(math.log(ratio))
    return {name: {repeat: fmean(of) for repeat, of in repeats.items()} for name, repeats in logs.items()}


def _differing(
    counting: Mapping[str, Mapping[int, float]], measured: Mapping[str, Mapping[int, float]]
) -> tuple[TextGain, ...]:
    """Return the gains of groups, if the extremes differ.

    Args:
        counting: group -> repeat -> mean log ratio, of the rates that count.
        measured: the same of all runs as measured. They are tested: a run that was clipped has no residual,
            so that repeats seem to scatter less than they do.
    """
    gains = [TextGain(name=name, ratio=math.exp(fmean(logs.values()))) for name, logs in counting.items()]
    gains.sort(key=lambda gain: -gain.ratio)
    if len(gains) < 2 or gains[0].ratio < _LEAST_GAP * gains[-1].ratio:
        return ()
    shared = sorted(set.intersection(*(set(logs) for logs in measured.values())))
    table = np.array([[logs[repeat] for repeat in shared] for logs in measured.values()])
    p_value = stats.p_of_equal_groups(table) if shared else None
    return tuple(gains) if p_value is not None and p_value < _ALPHA else ()
