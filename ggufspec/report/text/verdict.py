"""What a bench says, in a sentence: which arm is fastest, by how much, and whether its text is unchanged."""

from __future__ import annotations

from collections.abc import Sequence

from ggufspec import units
from ggufspec.analysis import Arm, Doubt, review
from ggufspec.domain import Role
from ggufspec.report.text.figures import spread
from ggufspec.stats import Verdict


def verdicts(groups: Sequence[Arm]) -> tuple[str, ...]:
    """Return one sentence or two for each target alone and what was compared with it."""
    alone = [arm for arm in groups if arm.role is Role.TARGET]
    drafting = [arm for arm in groups if arm.role is Role.DRAFTING and arm.rate is not None]
    if not drafting:
        return ("No drafting run ended well, so there is nothing to judge.",)
    if not any(arm.gain for arm in drafting):
        fastest = max(drafting, key=_speed)
        said = f"{_name(fastest)} is the fastest drafting with {_rate(fastest)}"
        return (f"{said}; the target alone was not measured, so nobody knows whether that is a gain.",)
    compared = [[arm for arm in drafting if arm.baseline is base and arm.gain] for base in alone]
    return tuple(_of(base, arms) for base, arms in zip(alone, compared, strict=True) if arms)


def _of(base: Arm, drafting: Sequence[Arm]) -> str:
    faster = [arm for arm in drafting if arm.gain and arm.gain.verdict is Verdict.FASTER]
    if not faster:
        nearest = max(drafting, key=_gain)
        return (
            f"Nothing is surely faster than {_alone(base)} with {_rate(base)}. "
            f"{_name(nearest)} comes nearest with {_ratio(nearest)}."
        )
    best = max(faster, key=_speed)
    return (
        f"{_name(best)} is fastest: {_rate(best)}, {_ratio(best)} the speed of {_alone(base)}. {_text(best)}"
    )


def _name(arm: Arm) -> str:
    drafting = arm.spec.drafting
    assert drafting is not None
    ends = f" and p-min {units.format_number(drafting.p_min)}" if drafting.p_min else ""
    dice = " and synthetic acceptance" if arm.synthetic else ""
    return f"Drafting with {arm.models[-1]} at γ = {drafting.n_max}{ends}{dice}"


def _alone(base: Arm) -> str:
    return f"{base.models[0]} alone"


def _rate(arm: Arm) -> str:
    return f"{spread(arm.rate, units.format_rate)} tokens/s" if arm.rate else "no speed known"


def _ratio(arm: Arm) -> str:
    return spread(arm.gain.ratio, "{:.2f}×".format) if arm.gain else ""


def _speed(arm: Arm) -> float:
    return arm.rate.value if arm.rate else 0.0


def _gain(arm: Arm) -> float:
    return arm.gain.ratio.value if arm.gain else 0.0


def _text(arm: Arm) -> str:
    compared = arm.compared
    if arm.synthetic:
        return "Its acceptance is synthetic: dice decided it, and its text was not checked."
    if not compared:
        return "Whether its text is the target's own was not compared."
    changed = len(compared) - sum(compared.values())
    prompts = units.counted(len(compared), "prompt")
    if not changed:
        every = "the one prompt" if len(compared) == 1 else f"all {prompts}"
        return f"Its text is the target's own, unchanged on {every}."
    where = f"its text parts from the target's on {changed} of {prompts}"
    if Doubt.TEXT_DIFFERS.value in review.of_arm(arm):
        return f"But {where}, so the comparison is not fair."
    return f"But {where}, at near-ties only, which is normal."
