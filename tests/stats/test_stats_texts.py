"""Bounds on divergent tokens, and the test of sampled tokens: against the binomial, and by simulation."""

from __future__ import annotations

import numpy as np
import pytest
import scipy

from ggufspec import stats
from ggufspec.domain import Sampling
from ggufspec.stats import sampling

VOCABULARY = 50
HOT, COLD = (Sampling(temperature=heat, top_k=0, top_p=0.9) for heat in (1.0, 0.8))


@pytest.mark.parametrize(("found", "tokens"), [(0, 1), (0, 12_000), (1, 12_000), (7, 300), (299, 300)])
def test_a_bound_is_where_so_few_would_be_found_once_in_twenty(found: int, tokens: int) -> None:
    share = stats.highest_share(found, tokens)
    assert scipy.stats.binom.cdf(found, tokens, share) == pytest.approx(0.05)


def test_the_bound_without_any_is_the_rule_of_three() -> None:
    assert stats.highest_share(0, 12_000) == pytest.approx(3 / 12_000, rel=0.005)
    assert stats.highest_share(5, 5) == 1.0


def test_a_token_lies_behind_the_likelier_ones() -> None:
    probabilities = np.array([0.2, 0.5, 0.2, 0.0, 0.1])
    assert [stats.place_token(probabilities, token, 0.5) for token in range(5)] == [
        pytest.approx(0.6),
        pytest.approx(0.25),
        pytest.approx(0.8),
        None,
        pytest.approx(0.95),
    ]


def test_places_are_counted_from_0_to_1() -> None:
    assert stats.count_places([0.0, 0.05, 0.1, 0.999, 1.0]) == (2, 1, 0, 0, 0, 0, 0, 0, 0, 2)
    assert stats.count_places([]) == (0,) * 10
    assert stats.uniform_p_value((4,) * 9 + (5,)) is None  # too few
    assert stats.uniform_p_value((100,) * 10) == 1.0


def _p_value(generator: np.random.Generator, tokens: int, drawn: Sampling, judged: Sampling) -> float:
    """Draw tokens from distributions as uneven as a model's, and test them against the judged sampler."""
    places = []
    for _ in range(tokens):
        logits = generator.normal(size=VOCABULARY) * generator.uniform(0.5, 6)
        token = int(generator.choice(VOCABULARY, p=sampling.distribution(logits, drawn)))
        place = stats.place_token(sampling.distribution(logits, judged), token, generator.random())
        places += [] if place is None else [place]
    p_value = stats.uniform_p_value(stats.count_places(places))
    assert p_value is not None
    return p_value


def test_texts_of_another_temperature_are_found() -> None:
    generator = np.random.default_rng(16)
    p_values = np.array([_p_value(generator, 80, HOT, HOT) for _ in range(300)])
    for level in (0.05, 0.2, 0.5):  # within four standard errors
        assert (p_values < level).mean() == pytest.approx(level, abs=4 * (level * (1 - level) / 300) ** 0.5)
    assert _p_value(np.random.default_rng(3), 4000, COLD, HOT) < 0.001
