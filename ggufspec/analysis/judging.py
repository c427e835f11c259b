"""The one place that says whether drafting is faster, slower or the same, or that this is undecided, pure.

Every command, table and page that prints a verdict takes it from here. ``stats`` gives the estimate and its
interval; what counts as a finding, what is missing where there is none, and what is safe to run is decided
below.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from ggufspec import stats
from ggufspec.domain import Estimate, Missing, SpeedJudgement, SpeedVerdict

T = TypeVar("T")

THRESHOLD = 0.01
"""The smallest change of speed that matters, as a fraction."""

MOST_DISTURBED = 0.2
"""Share of runs above which nothing is found, if it is not known what a disturbance did to them.

Then there is no interval either: it would be that of the disturbed runs, and say nothing of others.
"""

WIDEST_RATIO = 5.0
"""Upper over lower end of an interval above which it is not shown, and nothing is found from it.

With three pairs of runs, a spread of 5 % gives 1.3, and one of 20 %, which only a busy machine has, 2.7. A
factor of 5 comes from two or three runs that contradict each other: "1.23× [0.05×, 30.26×]" says
only that runs are missing.
"""

_LEAST_PAIRS = 3  # of runs of both arms: two have one degree of freedom, and agree by luck now and then
_MOST_NEEDED = 200  # repeats: a command that takes days is no advice
_SLACK = 0.9  # of the distance to what must be excluded: at 1, every other bench would not decide
_LEAST_WIDTH = 0.003  # of the interval's half: what no machine repeats better than


def judge_ratio(ratio: Estimate | None, *, threshold: float = THRESHOLD) -> SpeedVerdict:
    """Return what a ratio of speeds and its interval say.

    FASTER and SLOWER need both: an interval that excludes 1, and a ratio above ``1 + threshold`` or below its
    reciprocal. SAME needs an interval within these limits. An interval that assumes how much loads differ
    gives an ESTIMATE, whatever it contains.

    Args:
        ratio: tokens/s over those of the baseline.
        threshold: the smallest change that matters in practice, 0.01 for 1 %.
    """
    if ratio is None or ratio.lo is None or ratio.hi is None or not is_meaningful(ratio):
        return SpeedVerdict.UNDECIDED
    if ratio.assumed_spread is not None:
        return SpeedVerdict.ESTIMATE
    if ratio.lo > 1 and ratio.value > 1 + threshold:
        return SpeedVerdict.FASTER
    if ratio.hi < 1 and ratio.value < 1 / (1 + threshold):
        return SpeedVerdict.SLOWER
    within = 1 / (1 + threshold) <= ratio.lo and ratio.hi <= 1 + threshold
    return SpeedVerdict.SAME if within else SpeedVerdict.UNDECIDED


def is_meaningful(estimate: Estimate) -> bool:
    """Whether an estimate has an interval that says something; one over orders of magnitude does not."""
    if estimate.lo is None or estimate.hi is None:
        return False
    return estimate.lo > 0 and estimate.hi <= WIDEST_RATIO * estimate.lo


def judge_effect(
    effect: stats.Effect | None,
    *,
    prompts: int,
    repeats: int,
    runs_done: int = 0,
    runs_planned: int | None = None,
    text_differs: bool = False,
    family: int = 1,
    threshold: float = THRESHOLD,
    repeats_load: bool = True,
) -> SpeedJudgement:
    """Judge a comparison of two arms.

    Args:
        effect: of the arm over its baseline; None where no cell was measured on both sides.
        prompts: how many were compared.
        repeats: the most of a prompt.
        runs_done: runs of the whole bench.
        runs_planned: what its plan counts; None where that is not known.
        text_differs: whether the arm wrote another text than the target, which no near-tie explains.
        family: how many arms the interval of the effect accounts for.
        threshold: the smallest change that matters, 0.01 for 1 %.
        repeats_load: whether more repeats are more loads; few servers that run already stay loaded.
    """
    verdict, missing = _find(effect, threshold, repeats_load=repeats_load)
    more = _needed(effect, repeats, missing, threshold)
    ratio = None if effect is None else effect.ratio
    shows_interval = ratio is not None and is_meaningful(ratio)
    if ratio is not None and not shows_interval:
        ratio = Estimate.around(ratio.value)
    return SpeedJudgement(
        verdict=verdict,
        ratio=ratio,
        p_value=effect.p_value if effect is not None and shows_interval else None,
        prompts=prompts,
        repeats=repeats,
        loads=0 if effect is None else effect.components.loads,
        degrees=effect.degrees if effect is not None and shows_interval else None,
        family=family,
        runs_done=runs_done,
        runs_planned=runs_planned,
        missing=missing,
        needed_repeats=more.repeats,
        needed_prompts=more.prompts,
        text_differs=text_differs,
    )


def _find(
    effect: stats.Effect | None, threshold: float, *, repeats_load: bool
) -> tuple[SpeedVerdict, tuple[Missing, ...]]:
    """Return the verdict, and what is missing where there is none."""
    if effect is not None and effect.gap is stats.Gap.UNLIKE_FAILURES:
        return SpeedVerdict.UNDECIDED, (Missing.FAILURES,)
    if effect is not None and effect.gap is stats.Gap.DISTURBED:
        return SpeedVerdict.UNDECIDED, (Missing.QUIET,)
    if effect is not None and effect.gap is stats.Gap.NOT_INTERLEAVED:
        return judge_ratio(effect.ratio, threshold=threshold), (Missing.LOADS,)
    if effect is None or effect.cells < _LEAST_PAIRS:
        return SpeedVerdict.UNDECIDED, (Missing.RUNS if repeats_load else Missing.LOADS,)
    verdict = judge_ratio(effect.ratio, threshold=threshold)
    if verdict is not SpeedVerdict.UNDECIDED:
        return verdict, ()
    return verdict, (Missing.QUIET if effect.is_disturbed else Missing.RUNS,)


_NOTHING = stats.Needed(repeats=None, prompts=None)


def _needed(
    effect: stats.Effect | None, repeats: int, missing: tuple[Missing, ...], threshold: float
) -> stats.Needed:
    """Return how many repeats or prompts would probably give a verdict; nothing where there is one."""
    if not missing:
        return _NOTHING
    if Missing.QUIET in missing:
        return stats.Needed(repeats=max(repeats, stats.MIN_LOADS), prompts=None)
    if Missing.FAILURES in missing:
        return _NOTHING  # more repeats would fail as these did
    if effect is None or effect.error is None:
        return stats.Needed(repeats=max(stats.MIN_LOADS, repeats + 1), prompts=None)
    distance = abs(math.log(effect.ratio.value))
    limit = math.log1p(threshold)
    wanted = max(_SLACK * (distance if distance > limit else limit - distance), _LEAST_WIDTH)
    more = stats.needed_for(effect, repeats, precision=math.sinh(wanted))
    if more.repeats is not None:
        enough = max(more.repeats, stats.MIN_LOADS, repeats + 1)
        return stats.Needed(repeats=enough, prompts=None) if enough <= _MOST_NEEDED else _NOTHING
    return more if (more.prompts or 0) <= _MOST_NEEDED else _NOTHING


@dataclass(frozen=True, kw_only=True)
class Ranking(Generic[T]):
    """What judged arms say together.

    Attributes:
        verdict: FASTER where ``best`` may be recommended. SLOWER or SAME where every arm that drafts is
            decided and none is faster: only then it may be said not to draft. Otherwise that of ``best``,
            which is no finding: the target alone is what is safe meanwhile.
        best: the arm that this is about: the fastest that pays, the most promising undecided one, or the one
            that comes closest; None where no arm wrote the target's own text.
        judgement: of that arm.
    """

    verdict: SpeedVerdict
    best: T | None
    judgement: SpeedJudgement | None

    @property
    def drafts(self) -> bool:
        """Whether to draft."""
        return self.verdict is SpeedVerdict.FASTER


def rank(judged: Sequence[tuple[T, SpeedJudgement]]) -> Ranking[T]:
    """Rank arms that draft, each judged against the target alone.

    What is said of the best arm accounts for the choice among all (``judge_family``).

    Args:
        judged: the arms, the preferred one of equals first. Those whose text differs are left out.
    """
    fair = judge_family([(arm, judgement) for arm, judgement in judged if not judgement.text_differs])
    if not fair:
        return Ranking(verdict=SpeedVerdict.UNDECIDED, best=None, judgement=None)
    paying = [pair for pair in fair if pair[1].pays]
    undecided = [pair for pair in fair if not pair[1].is_decided]
    arm, judgement = max(paying or undecided or fair, key=lambda pair: pair[1].factor)
    return Ranking(verdict=judgement.verdict, best=arm, judgement=judgement)


def judge_family(judged: Sequence[tuple[T, SpeedJudgement]]) -> list[tuple[T, SpeedJudgement]]:
    """Judge arms with one baseline once more, so that all their intervals hold together.

    A ratio is drawn towards the mean of all, as far as chance explains how they differ. Its interval contains
    the one that the arm has by itself: nothing is found of an arm that its own row does not say.

    Args:
        judged: each arm by itself, or as one of as many in a sequence of looks.
    """
    alone = [
        (index, comparison)
        for index, (_, judgement) in enumerate(judged)
        if judgement.family < len(judged) and (comparison := _comparison(judgement)) is not None
    ]
    together = list(judged)
    for (index, _), adjusted in zip(alone, stats.adjust([single for _, single in alone]), strict=True):
        arm, judgement = judged[index]
        together[index] = arm, _adjusted(judgement, adjusted, len(alone))
    return together


def _comparison(judgement: SpeedJudgement) -> stats.Comparison | None:
    """Return the log ratio of a judgement with its standard error; None where it has no interval."""
    ratio, degrees = judgement.ratio, judgement.degrees
    if ratio is None or degrees is None or not ratio.lo or not ratio.hi:
        return None
    # never 0: equal runs have no interval, see ``stats.is_constant``
    error = math.log(ratio.hi / ratio.lo) / 2 / stats.quantile(degrees)
    return stats.Comparison(value=math.log(ratio.value), error=error, degrees=degrees)


def _adjusted(judgement: SpeedJudgement, adjusted: stats.Adjusted, family: int) -> SpeedJudgement:
    """Return what is left of a judgement in a family of arms."""
    alone = judgement.ratio
    assert alone is not None
    assert alone.lo is not None
    assert alone.hi is not None
    lo, hi = min(alone.lo, math.exp(adjusted.lo)), max(alone.hi, math.exp(adjusted.hi))
    ratio = Estimate(value=min(max(math.exp(adjusted.value), lo), hi), lo=lo, hi=hi)
    changed = replace(
        judgement,
        ratio=ratio,
        p_value=None if judgement.p_value is None else max(judgement.p_value, adjusted.p_value),
        family=family,
    )
    if not judgement.is_decided:
        return changed
    verdict = judge_ratio(ratio)
    if verdict is not SpeedVerdict.UNDECIDED:
        return replace(changed, verdict=verdict)
    wanted = max(_SLACK * abs(math.log(ratio.value)), _LEAST_WIDTH)
    needed = math.ceil(judgement.repeats * (math.log(hi / lo) / 2 / wanted) ** 2)
    return replace(
        changed,
        verdict=verdict,
        missing=(Missing.RUNS,),
        needed_repeats=max(needed, judgement.repeats + 1) if needed <= _MOST_NEEDED else None,
    )
