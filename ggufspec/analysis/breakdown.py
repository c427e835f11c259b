"""Where the time of a round goes, and which change would pay most: from the mean times of a bench, pure.

What a change would gain is a bound: one part of the round becomes free, or as cheap as it can be, and all
else stays as it was measured. No real change reaches it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from ggufspec import notebooks
from ggufspec.analysis import arms
from ggufspec.analysis.arm import Arm
from ggufspec.domain import Program, Role
from ggufspec.results import ResultSet


class Part(StrEnum):
    """What a part of a step's time is spent on."""

    EVALUATION = "evaluation"
    SAMPLING = "sampling"
    DRAFTING = "drafting"
    VERIFICATION = "verification"
    REST = "rest"
    VERIFICATION_AND_REST = "verification and rest"  # where nothing tells them apart


class Improvement(StrEnum):
    """A change of one thing, to the best that is possible."""

    FASTER_DRAFTER = "a drafter that takes no time"
    BETTER_DRAFTER = "a drafter whose tokens are all accepted"
    CHEAPER_VERIFICATION = "verifying a round at the price of one token"
    NO_REST = "no time besides drafting and verification"


@dataclass(frozen=True, kw_only=True)
class Breakdown:
    """The mean time of one step of an arm, in ms: a token of the target alone, or a round with drafts.

    Attributes:
        arm: what was measured.
        tokens: how many a step yields.
        ms: by part, in the order of time.
        is_estimated: whether the drafter's time is taken from its runs alone, as no log has it.
    """

    arm: Arm
    tokens: float
    ms: Mapping[Part, float]
    is_estimated: bool = False

    @property
    def total_ms(self) -> float:
        """The time of a step."""
        return sum(self.ms.values())


@dataclass(frozen=True, kw_only=True)
class Gain:
    """What a change would gain at most: ``factor`` is tokens/s over those of now, ``tps`` tokens/s."""

    change: Improvement
    factor: float
    tps: float


@dataclass(frozen=True, kw_only=True)
class Diagnosis(notebooks.Shown):
    """Why an arm is as fast as it is.

    Attributes:
        target: the target alone; None if it was not measured.
        drafting: the fastest arm that drafts; None if none does, or if its rounds are not known.
        batch: tokens that the target verifies in a mean round, its own included; None without drafting.
        verify_ratio: the time of verification over the target's time for one token; None if one is unknown.
        gains: the largest first.
    """

    target: Breakdown | None
    drafting: Breakdown | None
    batch: float | None = None
    verify_ratio: float | None = None
    gains: tuple[Gain, ...] = ()


@notebooks.named_options
def why(results: ResultSet) -> Diagnosis:
    """Return where the time goes, and what would pay most, as ``ggufspec why`` prints it.

    Args:
        results: a bench.

    Returns:
        The fastest arm that drafts and its target alone, each as milliseconds by part, and the gains.
    """
    return diagnose(arms.group(results))


def diagnose(groups: Sequence[Arm]) -> Diagnosis:
    """Return where the time goes in the fastest drafting arm of a bench, and in its target alone."""
    drafting = [arm for arm in groups if arm.role is Role.DRAFTING and arm.rate is not None]
    fastest = max(drafting, key=lambda arm: arm.speed, default=None)
    targets = (arm for arm in groups if arm.role is Role.TARGET)
    target = _target_token(fastest.baseline if fastest is not None else next(targets, None))
    of_round = None if fastest is None else _round(fastest, groups)
    if fastest is None or of_round is None or fastest.acceptance is None:
        return Diagnosis(target=target, drafting=None)
    drafted = fastest.acceptance.n_drafted / (fastest.acceptance.n_rounds or 1)
    verified = of_round.ms.get(Part.VERIFICATION, of_round.ms.get(Part.VERIFICATION_AND_REST))
    return Diagnosis(
        target=target,
        drafting=of_round,
        batch=1 + drafted,
        verify_ratio=verified / target.total_ms if target is not None and verified else None,
        gains=_gains(of_round, target, drafted),
    )


def _target_token(arm: Arm | None) -> Breakdown | None:
    """Return the mean time of a token of the target alone; plain programs measure sampling separately."""
    if arm is None or not arm.work_rate:
        return None
    total_ms = 1000 / arm.work_rate
    columns = map(arm.good.column, ("sampling_s", "gen_s"))
    timed = [(sampling, evaluating) for sampling, evaluating in zip(*columns, strict=True) if sampling]
    if not timed or len(timed) < len(arm.good):
        return Breakdown(arm=arm, tokens=1.0, ms={Part.EVALUATION: total_ms})
    sampling, evaluating = (sum(column) for column in zip(*timed, strict=True))
    share = sampling / (sampling + evaluating)
    parts = {Part.EVALUATION: (1 - share) * total_ms, Part.SAMPLING: share * total_ms}
    return Breakdown(arm=arm, tokens=1.0, ms=parts)


def _round(arm: Arm, groups: Sequence[Arm]) -> Breakdown | None:
    """Return the mean time of a round; None where the number of rounds is not known."""
    acceptance = arm.acceptance
    if acceptance is None or acceptance.mean_accepted_length is None or not arm.work_rate:
        return None
    tokens = acceptance.mean_accepted_length
    measured = arm.round_ms
    if measured:
        named = {"draft": Part.DRAFTING, "verify": Part.VERIFICATION, "rest": Part.REST}
        ms = {part: measured[f"{name}_ms_per_round"] for name, part in named.items()}
        return Breakdown(arm=arm, tokens=tokens, ms=ms)
    total_ms, draft_ms = 1000 * tokens / arm.work_rate, _draft_ms(arm, groups)
    if draft_ms is None or draft_ms >= total_ms:
        return Breakdown(arm=arm, tokens=tokens, ms={Part.VERIFICATION_AND_REST: total_ms})
    ms = {Part.DRAFTING: draft_ms, Part.VERIFICATION_AND_REST: total_ms - draft_ms}
    return Breakdown(arm=arm, tokens=tokens, ms=ms, is_estimated=True)


def _draft_ms(arm: Arm, groups: Sequence[Arm]) -> float | None:
    """Return the drafter's time per round from its runs alone; None without a drafter or such runs.

    The tree program evaluates the drafter γ + 1 times per round, others once for each drafted token.
    """
    spec, acceptance = arm.spec, arm.acceptance
    if spec.drafter is None or spec.drafting is None or acceptance is None or not acceptance.n_rounds:
        return None
    key = spec.drafter_alone.key
    alone = next((other for other in groups if other.role is Role.DRAFTER and other.spec.key == key), None)
    if alone is None or not alone.work_rate:
        return None
    is_tree = any(output.program is Program.TREE for output in arm.outputs)
    evaluations = spec.drafting.n_max + 1 if is_tree else acceptance.n_drafted / acceptance.n_rounds
    return 1000 * evaluations / alone.work_rate


def _gains(of_round: Breakdown, target: Breakdown | None, drafted: float) -> tuple[Gain, ...]:
    """Return what each change would gain at most, the largest first; those that gain nothing are left out.

    Args:
        of_round: the mean round.
        target: the target alone.
        drafted: tokens per round.
    """
    total_ms, ms, rate = of_round.total_ms, of_round.ms, of_round.arm.rate
    verified = ms.get(Part.VERIFICATION, ms.get(Part.VERIFICATION_AND_REST))
    least_ms = {
        Improvement.FASTER_DRAFTER: total_ms - ms.get(Part.DRAFTING, 0.0),
        Improvement.NO_REST: total_ms - ms.get(Part.REST, 0.0),
        Improvement.BETTER_DRAFTER: total_ms * of_round.tokens / (1 + drafted),
    }
    if target is not None and verified is not None:
        least_ms[Improvement.CHEAPER_VERIFICATION] = total_ms - max(0.0, verified - target.total_ms)
    gains = (
        Gain(change=change, factor=total_ms / left_ms, tps=rate.value * total_ms / left_ms)
        for change, left_ms in least_ms.items()
        if rate is not None and 0 < left_ms < total_ms
    )
    return tuple(sorted(gains, key=lambda gain: -gain.factor))
