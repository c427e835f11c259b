from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest

from ggufspec import stats
from ggufspec.stats import Procedure, SpeedVerdict
from tests.support.simulated import Rates, bench, flat, grid


def _pair(ratios: Sequence[float]) -> tuple[Rates, Rates]:
    a = {(f"p{index}", 0): 50.0 * ratio for index, ratio in enumerate(ratios)}
    return a, flat(a)


@pytest.mark.parametrize(
    ("signs", "p_value"),
    [
        ((1, 1, 1, 1, 1, 1), 2 / 64),
        ((1, 1, 1, 1, 1, -1), 2 * (1 + 6) / 64),  # five or six of one sign
        ((1, 1, 1, -1, -1, -1), 1.0),
        ((-1,) * 8, 2 / 256),
        ((0,) * 6, 1.0),
    ],
)
def test_sign_flips_are_counted(signs: tuple[int, ...], p_value: float) -> None:
    found = stats.significance(*_pair([1.1**sign for sign in signs]))
    assert found is not None
    assert found.p_value == pytest.approx(p_value)
    assert (found.procedure, found.units) == (Procedure.SIGN_FLIP, len(signs))


def test_many_units_are_flipped_at_random_and_repeatably() -> None:
    random = np.random.default_rng(5)
    a, b = _pair(np.exp(random.normal(0.01, 0.02, 40)).tolist())
    first, second = stats.significance(a, b), stats.significance(a, b)
    assert first == second
    assert first is not None
    logs = np.log([a[cell] / b[cell] for cell in a])
    t = logs.mean() / (logs.std(ddof=1) / math.sqrt(40))
    assert first.p_value == pytest.approx(math.erfc(abs(t) / math.sqrt(2)), rel=0.25)  # nearly normal
    assert stats.significance(*_pair([1.5] * 40)).p_value == pytest.approx(1 / 10_000)  # type: ignore[union-attr]


@pytest.mark.parametrize(("units", "quantile"), [(2, 12.706), (3, 4.303), (4, 3.182), (5, 2.776)])
def test_few_units_are_tested_by_students_t(units: int, quantile: float) -> None:
    noise = np.linspace(-0.01, 0.01, units)
    error = noise.std(ddof=1) / math.sqrt(units)
    found = stats.significance(*_pair(np.exp(noise + quantile * error).tolist()))
    assert found is not None
    assert found.procedure is Procedure.STUDENT_T
    assert found.p_value == pytest.approx(0.05, abs=5e-5)


def test_a_single_prompts_units_are_its_repeats() -> None:
    a = grid(np.array([[0.11, 0.10, 0.12, 0.09, 0.10, 0.13, 0.08]]))
    found = stats.significance(a, flat(a))
    assert found is not None
    assert (found.units, found.p_value) == (7, 2 / 128)


@pytest.mark.parametrize(
    ("ratios", "threshold", "verdict"),
    [
        ((1.05, 1.06, 1.07, 1.05, 1.06, 1.08), 0.01, SpeedVerdict.FASTER),
        ((0.95, 0.94, 0.93, 0.95, 0.94, 0.92), 0.01, SpeedVerdict.SLOWER),
        ((1.001, 1.002, 0.999, 1.001, 1.0, 0.998), 0.01, SpeedVerdict.SAME),
        (
            (1.004, 1.005, 1.006, 1.004, 1.005, 1.006),
            0.01,
            SpeedVerdict.SAME,
        ),  # significant, but below what matters
        ((1.05, 1.06, 1.07, 1.05, 1.06, 1.08), 0.10, SpeedVerdict.SAME),
        ((1.2, 0.9, 1.1, 0.85, 1.3, 0.9), 0.01, SpeedVerdict.UNCLEAR),
        (
            (1.001, 1.02, 1.002, 1.018, 1.001, 1.015),
            0.01,
            SpeedVerdict.UNCLEAR,
        ),  # significant, may matter or not
        ((1.5, 1.4), 0.01, SpeedVerdict.UNCLEAR),
        ((1.5,), 0.01, SpeedVerdict.UNCLEAR),
    ],
)
def test_verdicts(ratios: tuple[float, ...], threshold: float, verdict: SpeedVerdict) -> None:
    a, b = _pair(ratios)
    found = stats.significance(a, b, threshold=threshold)
    mirrored = stats.significance(b, a, threshold=threshold)
    assert found is not None
    assert mirrored is not None
    assert found.verdict is verdict
    opposite = {SpeedVerdict.FASTER: SpeedVerdict.SLOWER, SpeedVerdict.SLOWER: SpeedVerdict.FASTER}
    assert mirrored.verdict is opposite.get(verdict, verdict)
    assert mirrored.p_value == found.p_value


def test_aa_comparisons_stay_quiet() -> None:
    found = [stats.significance(bench(seed, 8, 3), bench(5000 + seed, 8, 3)) for seed in range(300)]
    assert sum(each is not None and each.p_value < 0.05 for each in found) <= 0.08 * 300
