"""The rounds of measured runs -> forecasts of other draft sizes; no library traces anything.

What a round costs follows from the times of whole runs: nothing tells the drafter's share from the target's.
What is accepted follows from the rounds. A greedy draft of a draft model is the model's own continuation of
the text, wherever the draft begins. So a token that was accepted would be proposed at its place in a round of
any size, and the token that ended a round would not. This is exact for a draft model with greedy drafts and
p-min 0. It does not hold for heads, which go on from states of their own, nor for n-grams, which learn from
earlier drafts, nor with a p-min, because rounds do not tell how sure a drafter was: those are measured.

Where a whole draft was accepted, the drafter proposed nothing for the next token. The trace has a chance
there, which ``expected`` takes. It is the only place where the order of rounds matters: every other round
ends at a token that the drafter gets wrong, and there a round of any size ends.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from ggufspec.domain import Drafting, Round
from ggufspec.forecast.costs import CostCurve, Point
from ggufspec.forecast.forecasting import Forecast, forecasts
from ggufspec.forecast.trace import DraftTrace, TracedRun
from ggufspec.stats import Z95, Estimate

SIZE_ERROR = 0.05  # standard error of a size's time: 3 % between loads, and the straight line between sizes
_LEAST = 0.5  # of a round without a draft: each evaluates the target, so that less is noise
_SURE = 1000.0  # the weight of a time that is given


@dataclass(frozen=True, kw_only=True)
class RoundsRun:
    """The rounds of one run of a draft model with greedy drafts.

    Attributes:
        prompt_id: of the run's prompt; runs of one prompt have different ones.
        rounds: in their order.
        seconds: of all of them.
        category: of the prompt.
        n_prompt: its tokens.
        ended: whether the text ended by itself.
        size: γ as asked for, which a p-min need not reach; 0 where it does not matter.
    """

    prompt_id: str
    rounds: tuple[Round, ...]
    seconds: float = 0.0
    category: str | None = None
    n_prompt: int = 1
    ended: bool = False
    size: int = 0

    @property
    def n_max(self) -> int:
        """The longest draft."""
        return max(drafted for drafted, _ in self.rounds)

    def trace(self, chance: float) -> DraftTrace:
        """Return the trace of the run's text; its overlaps are 1 or 0, or a chance behind whole drafts.

        Args:
            chance: that the drafter has the token right that follows a draft which was accepted as a whole.
        """
        overlap = [0.0]  # the prompt's evaluation gives the first token, which no round drafts
        for drafted, accepted in self.rounds:
            overlap += [*[1.0] * accepted, chance if accepted == drafted else 0.0]
        return DraftTrace(
            prompt_id=self.prompt_id,
            category=self.category,
            tokens=(0,) * len(overlap),  # which ones does not matter to a walk
            match=tuple(value == 1.0 for value in overlap),
            confidence=(0.0,) * len(overlap),
            overlap=tuple(overlap),
            n_prompt=self.n_prompt,
            ended=self.ended,
        )


def chance_behind(rounds: Sequence[Round]) -> float:
    """Return the chance that the token behind a draft which was accepted as a whole is right, too.

    The later halves of drafts tell it: what is accepted there follows many accepted tokens. One is added to
    either count (Laplace's rule of succession), so that few rounds do not make the chance 0 or 1.
    """
    accepted = sum(max(0, count - drafted // 2) for drafted, count in rounds)
    judged = sum(max(0, min(count + 1, drafted) - drafted // 2) for drafted, count in rounds)
    return (accepted + 1) / (judged + 2)


def from_counts(accepted_at: Sequence[int], n_rounds: int) -> tuple[Round, ...]:
    """Return rounds with these counts, in a random order, the same one each time.

    Args:
        accepted_at: how often a draft's first, second, … token was accepted; as many as the draft size.
        n_rounds: how many there were.
    """
    reached = (n_rounds, *accepted_at, 0)  # how often at least 0, 1, 2, … tokens were accepted
    rounds = [
        Round(len(accepted_at), accepted)
        for accepted, (here, further) in enumerate(pairwise(reached))
        for _ in range(here - further)
    ]
    random.Random(0).shuffle(rounds)  # noqa: S311  # not for secrets
    return tuple(rounds)


def time_rounds(
    runs: Sequence[RoundsRun], token_s: float | None = None, *, resizes: bool = False
) -> CostCurve:
    """Return what a whole round takes by the tokens that it drafts; the curve's ``verify`` has all of it.

    The times lie on straight lines between the draft sizes of the runs, and are those with which the runs
    come closest, by ratio, to the time that they took (least squares). The last rounds of a run draft less
    than the others.

    Args:
        runs: of several draft sizes.
        token_s: of a token of the target alone, which a round without a draft takes, too; None where runs
            show such rounds.
        resizes: whether rounds of another size than the one before take longer, all by the same time. Runs of
            each size must show some that do not.
    """
    sizes = sorted({0, *(run.n_max for run in runs)})
    rows = [] if token_s is None else [np.append(np.eye(len(sizes))[0], 0.0) / token_s * _SURE]
    for run in runs:
        drafted = [entry.drafted for entry in run.rounds]
        paid = [np.interp(drafted, sizes, hat).sum() for hat in np.eye(len(sizes))]
        resized = 1 + sum(size != before for before, size in pairwise(drafted)) if resizes else 0
        rows.append(np.array([*paid, resized]) / run.seconds)
    aims = np.array([*([] if token_s is None else [_SURE]), *[1.0] * len(runs)])
    *solved, resize_s = np.linalg.lstsq(np.array(rows), aims, rcond=None)[0].tolist()
    if resize_s < 0:  # noise: each size would take longer by as much, since nothing takes less than no time
        return time_rounds(runs, token_s)
    least_s = _LEAST * solved[0]
    return CostCurve(
        verify=tuple(
            Point(tokens=size + 1, depth=0, seconds=Estimate.around(time, Z95 * SIZE_ERROR * time))
            for size, time in zip(sizes, (max(time, least_s) for time in solved), strict=True)
        ),
        resize_s=Estimate.around(max(0.0, resize_s)),
    )


def replays(
    runs: Sequence[RoundsRun], curve: CostCurve, draftings: Sequence[Drafting], *, build: int | None = None
) -> Iterator[Forecast]:
    """Yield the forecast of each draft size: over all runs, then by category where there are several.

    Intervals include two extremes: after each whole draft, the drafter has the next token right, or wrong.

    Args:
        runs: of one draft size, each with rounds.
        curve: from ``time_rounds``.
        draftings: of sizes up to that of the runs.
        build: llama.cpp's build number; None for today's.
    """
    rounds = [entry for run in runs for entry in run.rounds]

    def with_chance(chance: float) -> Iterator[Forecast]:
        traces = [run.trace(chance) for run in runs]
        # traces that ended allow any number of tokens
        lengths = [len(trace.tokens) for trace in traces if not trace.ended]
        n_predict = min(lengths, default=max(len(trace.tokens) for trace in traces))
        smaller = [
            TracedRun(drafting=drafting, n_predict=n_predict, build=build, samples_exactly=True)
            for drafting in draftings
        ]
        return forecasts(traces, curve, smaller)

    for likely, *ends in zip(*map(with_chance, (chance_behind(rounds), 0.0, 1.0)), strict=True):
        yield replace(
            likely,
            tokens_per_s=_including(likely.tokens_per_s, [end.tokens_per_s.value for end in ends]),
            speedup=_including(likely.speedup, [end.speedup.value for end in ends]),
            closed_form_speedup=None,
            draft_share=None,
            verify_share=None,
            rest_share=None,
        )


def _including(estimate: Estimate, ends: Sequence[float]) -> Estimate:
    """Return an estimate whose interval is as far beyond both ends as it was beyond its value."""
    if estimate.lo is None or estimate.hi is None:
        return estimate
    lowest, highest = (pick((estimate.value, *ends)) for pick in (min, max))
    return replace(
        estimate, lo=estimate.lo * lowest / estimate.value, hi=estimate.hi * highest / estimate.value
    )
