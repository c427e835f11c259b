from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

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


@pytest.mark.parametrize(
    ("weights", "asked", "expected"),
    [
        # top-k first: of 0.5 and 0.3 the first alone is 0.625, enough for top-p 0.6; top-p first keeps both
        ((5, 3, 2), Sampling(temperature=1.0, top_k=2, top_p=0.6), (1, 0, 0)),
        ((5, 3, 2), Sampling(temperature=1.0, top_k=0, top_p=0.6), (5, 3, 0)),
        # temperature last: heated to T = 2 the first has 0.42 only, and top-p 0.45 would keep two
        ((5, 3, 2), Sampling(temperature=2.0, top_k=0, top_p=0.45), (1, 0, 0)),
        # 0.2 / 0.5 passes min-p 0.39 and fails 0.41; heated it would be 0.63, cooled to T = 0.5 0.16
        ((5, 3, 2), Sampling(temperature=2.0, top_k=0, min_p=0.41), (5**0.5, 3**0.5, 0)),
        ((5, 3, 2), Sampling(temperature=0.5, top_k=0, min_p=0.39), (25, 9, 4)),
        ((5, 3, 2), Sampling(temperature=0.5, top_k=0), (25, 9, 4)),
        # of equal tokens the lower stay
        ((1, 1, 1, 1), Sampling(temperature=1.0, top_k=2), (1, 1, 0, 0)),
        ((1, 1, 1, 1), Sampling(temperature=1.0, top_k=0, top_p=0.5), (1, 1, 0, 0)),  # reached exactly
        ((1, 1, 1, 1), Sampling(temperature=1.0, top_k=0, top_p=0.51), (1, 1, 1, 0)),
        ((1, 1, 1, 1), Sampling(temperature=1.0, top_k=0, min_p=1.0), (1, 1, 1, 1)),
        ((1, 1, 1, 1), Sampling(temperature=1.0, top_k=0, top_p=0.0), (1, 0, 0, 0)),
        ((1, 1, 1, 1), Sampling(), (1, 0, 0, 0)),
    ],
)
def test_the_order_of_the_chain_shows(
    weights: tuple[int, ...], asked: Sampling, expected: tuple[float, ...]
) -> None:
    p = sampling.distribution(np.log(np.array(weights)), asked)
    assert p == pytest.approx(np.array(expected) / sum(expected))


@pytest.mark.parametrize("temperature", [5e-324, 1e-30, 1e300])
def test_temperatures_without_measure_do_no_harm(temperature: float) -> None:
    p = sampling.distribution(np.array([1e4, -np.inf, -1e4, 1e4]), Sampling(temperature=temperature, top_k=0))
    third = 1 / 3 if temperature > 1 else 0.0
    assert p == pytest.approx([(1 - third) / 2, 0.0, third, (1 - third) / 2])


@pytest.mark.parametrize("asked", [Sampling(), FREE], ids=["greedy", "sampling"])
@pytest.mark.parametrize(
    ("logits", "change", "words"),
    [
        ([0.0, math.nan, -math.inf], {}, "NaN"),
        ([math.inf, math.nan], {}, "NaN"),
        ([0.0, math.inf], {}, "+inf"),
        ([-math.inf, -math.inf], {}, "no token is left"),
        ([], {}, "(vocab,)"),
        ([[0.0]], {}, "(vocab,)"),
        ([0.0, 0.0], {"temperature": math.nan}, "finite"),
        ([0.0, 0.0], {"top_p": math.nan}, "finite"),
        ([0.0, 0.0], {"min_p": math.inf}, "finite"),
    ],
)
def test_what_means_nothing_is_refused(
    logits: list[float], change: dict[str, Any], words: str, asked: Sampling
) -> None:
    with pytest.raises(ValueError, match=re.escape(words)):
        sampling.distribution(np.array(logits, dtype=np.float32), replace(asked, **change))


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


def test_rounds_at_the_edges_of_sampling() -> None:
    random = np.random.default_rng(0)
    p = _rows([1, 2, 3], [1, 1, 1]) * (1 + 1e-12)
    assert sampling.overlap(p, p).tolist() == [1.0, 1.0]
    assert sampling.verify(np.array([[0.0, 1.0]]), np.empty((0, 2)), [], random) == Verified(0, 1)
    # p is nowhere above q, and the drafted token is impossible in p, which then decides
    p, q = np.array([[1.0, 0.0], [1.0, 0.0]]), np.array([[1.0, 1e-13]])
    assert sampling.verify(p, q, [1], random) == Verified(0, 0)


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


@pytest.mark.parametrize(
    ("p", "q", "drafted", "words"),
    [
        *(
            (_rows([1, 1, 1], [1, 1, 1]), _rows([1, 0, 1]), [token], "no probability in q")
            for token in (3, -1, 1)
        ),
        *(
            (np.full((rows_p, 2), 0.5), np.full((1, 2), 0.5), drafted, "n drafted tokens")
            for rows_p, drafted in ((1, [0]), (3, [0]), (2, []), (2, [0, 0]))
        ),
        (np.full((2, 2), math.nan), np.full((1, 2), 0.5), [0], "no probabilities"),
    ],
)
def test_rounds_that_cannot_be_are_refused(
    p: NDArray[np.float64], q: NDArray[np.float64], drafted: list[int], words: str
) -> None:
    with pytest.raises(ValueError, match=re.escape(words)):
        sampling.verify(p, q, drafted, np.random.default_rng(0))


@pytest.mark.parametrize("p", [[0.0, 0.0], [0.5, math.nan], [1.5, -0.5], [math.inf, 0.0]])
def test_what_is_no_distribution_is_not_drawn_from(p: list[float]) -> None:
    with pytest.raises(ValueError, match="no probabilities"):
        sampling.draw(np.array(p), np.random.default_rng(0))
    with pytest.raises(ValueError, match="must both be"):
        sampling.overlap(np.array([p]), np.ones((1, 3)))
