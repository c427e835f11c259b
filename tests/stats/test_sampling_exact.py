"""Speculative sampling is exact: drawn hundreds of thousands of times, beside variants that are wrong."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from itertools import product
from typing import NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import chi2

from ggufspec.domain import Sampling, Steady
from ggufspec.stats import sampling
from ggufspec.stats.sampling import Verified

Table = NDArray[np.float64]
Verify = Callable[[Table, Table, Sequence[int], np.random.Generator], Verified]

SEEDS = (1, 2, 3)
MANY, SOME, FEW = 205_000, 12_000, 6_000  # tokens per situation, over all seeds
TOO_UNLIKELY = 1e-6
FAR = 4.9  # standard deviations: two-sided 1e-6


class Situation(NamedTuple):
    p: Table  # (γ + 1, vocab)
    q: Table  # (γ, vocab)
    tokens: int = SOME


def _rows(*rows: Sequence[float]) -> Table:
    table = np.array(rows, dtype=np.float64)
    table /= table.sum(axis=1, keepdims=True)
    return table


_P = _rows([5, 3, 1, 1], [1, 2, 3, 4], [4, 4, 1, 3], [1, 6, 2, 1])
_NOISE = np.random.default_rng(8).normal(size=(3, 4))
SITUATIONS = {
    "ordinary": Situation(_P, _rows([2, 2, 3, 3], [2, 2, 2, 1], [3, 5, 2, 2]), MANY),
    "disjoint support": Situation(_rows(*[[0, 3, 0, 7]] * 2), _rows([6, 0, 4, 0]), MANY),
    "one-hot target": Situation(_rows(*[[0, 0, 1, 0]] * 4), _rows(*[[1, 1, 7, 1]] * 3), MANY),
    "one-hot drafter": Situation(_P, _rows([1, 0, 0, 0], [0, 0, 0, 1], [0, 0, 1, 0])),
    "near-equal": Situation(_P, _rows(*(_P[:3] * (1 + 1e-3 * _NOISE))), MANY),
    "one-hot both, apart": Situation(_rows(*[[0, 0, 1, 0]] * 4), _rows(*[[0, 1, 0, 0]] * 3)),
    "equal but for rounding": Situation(_P, _P[:3] * (1 + 1e-16 * np.sign(_NOISE))),
    "equal": Situation(_P, _P[:3]),
    "sums off by 1e-12": Situation(_P * (1 + 1e-12), _P[[1, 2, 0]] * (1 - 1e-12)),
    "drafter lacks tokens": Situation(_P, _rows([1, 1, 0, 0], [0, 0, 1, 1], [0, 9, 1, 0])),
    "target lacks tokens": Situation(
        _rows([1, 1, 0, 0], [0, 3, 7, 0], [1, 0, 1, 2], [0, 1, 1, 0]), _rows(*[[4, 1, 1, 4]] * 3)
    ),
}


def _p_value(square: float, degrees: float) -> float:
    """Chance of so large a chi-square; one without degrees of freedom is 0 or impossible."""
    return float(chi2.sf(square, degrees)) if degrees else float(square <= 0)


def _misfit(counts: Table, expected: Table) -> tuple[float, int]:
    """Pearson's chi-square and its degrees of freedom; a token that cannot be but came is infinitely off."""
    possible = expected > 0
    if counts[~possible].any():
        return math.inf, 1
    wanted = expected[possible] / expected.sum() * counts.sum()
    return float(((counts[possible] - wanted) ** 2 / wanted).sum()), int(possible.sum()) - 1


def _drafts(q: Table, size: int, random: np.random.Generator) -> list[list[int]]:
    columns = [random.choice(len(row), size=size, p=row / row.sum()) for row in q]
    return np.stack(columns, axis=1).tolist() if columns else [[] for _ in range(size)]


def _expected_accepted(p: Table, q: Table) -> float:
    """Σ_i Π_{j<=i} α_j, with the chance α_j at each position given that those before it were accepted."""
    return float(sampling.overlap(p[:-1], q).cumprod().sum())


def _fit(verify: Verify, situation: Situation, seed: int) -> float:
    """p-value of all tokens of many rounds against the target's distributions, position by position.

    Rows do not depend on the tokens before them, so the tokens at a position are independent of each other
    and of whether a round got there.
    """
    p, q, tokens = situation
    random = np.random.default_rng(seed)
    per_round = 1 + _expected_accepted(p, q)
    seen: list[int] = []
    vocab = p.shape[1]
    for drafted in _drafts(q, math.ceil(tokens / per_round), random):
        verified = verify(p, q, drafted, random)
        seen += (i * vocab + token for i, token in enumerate(drafted[: verified.n_accepted]))
        seen.append(verified.n_accepted * vocab + verified.token)
    counts = np.bincount(seen, minlength=p.size).astype(float).reshape(p.shape)
    misfits = [_misfit(row, expected) for row, expected in zip(counts, p, strict=True) if row.any()]
    return _p_value(*map(sum, zip(*misfits, strict=True)))


def _wrong(
    p: Table, q: Table, drafted: Sequence[int], random: np.random.Generator, *, fault: str
) -> Verified:
    """The algorithm written down anew, with one fault, or with none."""
    n = len(drafted)
    judged = []
    for i, token in enumerate(drafted):
        ratio = p[i, token] / q[i, token]
        if fault == "ratio upside down":
            ratio = q[i, token] / p[i, token] if p[i, token] else 0.0
        chance = {"accepts all": 1.0, "no chance below 1": float(ratio >= 1)}.get(fault, ratio)
        judged.append(random.random() < chance)
    n_accepted = judged.index(False) if False in judged else n
    if fault == "goes on after a refusal":
        n_accepted = sum(judged)
    if n_accepted == n:
        if fault == "no bonus":
            return Verified(n - 1, drafted[-1])
        rows = {"bonus from the row before": p[-2], "bonus from the drafter": q[-1]}
        return Verified(n, sampling.draw(rows.get(fault, p[-1]), random))
    above, below = p[n_accepted], q[n_accepted]
    leftovers = {
        "resamples from p": above,
        "resamples from q - p": np.maximum(below - above, 0),
        "resamples from |p - q|": np.abs(above - below),
    }
    excess = leftovers.get(fault, np.maximum(above - below, 0))
    return Verified(n_accepted, sampling.draw(excess if excess.any() else above, random))


FAULTS = (
    "resamples from p",
    "resamples from q - p",
    "resamples from |p - q|",
    "ratio upside down",
    "accepts all",
    "no chance below 1",
    "goes on after a refusal",
    "bonus from the row before",
    "bonus from the drafter",
)


@pytest.mark.parametrize("name", SITUATIONS)
def test_the_text_is_distributed_as_the_targets(name: str) -> None:
    situation = SITUATIONS[name]
    share = situation._replace(tokens=situation.tokens // len(SEEDS))
    assert min(_fit(sampling.verify, share, seed) for seed in SEEDS) > TOO_UNLIKELY


@pytest.mark.parametrize("fault", FAULTS)
def test_a_wrong_algorithm_would_be_found(fault: str) -> None:
    assert _fit(partial(_wrong, fault=fault), SITUATIONS["ordinary"]._replace(tokens=FEW), 1) < TOO_UNLIKELY


def test_the_algorithm_without_a_fault_would_not() -> None:
    assert _fit(partial(_wrong, fault="none"), SITUATIONS["ordinary"]._replace(tokens=FEW), 1) > TOO_UNLIKELY


# Models that look at the token before: three tokens, and a round's rows follow from what it drafted.
_TARGET = _rows([6, 3, 1], [1, 2, 7], [4, 4, 2])
_DRAFTER = _rows([3, 3, 4], [2, 5, 3], [0, 6, 4])
_GAMMA = 2


def _texts(verify: Verify, size: int, seed: int) -> float:
    """p-value of the first three tokens of many texts against what the target alone would write."""
    random = np.random.default_rng(seed)
    rounds = {
        (last, *drafted): (_TARGET[[last, *drafted]], _DRAFTER[[last, *drafted[:-1]]])
        for last, *drafted in product(range(3), repeat=_GAMMA + 1)
    }
    ladder = _DRAFTER.cumsum(axis=1).tolist()
    numbers = iter(random.random(size * 3 * _GAMMA).tolist())
    counts = np.zeros((3, 3, 3))
    for _ in range(size):
        text = [0]
        while len(text) < 4:
            drafted: list[int] = []
            for _ in range(_GAMMA):
                steps, number = ladder[[*text, *drafted][-1]], next(numbers)
                drafted.append(int(number >= steps[0]) + int(number >= steps[1]))
            verified = verify(*rounds[text[-1], *drafted], drafted, random)
            text += [*drafted[: verified.n_accepted], verified.token]
        counts[text[1], text[2], text[3]] += 1
    expected = _TARGET[0][:, None, None] * _TARGET[:, :, None] * _TARGET[None, :, :]
    return _p_value(*_misfit(counts, expected))


@pytest.mark.parametrize("seed", SEEDS)
def test_whole_texts_are_distributed_as_the_targets(seed: int) -> None:
    assert _texts(sampling.verify, 23_000, seed) > TOO_UNLIKELY  # 69,000 tokens each


@pytest.mark.parametrize("fault", FAULTS)
def test_a_wrong_algorithm_would_be_found_in_texts(fault: str) -> None:
    assert _texts(partial(_wrong, fault=fault), 3_000, 1) < TOO_UNLIKELY


def _off(verify: Verify, situation: Situation, rounds: int) -> float:
    """Standard deviations between the mean of n_accepted and what is expected."""
    p, q, _ = situation
    random = np.random.default_rng(5)
    found = [verify(p, q, drafted, random).n_accepted for drafted in _drafts(q, rounds, random)]
    alphas = np.array(
        [sum(min(a, b) for a, b in zip(*rows, strict=True)) for rows in zip(p[:-1], q, strict=True)]
    )
    reached = alphas.cumprod()  # the chance of i or more
    variance = sum((2 * i - 1) * chance for i, chance in enumerate(reached, start=1)) - reached.sum() ** 2
    expected = _expected_accepted(p, q)
    if variance < 1e-9:
        return 0.0 if np.mean(found) == pytest.approx(expected) else math.inf
    return float(abs(np.mean(found) - expected) / math.sqrt(variance / rounds))


@pytest.mark.parametrize("name", SITUATIONS)
def test_as_many_are_accepted_as_expected(name: str) -> None:
    assert _off(sampling.verify, SITUATIONS[name], 5_000) < FAR


@pytest.mark.parametrize("fault", ["no bonus", "accepts all", "ratio upside down", "no chance below 1"])
def test_wrong_acceptance_would_be_found(fault: str) -> None:
    assert _off(partial(_wrong, fault=fault), SITUATIONS["ordinary"], 5_000) > FAR


@pytest.mark.parametrize(
    ("p", "q", "alpha"),
    [
        ([0.5, 0.5, 0.0], [0.25, 0.25, 0.5], 0.5),
        ([1.0, 0.0, 0.0], [0.0, 1.0, 0.0], 0.0),
        ([0.2, 0.3, 0.5], [0.2, 0.3, 0.5], 1.0),
        ([0.2, 0.3, 0.5], [0.0, 1.0, 0.0], 0.3),
    ],
)
def test_alpha_is_the_overlap(p: list[float], q: list[float], alpha: float) -> None:
    assert sampling.overlap(np.array([p]), np.array([q])) == pytest.approx([alpha], abs=1e-15)
    random = np.random.default_rng(6)
    tables = np.array([p, p]), np.array([q])
    accepted = [
        sampling.verify(*tables, drafted, random).n_accepted for drafted in _drafts(tables[1], 4_000, random)
    ]
    assert np.mean(accepted) == pytest.approx(alpha, abs=FAR * math.sqrt(alpha * (1 - alpha) / 4_000) + 1e-12)


@pytest.mark.parametrize("gamma", [1, 4, 10])
def test_the_closed_form_is_what_rounds_yield(gamma: int) -> None:
    p, q = _rows(*[[5, 3, 2]] * (gamma + 1)), _rows(*[[3, 3, 4]] * gamma)
    random = np.random.default_rng(7)
    yields = [1 + sampling.verify(p, q, drafted, random).n_accepted for drafted in _drafts(q, 4_900, random)]
    expected = 1 + Steady(float(sampling.overlap(p[:1], q[:1])[0])).accepted(gamma)
    assert abs(np.mean(yields) - expected) < FAR * np.std(yields) / 70


def test_draws_follow_p_and_need_no_sum_of_one() -> None:
    random = np.random.default_rng(9)
    weights = np.array([0.0, 3.0, 0.0, 0.1, 7.0, 0.0])
    counts = np.bincount([sampling.draw(weights, random) for _ in range(20_000)], minlength=6)
    assert _p_value(*_misfit(counts.astype(float), weights)) > TOO_UNLIKELY


@pytest.mark.parametrize(
    "asked",
    [Sampling(temperature=1.0, top_k=50), Sampling(temperature=0.6, top_k=0, top_p=0.9)],
    ids=["top-k 50", "nucleus"],
)
def test_through_the_whole_chain_the_text_is_the_targets(asked: Sampling) -> None:
    random = np.random.default_rng(10)
    logits = random.normal(size=(3, 60)) * 2
    p = sampling.distributions(logits, asked)
    q = sampling.distributions((logits + random.normal(size=(3, 60)))[:-1], asked)
    assert 0 < sampling.overlap(p[:-1], q).max() < 0.95
    assert _fit(sampling.verify, Situation(p, q), 11) > TOO_UNLIKELY
