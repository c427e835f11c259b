"""What other programs may have added is a part of every interval."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from ggufspec import stats
from ggufspec.stats import Rates, StoppingRule
from tests.support.simulated import bench


def _rates(seed: int, *, cores_taken: float = 0.0, repeats: int = 5) -> Rates:
    """An arm of 8 prompts on a machine with two cores, other programs beside all its runs."""
    rates = Rates.of(bench(seed, 8, repeats, within=0.01))
    taken = np.full(rates.table.shape, cores_taken)
    return replace(rates, slowed=stats.expected_slowdown(taken, 2))


def _width(one: Rates, other: Rates) -> float:
    effect = stats.paired_effect(one, other)
    return effect.half_width() or 0.0


def test_intervals_grow_with_other_programs() -> None:
    taken = np.array([0.0, 1.0, 2.0])
    assert stats.expected_slowdown(taken, 2) == pytest.approx([0.0, math.log(2), math.log(10)])
    assert stats.disturbance_error(_rates(1), _rates(2)) == 0
    assert stats.disturbance_error(bench(1, 8, 5), bench(2, 8, 5)) == 0
    quiet, little, much, one_sided = (
        _width(_rates(1, cores_taken=first), _rates(2, cores_taken=second))
        for first, second in ((0, 0), (0.3, 0.3), (1, 1), (1, 0))
    )
    assert quiet < little < much < one_sided
    alone = _rates(2, cores_taken=1)
    for gain, found in ((1.5, True), (1.05, False)):
        arm = _rates(1, cores_taken=1)
        effect = stats.paired_effect(replace(arm, table=gain * arm.table), alone)
        assert (effect.p_value < 0.05) is found
        assert effect.is_disturbed


def test_a_sequence_is_widened_too() -> None:
    rule = StoppingRule(least_repeats=3, most_repeats=5, comparisons=1)
    widths = []
    for taken in (0.0, 1.0):
        effect = stats.fixed_effect(
            _rates(1, cores_taken=taken), _rates(2, cores_taken=taken), tests=rule.tests
        )
        widths.append(effect.ratio.value / effect.ratio.lo)
        assert (effect.p_value < 0.05) is (effect.ratio.lo > 1 or effect.ratio.hi < 1)
    assert widths[1] > 1.2 * widths[0]


def test_disturbance_is_no_noise() -> None:
    units = stats.LogEffect(value=0.0, error=0.1, degrees=4, units=5, disturbance=0.2)
    lo, hi = units.with_units(100_000).interval(0.025, 0.025)
    assert (lo, hi) == pytest.approx((-0.392, 0.392), abs=0.002)
    (test,) = stats.judge_limits([units], math.log(0.98), fail_error=0.005, pass_error=0.01)
    assert test.units is None
    assert not test.is_above
    free, waiting = (stats.unequal_slowdown(1.0, 2, threads) for threads in (1, 2))
    assert 0 < free < waiting < math.log(2)
    assert stats.unequal_slowdown(0.0, 2, 2) == 0
    assert stats.unequal_slowdown(1.0, 8, 4) < free
