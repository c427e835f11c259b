"""The verdict of a bench: which arm is fastest, by how much, and whether its text is unchanged."""

from __future__ import annotations

from collections.abc import Sequence

from ggufspec import units
from ggufspec.analysis import Arm, MeasurementWarning, review
from ggufspec.domain import Role
from ggufspec.report.text.figures import spread
from ggufspec.stats import SpeedVerdict


def verdicts(groups: Sequence[Arm]) -> tuple[str, ...]:
    """Return one or two sentences for each target alone and the arms that are compared with it."""
    alone = [arm for arm in groups if arm.role is Role.TARGET]
    drafting = [arm for arm in groups if arm.role is Role.DRAFTING and arm.rate is not None]
    if not drafting and all(arm.spec.servers is not None and arm.role is Role.TARGET for arm in groups):
        return ("One server was measured, so there is no speed-up.",)
    if not drafting:
        return ("No drafting run succeeded, so there is no verdict.",)
    if not any(arm.gain for arm in drafting):
        fastest = max(drafting, key=_speed)
        unknown = "The target alone was not measured, so the speed-up is not known."
        return (f"{_name(fastest)} is the fastest arm: {_rate(fastest)}. {unknown}",)
    compared = [[arm for arm in drafting if arm.baseline is base and arm.gain] for base in alone]
    return tuple(_compare(base, arms) for base, arms in zip(alone, compared, strict=True) if arms)


def _compare(base: Arm, drafting: Sequence[Arm]) -> str:
    faster = [arm for arm in drafting if arm.gain and arm.gain.verdict is SpeedVerdict.FASTER]
    traffic = base.spec.traffic
    depth = f", depth {traffic.depth:,}" if traffic and traffic.depth else ""
    depth += f", {units.format_number(traffic.rate)} requests/s" if traffic and traffic.rate else ""
    users = f"{units.counted(traffic.users, 'user')}{depth}: " if traffic else ""
    build = users + (f"{base.spec.build}: " if base.spec.build else "")
    if not faster:
        nearest = max(drafting, key=_gain)
        return (
            f"{build}No arm is significantly faster than {_alone(base)}: {_rate(base)}. "
            f"{_name(nearest)} comes closest: {_ratio(nearest)}."
        )
    best = max(faster, key=_speed)
    speed = f"{_rate(best)}, {_ratio(best)} the speed of {_alone(base)}"
    return f"{build}{_name(best)} is fastest: {speed}. {_text(best)}"


def _name(arm: Arm) -> str:
    drafting, endpoint = arm.spec.drafting, arm.spec.endpoint
    if endpoint is not None:
        return f"Drafting at {endpoint.url}"
    assert drafting is not None
    ends = f" and p-min {units.format_number(drafting.p_min)}" if drafting.p_min else ""
    synthetic = " and synthetic acceptance" if arm.synthetic else ""
    return f"Drafting with {arm.drafts_with} at γ = {drafting.n_max}{ends}{synthetic}"


def _alone(base: Arm) -> str:
    return f"{base.models[0]} alone"


def _rate(arm: Arm) -> str:
    return f"{spread(arm.rate, units.format_rate)} tokens/s" if arm.rate else "unknown speed"


def _ratio(arm: Arm) -> str:
    return spread(arm.gain.ratio, units.format_factor) if arm.gain else ""


def _speed(arm: Arm) -> float:
    return arm.rate.value if arm.rate else 0.0


def _gain(arm: Arm) -> float:
    return arm.gain.ratio.value if arm.gain else 0.0


def _text(arm: Arm) -> str:
    compared = arm.compared
    if arm.synthetic:
        return "Its acceptance is synthetic (simulated at random), and its text was not checked."
    if not compared:
        return "Its text was not compared with the target's."
    changed = len(compared) - sum(compared.values())
    is_fair = MeasurementWarning.TEXT_DIFFERS.value not in review.of_arm(arm)
    if arm.spec.servers is not None and changed:
        return "But some answers differ from the target's, and whether near-ties explain that is not known."
    if arm.traffic is not None and changed:
        return (
            "But some answers differ from the target's, "
            f"{'at near-ties only, which is normal.' if is_fair else 'so the comparison is not fair.'}"
        )
    if arm.traffic is not None:
        return "Its answers equal the target's."
    prompts = units.counted(len(compared), "prompt")
    if not changed:
        every = "the one prompt" if len(compared) == 1 else f"all {prompts}"
        return f"Its text equals the target's on {every}."
    where = f"its text differs from the target's on {changed} of {prompts}"
    if not is_fair:
        return f"But {where}, so the comparison is not fair."
    return f"But {where}, at near-ties only, which is normal."
