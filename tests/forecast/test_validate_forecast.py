"""The errors of forecasts without the noise of the bench that they are compared with."""

from __future__ import annotations

import math

import numpy as np
import pytest
import validate_forecast

from ggufspec import stats

PROMPTS, REPEATS = ("a", "b", "c"), 4


def _rates(random: np.random.Generator, true: float, load_sd: float) -> stats.Rates:
    """Return the rates of a bench whose loads differ; prompts differ much, and always in the same way."""
    factors = np.exp(random.normal(0, load_sd, REPEATS))
    return stats.Rates.of(
        {
            (prompt, repeat): true * (1 + row) * factors[repeat]
            for row, prompt in enumerate(PROMPTS)
            for repeat in range(REPEATS)
        }
    )


def test_noise_is_the_variance_of_the_mean_over_loads_and_prompts_add_nothing() -> None:
    random = np.random.default_rng(1)
    found = [validate_forecast.noise(_rates(random, 10.0, 0.04)) for _ in range(400)]
    assert np.mean(found) == pytest.approx(0.04**2 / REPEATS, rel=0.1)
    both = [
        validate_forecast.noise(_rates(random, 10.0, 0.04), _rates(random, 5.0, 0.03)) for _ in range(400)
    ]
    assert np.mean(both) == pytest.approx((0.04**2 + 0.03**2) / REPEATS, rel=0.1)
    assert validate_forecast.noise(_rates(random, 10.0, 0.0)) == pytest.approx(0.0)


def test_a_forecast_of_the_truth_has_hardly_an_error_left_and_a_wrong_one_keeps_its_own() -> None:
    random = np.random.default_rng(2)
    left: dict[float, list[float]] = {0.0: [], 0.08: []}
    for _ in range(400):
        rates = _rates(random, 10.0, 0.04)
        means = [math.log(rates[cell] / (1 + PROMPTS.index(cell[0]))) for cell in rates]
        for error, errors in left.items():
            raw = math.log(10.0) + error - float(np.mean(means))
            errors.append(validate_forecast.without_noise(raw, validate_forecast.noise(rates)))
    assert validate_forecast.percentiles(left[0.0])[0] < 0.01
    assert validate_forecast.percentiles(left[0.08])[0] == pytest.approx(0.08, rel=0.1)
