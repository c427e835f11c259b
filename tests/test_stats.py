from __future__ import annotations

import math

import numpy as np
import pytest

from ggufspec import stats


def test_mean_rate_is_geometric_over_prompts() -> None:
    estimate = stats.mean_rate({("a", 0): 10.0, ("b", 0): 40.0})
    assert estimate is not None
    assert estimate.value == pytest.approx(20.0)
    assert (estimate.lo, estimate.hi) == (None, None)


def test_interval_is_students_over_repeats() -> None:
    rates = {("a", repeat): value for repeat, value in enumerate((9.0, 10.0, 11.0))}
    estimate = stats.mean_rate(rates)
    logs = np.log([9.0, 10.0, 11.0])
    half = 4.303 * logs.std(ddof=1) / math.sqrt(3)
    assert estimate is not None
    assert estimate.lo == pytest.approx(math.exp(logs.mean() - half))
    assert estimate.hi == pytest.approx(math.exp(logs.mean() + half))


def test_speedup_equals_ratio_of_means_when_complete() -> None:
    rng = np.random.default_rng(1)
    cells = [(prompt, repeat) for prompt in "abc" for repeat in range(4)]
    fast = dict(zip(cells, rng.uniform(50, 90, len(cells)), strict=True))
    slow = dict(zip(cells, rng.uniform(20, 40, len(cells)), strict=True))
    gain, above, below = stats.speedup(fast, slow), stats.mean_rate(fast), stats.mean_rate(slow)
    assert gain is not None
    assert above is not None
    assert below is not None
    assert gain.value == pytest.approx(above.value / below.value)


def test_speedup_uses_only_what_was_measured_on_both_sides() -> None:
    gain = stats.speedup({("a", 0): 30.0, ("b", 0): 99.0}, {("a", 0): 10.0})
    assert gain is not None
    assert gain.value == pytest.approx(3.0)


def test_incomplete_repeats_do_not_shift_the_mean() -> None:
    rates = {("easy", 0): 100.0, ("hard", 0): 10.0, ("easy", 1): 100.0}
    estimate = stats.mean_rate(rates)
    assert estimate is not None
    assert estimate.value == pytest.approx(math.sqrt(1000.0))


def test_no_complete_repeat_still_has_a_mean() -> None:
    estimate = stats.mean_rate({("easy", 0): 100.0, ("hard", 1): 10.0})
    assert estimate is not None
    assert estimate.value == pytest.approx(math.sqrt(1000.0))
    assert estimate.lo is None


def test_nothing_measured_is_none() -> None:
    assert stats.mean_rate({}) is None
    assert stats.speedup({("a", 0): 1.0}, {("b", 0): 1.0}) is None


@pytest.mark.parametrize("repeats", [3, 5, 40])
def test_interval_covers_the_truth(repeats: int) -> None:
    """95 % intervals hold the true mean in 93 to 97 % of 2,000 simulated benches."""
    rng = np.random.default_rng(repeats)
    hits = 0
    for _ in range(2000):
        noise = np.exp(rng.normal(0, 0.03, repeats))
        estimate = stats.mean_rate({("p", i): 50.0 * x for i, x in enumerate(noise)})
        assert estimate is not None
        assert estimate.lo is not None
        assert estimate.hi is not None
        hits += estimate.lo <= 50.0 <= estimate.hi
    assert 0.93 <= hits / 2000 <= 0.97
