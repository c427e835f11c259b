"""How many more runs would a wished precision of the speed-ups need?"""

from __future__ import annotations

from collections.abc import Iterable

from ggufspec import stats
from ggufspec.analysis.arms import Arm
from ggufspec.domain import RunSpec


def wanting(groups: Iterable[Arm], precision: float) -> dict[RunSpec, stats.Needed]:
    """Return what each drafting arm needs whose speed-up is less precise than wished.

    Args:
        groups: all arms of a bench, their baselines among them.
        precision: half of the interval's width over the speed-up, for example 0.02.
    """
    arms = {arm.spec: arm for arm in groups}
    return {
        spec: stats.needed(arm.rates, arms[spec.baseline].rates, precision=precision)
        for spec, arm in arms.items()
        if spec.drafting is not None and spec.baseline in arms and not _reached(arm, precision)
    }


def improvable(groups: Iterable[Arm], block: Iterable[RunSpec], precision: float) -> bool:
    """Whether further repeats of a block's arms would bring a speed-up of it to the wished precision."""
    improvable_keys = {
        spec.key for spec, needed in wanting(groups, precision).items() if needed.repeats is not None
    }
    return any(spec.key in improvable_keys for spec in block)


def _reached(arm: Arm, precision: float) -> bool:
    width = arm.gain.ratio.relative_half_width if arm.gain else None
    return width is not None and width <= precision
