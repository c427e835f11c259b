from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from numpy.typing import NDArray

from ggufspec.domain import Sampling
from ggufspec.stats import sampling
from ggufspec.stats.sampling import Verified

FREE = Sampling(temperature=1.0, top_k=0)  # filters nothing
# eighths add and subtract without rounding; -inf is a token that a grammar or a mask forbids
LOGITS = st.lists(
    st.one_of(st.integers(-80, 80).map(lambda n: n / 8), st.just(-math.inf)), min_size=1, max_size=12
).filter(lambda logits: max(logits) > -math.inf)
# odd numbers, so that no sum of probabilities falls on a threshold
SAMPLINGS = st.builds(
    Sampling,
    temperature=st.sampled_from([0.0, 0.17, 0.6, 1.0, 2.3]),
    top_k=st.sampled_from([-1, 0, 1, 2, 5, 50]),
    top_p=st.sampled_from([-0.1, 0.0, 0.371, 0.618, 0.9173, 1.0, 1.2]),
    min_p=st.sampled_from([0.0, 0.0519, 0.4143, 1.0, 1.7]),
)


def _by_the_book(logits: Sequence[float], asked: Sampling) -> list[float]:
    """The chain step by step on plain lists, each step sorting and normalising anew."""
    tokens = sorted(range(len(logits)), key=lambda token: (-logits[token], token))
    if asked.temperature <= 0:
        tokens = tokens[:1]
    if asked.top_k > 0:
        tokens = tokens[: asked.top_k]
    if asked.top_p < 1:
        chances, total, kept = _softmax([logits[token] for token in tokens]), 0.0, []
        for token, chance in zip(tokens, chances, strict=True):
            kept.append(token)
            total += chance
            if total >= asked.top_p:
                break
        tokens = kept
    if asked.min_p > 0:
        chances = _softmax([logits[token] for token in tokens])
        passing = [chance >= asked.min_p * chances[0] for chance in chances]
        tokens = tokens[: max(1, sum(passing))]
    result = [0.0] * len(logits)
    heat = asked.temperature if asked.temperature > 0 else 1.0
    chances = _softmax([logits[token] / heat for token in tokens])
    for token, chance in zip(tokens, chances, strict=True):
        result[token] = chance
    return result


def _softmax(logits: Sequence[float]) -> list[float]:
    highest = max(logits)
    weights = [math.exp(logit - highest) for logit in logits]
    total = sum(weights)
    return [weight / total for weight in weights]


@settings(max_examples=200, deadline=None)
@given(LOGITS, SAMPLINGS)
def test_the_chain_is_what_the_book_says(logits: list[float], asked: Sampling) -> None:
    assert sampling.distribution(np.array(logits), asked) == pytest.approx(
        _by_the_book(logits, asked), abs=1e-12
    )


@pytest.mark.parametrize("spread", [0.01, 2.0, 8.0])
@pytest.mark.parametrize("top_k", [0, 50, 2000])
@pytest.mark.parametrize("top_p", [0.3, 0.95, 1.0])
def test_the_chain_on_a_large_vocabulary(spread: float, top_k: int, top_p: float) -> None:
    logits = (np.random.default_rng(3).normal(size=20_000) * spread).astype(np.float32)
    asked = Sampling(temperature=0.6, top_k=top_k, top_p=top_p)
    found = sampling.distribution(logits, asked)
    expected = np.array(_by_the_book(logits.astype(float).tolist(), asked))
    assert np.array_equal(found > 0, expected > 0)
    assert np.abs(found - expected).max() < 1e-12


@settings(max_examples=200, deadline=None)
@given(LOGITS, SAMPLINGS, st.integers(-1000, 1000))
def test_only_differences_of_logits_count(logits: list[float], asked: Sampling, shift: int) -> None:
    values = np.array(logits)
    assert np.array_equal(sampling.distribution(values, asked), sampling.distribution(values + shift, asked))


@settings(max_examples=200, deadline=None)
@given(LOGITS, SAMPLINGS)
def test_probabilities_sum_to_one_and_keep_the_logits_order(logits: list[float], asked: Sampling) -> None:
    p = sampling.distribution(np.array(logits), asked)
    assert p.sum() == pytest.approx(1.0, abs=1e-12)
    assert p.min() >= 0.0
    assert all(p[np.isneginf(logits)] == 0.0)
    by_logit = p[np.lexsort((np.arange(len(logits)), -np.array(logits)))]
    assert all(np.diff(by_logit) <= 1e-15)
    assert p[np.argmax(logits)] > 0.0


@settings(max_examples=100, deadline=None)
@given(LOGITS, st.sampled_from([Sampling(), Sampling(temperature=2.0), Sampling(temperature=0.0, top_k=40)]))
def test_greedy_gives_all_to_the_first_of_the_likeliest(logits: list[float], asked: Sampling) -> None:
    p = sampling.distribution(np.array(logits), asked)
    assert p[logits.index(max(logits))] == 1.0
    assert np.count_nonzero(p) == 1


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        # top-k first: of 0.5 and 0.3 the first alone is 0.625, enough for top-p 0.6; top-p first keeps both
        (Sampling(temperature=1.0, top_k=2, top_p=0.6), (1.0, 0.0, 0.0)),
        (Sampling(temperature=1.0, top_k=0, top_p=0.6), (5 / 8, 3 / 8, 0.0)),
        # temperature last: heated to T = 2 the first has 0.42 only, and top-p 0.45 would keep two
        (Sampling(temperature=2.0, top_k=0, top_p=0.45), (1.0, 0.0, 0.0)),
        # 0.2 / 0.5 passes min-p 0.39 and fails 0.41; heated it would be 0.63, cooled to T = 0.5 0.16
        (Sampling(temperature=2.0, top_k=0, min_p=0.41), (0.5**0.5, 0.3**0.5, 0.0)),
        (Sampling(temperature=0.5, top_k=0, min_p=0.39), (0.25, 0.09, 0.04)),
        (Sampling(temperature=0.5, top_k=0), (0.25, 0.09, 0.04)),
    ],
)
def test_the_order_of_the_chain_shows(asked: Sampling, expected: tuple[float, ...]) -> None:
    p = sampling.distribution(np.log(np.array([0.5, 0.3, 0.2])), asked)
    assert p == pytest.approx(np.array(expected) / sum(expected))


@pytest.mark.parametrize(
    ("asked", "kept"),
    [
        (Sampling(temperature=1.0, top_k=2), [0, 1]),
        (Sampling(temperature=1.0, top_k=0, top_p=0.5), [0, 1]),  # reached exactly
        (Sampling(temperature=1.0, top_k=0, top_p=0.51), [0, 1, 2]),
        (Sampling(temperature=1.0, top_k=0, min_p=1.0), [0, 1, 2, 3]),
        (Sampling(temperature=1.0, top_k=0, top_p=0.0), [0]),
    ],
)
def test_of_equal_tokens_the_lower_stay(asked: Sampling, kept: list[int]) -> None:
    assert np.flatnonzero(sampling.distribution(np.zeros(4), asked)).tolist() == kept


@pytest.mark.parametrize("temperature", [5e-324, 1e-30, 1e300])
def test_temperatures_without_measure_do_no_harm(temperature: float) -> None:
    p = sampling.distribution(np.array([1e4, -np.inf, -1e4, 1e4]), Sampling(temperature=temperature, top_k=0))
    third = 1 / 3 if temperature > 1 else 0.0
    assert p == pytest.approx([(1 - third) / 2, 0.0, third, (1 - third) / 2])


@pytest.mark.parametrize("asked", [Sampling(), FREE], ids=["greedy", "sampling"])
@pytest.mark.parametrize(
    ("logits", "words"),
    [
        ([0.0, math.nan, -math.inf], "NaN"),
        ([math.inf, math.nan], "NaN"),
        ([0.0, math.inf], "+inf"),
        ([-math.inf, -math.inf], "no token is left"),
        ([], "(vocab,)"),
        ([[0.0]], "(vocab,)"),
    ],
)
def test_logits_that_mean_nothing_are_refused(logits: list[float], words: str, asked: Sampling) -> None:
    with pytest.raises(ValueError, match=re.escape(words)):
        sampling.distribution(np.array(logits, dtype=np.float32), asked)


@pytest.mark.parametrize(
    "asked",
    [replace(FREE, temperature=math.nan), replace(FREE, top_p=math.nan), replace(FREE, min_p=math.inf)],
)
def test_settings_that_are_no_numbers_are_refused(asked: Sampling) -> None:
    with pytest.raises(ValueError, match="finite"):
        sampling.distribution(np.zeros(2), asked)


def test_many_positions_are_one_after_the_other() -> None:
    logits = np.random.default_rng(4).normal(size=(5, 30)).astype(np.float32)
    asked = Sampling(temperature=0.6, top_k=0, top_p=0.9)
    rows = sampling.distributions(logits, asked)
    assert all(
        np.array_equal(row, sampling.distribution(one, asked)) for row, one in zip(rows, logits, strict=True)
    )
    assert sampling.distributions(logits[:0], asked).shape == (0, 30)
    with pytest.raises(ValueError, match="vocab"):
        sampling.distributions(logits[0], asked)


@pytest.mark.parametrize("gamma", [0, 1, 3, 20])
@pytest.mark.parametrize("alpha", [0.0, 0.3, 0.708, 1 - 1e-6])
def test_closed_form_is_the_papers_first_equation(alpha: float, gamma: int) -> None:
    assert sampling.closed_form(alpha, gamma) == pytest.approx((1 - alpha ** (gamma + 1)) / (1 - alpha))


def test_closed_form_holds_where_the_fraction_does_not() -> None:
    assert sampling.closed_form(1.0, 7) == 8.0
    assert sampling.closed_form(1 - 2.0**-53, 7) == pytest.approx(8.0, abs=1e-14)


@pytest.mark.parametrize(
    ("alpha", "gamma", "speed"),
    [(0.6, 2, 1.96), (0.7, 3, 2.53), (0.8, 2, 2.44), (0.8, 5, 3.69), (0.9, 2, 2.71), (0.9, 10, 6.86)],
)
def test_speedup_with_a_free_drafter_is_the_papers_table_1(alpha: float, gamma: int, speed: float) -> None:
    assert sampling.closed_form_speedup(alpha, gamma, 0.0) == pytest.approx(speed, abs=0.005)


def test_speedups_follow_from_theorem_3_8() -> None:
    assert sampling.closed_form_speedup(0.75, 3, 0.05) == pytest.approx((1 - 0.75**4) / (0.25 * 1.15))
    free = sampling.closed_form_speedup(0.8, 4, 0.1)
    assert sampling.closed_form_speedup(0.8, 4, 0.1, verify_ratio=1.4) == pytest.approx(free * 1.4 / 1.8)
    assert sampling.closed_form_speedup(0.8, 0, 0.1) == 1.0


@pytest.mark.parametrize(("alpha", "gamma"), [(-0.1, 1), (1.1, 1), (math.nan, 1), (0.5, -1)])
def test_a_closed_form_of_nonsense_is_refused(alpha: float, gamma: int) -> None:
    with pytest.raises(ValueError, match=r"chance|draft size"):
        sampling.closed_form(alpha, gamma)


@pytest.mark.parametrize(("cost", "verify"), [(-0.1, 1.0), (0.1, 0.0), (math.nan, 1.0), (0.1, math.nan)])
def test_costs_of_nothing_are_refused(cost: float, verify: float) -> None:
    with pytest.raises(ValueError, match="costs"):
        sampling.closed_form_speedup(0.5, 2, cost, verify)


# Rounds of speculative sampling


def _rows(*weights: Sequence[float]) -> NDArray[np.float64]:
    table = np.array(weights, dtype=np.float64)
    table /= table.sum(axis=1, keepdims=True)
    return table


WEIGHTS = st.lists(st.one_of(st.just(0.0), st.floats(1e-300, 1.0)), min_size=4, max_size=4).filter(any)


@settings(max_examples=150, deadline=None)
@given(
    st.lists(WEIGHTS, min_size=3, max_size=3), st.lists(WEIGHTS, min_size=2, max_size=2), st.integers(0, 99)
)
def test_rounds_stay_in_what_p_allows(above: list[list[float]], below: list[list[float]], seed: int) -> None:
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


def test_without_excess_p_decides() -> None:
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


def test_rounds_at_the_edges_of_sampling() -> None:
    p = _rows([1, 2, 3], [1, 1, 1]) * (1 + 1e-12)
    assert sampling.overlap(p, p).tolist() == [1.0, 1.0]
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
