from __future__ import annotations

import math
import re
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from numpy.typing import NDArray

from ggufspec.domain import Sampling
from ggufspec.stats import sampling
from ggufspec.stats.sampling import Verified


def _rows(*weights: Sequence[float]) -> NDArray[np.float64]:
    table = np.array(weights, dtype=np.float64)
    table /= table.sum(axis=1, keepdims=True)
    return table


WEIGHTS = st.lists(st.one_of(st.just(0.0), st.floats(1e-300, 1.0)), min_size=4, max_size=4).filter(any)


@settings(max_examples=150, deadline=None)
@given(
    st.lists(WEIGHTS, min_size=3, max_size=3), st.lists(WEIGHTS, min_size=2, max_size=2), st.integers(0, 99)
)
def test_a_round_never_leaves_what_p_allows(
    above: list[list[float]], below: list[list[float]], seed: int
) -> None:
    p, q, random = _rows(*above), _rows(*below), np.random.default_rng(seed)
    drafted = [sampling.draw(row, random) for row in q]
    verified = sampling.verify(p, q, drafted, random)
    n = verified.n_accepted
    assert all(p[i, token] > 0 and q[i, token] > 0 for i, token in enumerate(drafted[:n]))
    assert p[n, verified.token] > 0
    if n < 2 and (p[n] > q[n]).any():
        assert p[n, verified.token] > q[n, verified.token]  # so never the refused token itself


@pytest.mark.parametrize("gamma", [5, 10, 20])
def test_greedy_models_keep_drafts_while_their_choices_agree(gamma: int) -> None:
    random = np.random.default_rng(gamma)
    logits = random.normal(size=(gamma + 1, 40))
    p = sampling.distributions(logits, Sampling())
    own = logits.argmax(axis=1)
    for agreed in range(gamma + 1):
        drafted = own[:-1].copy()
        drafted[agreed : agreed + 1] += 1
        drafted %= 40
        verified = sampling.verify(p, np.eye(40)[drafted], drafted, random)
        assert verified == Verified(agreed, int(own[agreed]))


def test_refused_where_rounding_leaves_no_excess_the_target_decides() -> None:
    # p is nowhere above q, and the drafted token is impossible in p
    p, q = np.array([[1.0, 0.0], [1.0, 0.0]]), np.array([[1.0, 1e-13]])
    assert sampling.verify(p, q, [1], np.random.default_rng(0)) == Verified(0, 0)


def test_a_number_of_exactly_zero_chooses_nothing_impossible() -> None:
    stuck = np.random.MT19937(1)
    state = stuck.state
    state["state"]["key"][:] = 0
    stuck.state = state
    zeros = np.random.Generator(stuck)
    assert zeros.random() == 0.0
    assert sampling.draw(np.array([0.0, 0.0, 0.4, 0.6]), zeros) == 2
    p, q = _rows([0, 0, 1, 1], [0, 1, 0, 0]), _rows([1, 1, 1, 1])
    assert sampling.verify(p, q, [0], zeros) == Verified(0, 2)
    assert sampling.verify(p, q, [3], zeros) == Verified(1, 1)


def test_rows_that_sum_to_a_little_more_overlap_by_one_at_most() -> None:
    p = _rows([1, 2, 3], [1, 1, 1]) * (1 + 1e-12)
    assert sampling.overlap(p, p).tolist() == [1.0, 1.0]


def test_without_drafts_a_round_is_plain_sampling() -> None:
    verified = sampling.verify(np.array([[0.0, 1.0]]), np.empty((0, 2)), [], np.random.default_rng(0))
    assert verified == Verified(0, 1)


@pytest.mark.parametrize("drafted", [[3], [-1], [1]])
def test_a_token_that_the_drafter_cannot_have_drawn_is_refused(drafted: list[int]) -> None:
    p, q = _rows([1, 1, 1], [1, 1, 1]), _rows([1, 0, 1])
    with pytest.raises(ValueError, match="position 0 has no probability in q"):
        sampling.verify(p, q, drafted, np.random.default_rng(0))


@pytest.mark.parametrize(
    ("rows_p", "rows_q", "drafted"), [(1, 1, [0]), (3, 1, [0]), (2, 1, []), (2, 1, [0, 0])]
)
def test_rounds_whose_parts_do_not_fit_are_refused(rows_p: int, rows_q: int, drafted: list[int]) -> None:
    p, q = np.full((rows_p, 2), 0.5), np.full((rows_q, 2), 0.5)
    with pytest.raises(ValueError, match=re.escape("n drafted tokens")):
        sampling.verify(p, q, drafted, np.random.default_rng(0))
    with pytest.raises(ValueError, match="must both be"):
        sampling.overlap(np.ones((2, 3)) / 3, np.ones((2, 2)) / 2)


@pytest.mark.parametrize("p", [[0.0, 0.0], [0.5, math.nan], [1.5, -0.5], [math.inf, 0.0]])
def test_what_is_no_distribution_is_not_drawn_from(p: list[float]) -> None:
    with pytest.raises(ValueError, match="no probabilities"):
        sampling.draw(np.array(p), np.random.default_rng(0))


def test_a_target_of_nan_is_refused_and_not_accepted() -> None:
    p, q = np.full((2, 2), math.nan), np.full((1, 2), 0.5)
    with pytest.raises(ValueError, match="no probabilities"):
        sampling.verify(p, q, [0], np.random.default_rng(0))
