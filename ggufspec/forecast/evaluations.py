"""How often a run pays each of a curve's times: seconds are then one product with its points."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ggufspec.domain import Program
from ggufspec.forecast.costs import CostCurve, CurveKind
from ggufspec.forecast.trace import Counts, DraftTrace, TracedRun, TraceStep, count, walk

Values = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, eq=False)
class Exposure:
    """One run as a cost curve sees it.

    Attributes:
        prompt_id: whose run it is.
        counts: rounds, drafted and accepted tokens.
        tokens: those decoded after the prompt's own evaluation, as ``Sample.decode_tps`` counts them.
        drafting: for each of the curve's points, how often its time is paid to the drafter.
        verifying: the same, to the target.
        besides: the same, to neither.
        clamped: whether some depth lies outside what was measured; the nearest one stood in.
    """

    prompt_id: str
    counts: Counts
    tokens: float
    drafting: Values
    verifying: Values
    besides: Values
    clamped: bool = False

    @property
    def paid(self) -> Values:
        """How often each point's time is paid at all."""
        return self.drafting + self.verifying + self.besides


def drafting(trace: DraftTrace, curve: CostCurve, run: TracedRun) -> Exposure:
    """Return what a drafting run pays; see ``trace.walk``.

    The tree program's drafter reads the token that the target chose in an evaluation of its own, at which
    nothing is proposed; server and simple program of today read the whole verified batch again.

    Raises:
        ValueError: the trace is too short, or the curve knows no such batch.
    """
    taken = walk(trace, run)
    n_max, extra = run.drafting.n_max, 1 if run.program is Program.TREE else 0
    absorbs = run.drafting.method.drafts_with_model and bool(curve.absorb) and run.absorbs
    evaluations = _EvaluationCounts(curve, trace.n_prompt)
    before: int | None = None
    for step in taken:
        evaluations.add("verifying", CurveKind.VERIFY, step, 1 + step.drafted)
        evaluations.add("verifying", CurveKind.CHOOSE, step, 1, times=1 + step.accepted)
        if before is not None and step.drafted != before and not run.samples_exactly:
            evaluations.add("besides", CurveKind.RESIZE, step, 1)
        before = step.drafted
        if curve.drafts_blocks:
            evaluations.add("drafting", CurveKind.DRAFT, step, n_max, times=min(1, step.proposals))
        elif curve.draft and step.proposals + extra:
            evaluations.add("drafting", CurveKind.DRAFT, step, 1, times=step.proposals + extra)
        if absorbs:
            evaluations.add("drafting", CurveKind.ABSORB, step, 1 + step.drafted)
        evaluations.add("besides", CurveKind.ROUND, step, 1)
    return evaluations.total(trace.prompt_id, taken)


def alone(trace: DraftTrace, curve: CostCurve, *, first: int, tokens: int) -> Exposure:
    """Return what the target alone pays for ``tokens`` tokens from the place ``first`` of a trace on."""
    taken = [TraceStep(at, 1.0, 0, 0.0, 0) for at in range(first, first + tokens)]
    evaluations = _EvaluationCounts(curve, trace.n_prompt)
    for step in taken:
        evaluations.add("verifying", CurveKind.VERIFY, step, 1)
        evaluations.add("verifying", CurveKind.CHOOSE, step, 1)
        evaluations.add("besides", CurveKind.PLAIN, step, 1)
    return evaluations.total(trace.prompt_id, taken)


class _EvaluationCounts:
    """How often each point of a curve is evaluated; costs are linear in depth, so the mean depth counts."""

    def __init__(self, curve: CostCurve, n_prompt: int) -> None:
        self._curve, self._n_prompt, self._clamped = curve, n_prompt, False
        self._depths = sorted({point.depth for point in (*curve.verify, *curve.draft, *curve.absorb)})
        self._counts: dict[tuple[str, CurveKind, int, int], tuple[float, float]] = {}

    def add(self, to: str, part: CurveKind, step: TraceStep, tokens: int, *, times: float = 1) -> None:
        before = self._n_prompt + step.at - 1  # the token before it is the first of the batch
        self._clamped |= not self._curve.covers(before)
        depth = self._curve.nearest_depth(before)
        key = to, part, tokens, bisect_right(self._depths, depth)
        often, deep = self._counts.get(key, (0.0, 0.0))
        self._counts[key] = often + step.chance * times, deep + step.chance * times * depth

    def total(self, prompt_id: str, taken: Iterable[TraceStep]) -> Exposure:
        counts = count(taken)
        paid = {to: np.zeros(len(self._curve.points)) for to in ("drafting", "verifying", "besides")}
        for (to, part, tokens, _), (often, deep) in self._counts.items():
            if not often:
                continue
            depth = round(deep / often, 6)  # the mean of equal depths is theirs again
            for index, share in self._curve.weights(part, tokens, depth).items():
                paid[to][index] += often * share
        return Exposure(
            prompt_id=prompt_id,
            counts=counts,
            tokens=counts.n_rounds + counts.n_accepted,
            clamped=self._clamped,
            **paid,
        )
