"""What is known of an acceptance, and what it says about drafts of any length."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

_NUMBER = r"\d*\.?\d+"
_RANGE = re.compile(rf"(?P<first>{_NUMBER})-(?P<last>{_NUMBER})(?:\+(?P<step>{_NUMBER}))?")
_MOST_ACCEPTANCES = 101
_MOST_DIGITS = 18  # of a draft size
_RATES, _ALPHAS = "0.7, 0.708@3, 0.5-0.9, 0.9,0.8,0.7", "0.7, 0.5-0.9"
_LONGEST = 1000  # tokens of a draft
_STEPS = 60  # halvings of an interval of 1: as fine as a float

GivenAcceptance = float | str | Sequence[float]
"""An acceptance: a number, several by position, or a text such as ``0.5-0.9`` or ``0.708@3``."""


@dataclass(frozen=True)
class Steady:
    """Every token is accepted with the same chance α, whatever came before: the model of Leviathan et al."""

    alpha: float
    most: ClassVar[int | None] = None  # it says something about drafts of any length

    def __post_init__(self) -> None:
        _check_share(self.alpha)

    def accepted(self, n_max: int) -> float:
        """Return the accepted tokens of a draft of ``n_max``, on average."""
        return sum(self.alpha**position for position in range(1, n_max + 1))

    @classmethod
    def from_rate(cls, accept_rate: float, n_max: int) -> Steady:
        """Return the α at which drafts of ``n_max`` tokens have this share of accepted tokens.

        Raises:
            ValueError: the share is not from 0 to 1, or no draft has so many tokens.
        """
        if not 1 <= n_max <= _LONGEST:
            raise ValueError(f"a draft has 1 to {_LONGEST} tokens, not {n_max}")
        _check_share(accept_rate)
        return cls(_solve(lambda alpha: cls(alpha).accepted(n_max), accept_rate * n_max))


@dataclass(frozen=True)
class AcceptanceRate:
    """The same share of the drafted tokens is accepted, whatever the size of the draft.

    It describes one draft size. A drafter's own rate falls as drafts get longer, so it does not show which
    draft size is best.
    """

    rate: float
    most: ClassVar[int | None] = None  # as above

    def __post_init__(self) -> None:
        _check_share(self.rate)

    def accepted(self, n_max: int) -> float:
        """Return the accepted tokens of a draft of ``n_max``, on average."""
        return self.rate * n_max


@dataclass(frozen=True)
class Positions:
    """The share of rounds that accept a draft's first, second, … token, as llama-server prints them.

    Nothing is said about longer drafts. Shorter ones accept the same at the positions that they have.
    """

    shares: tuple[float, ...]

    def __post_init__(self) -> None:
        shares = (1.0, *self.shares, 0.0)
        if not self.shares or not all(later <= earlier for earlier, later in pairwise(shares)):  # NaN, too
            raise ValueError("acceptances by position are shares of all rounds: from 0 to 1, never rising")

    @property
    def most(self) -> int | None:
        """The longest draft that this says something about."""
        return len(self.shares)

    def accepted(self, n_max: int) -> float:
        """Return the accepted tokens of a draft of ``n_max``, on average.

        Raises:
            ValueError: the draft is longer than what is known.
        """
        if n_max > len(self.shares):
            raise ValueError(f"acceptances are known for {len(self.shares)} positions, not for {n_max}")
        return sum(self.shares[:n_max])


Acceptance = AcceptanceRate | Steady | Positions


def _check_share(share: float) -> None:
    if not 0 <= share <= 1:
        raise ValueError(f"an acceptance is from 0 to 1, not {share:g}")


def _solve(rising: Callable[[float], float], wanted: float) -> float:
    low, high = 0.0, 1.0
    for _ in range(_STEPS):
        middle = (low + high) / 2
        low, high = (middle, high) if rising(middle) < wanted else (low, middle)
    return high


def parse_acceptances(accept: GivenAcceptance | None, alpha: GivenAcceptance | None) -> list[Acceptance]:
    """Return the acceptances of ``accept`` or of ``alpha``.

    Args:
        accept: acceptance rates at every γ (0.7, 0.5-0.9), a rate at one γ (0.708@3), or shares by position.
        alpha: probabilities that each token is accepted (0.7, 0.5-0.9).

    Raises:
        ValueError: not exactly one of the two was given, or it is not an acceptance.
    """
    if accept is not None and alpha is not None:
        raise ValueError("use either --accept or --alpha")
    if alpha is not None:
        if not isinstance(alpha, str):
            return [Steady(value) for value in ([alpha] if isinstance(alpha, float | int) else alpha)]
        return [Steady(value) for value in _parse_range(alpha) or (_parse_share(alpha, _ALPHAS),)]
    if accept is None:
        raise ValueError("the acceptance is missing, for example --accept 0.7")
    if isinstance(accept, float | int):
        return [AcceptanceRate(accept)]
    if not isinstance(accept, str):
        return [Positions(tuple(accept))]
    rate, _, size = accept.partition("@")
    if size:
        if not size.isdecimal() or len(size) > _MOST_DIGITS:
            raise ValueError(f"{accept!r} is not an acceptance; examples: {_RATES}")
        return [Steady.from_rate(_parse_share(rate, _RATES), int(size))]
    if "," in accept:
        return [Positions(tuple(_parse_share(part, _RATES) for part in accept.split(",")))]
    return [AcceptanceRate(value) for value in _parse_range(accept) or (_parse_share(accept, _RATES),)]


def _parse_range(text: str) -> list[float]:
    """Return the values of a range such as 0.5-0.9+0.05; none where the text is not one."""
    match = _RANGE.fullmatch(text)
    if match is None:
        return []
    first, last, step = float(match["first"]), float(match["last"]), float(match["step"] or 0.1)
    if not 0 <= first <= last <= 1 or step < 0.001:
        raise ValueError(f"{text!r} is not a range of acceptances; examples: 0.5-0.9, 0.5-0.9+0.05")
    count = int((last - first) / step + 1e-9) + 1
    if count > _MOST_ACCEPTANCES:
        raise ValueError(
            f"{text!r} has {count} values; at most {_MOST_ACCEPTANCES} are allowed: use a larger step"
        )
    return [round(first + number * step, 9) for number in range(count)]


def _parse_share(text: str, examples: str) -> float:
    try:
        return float(text.rstrip("%")) / (100 if "%" in text else 1)
    except ValueError:
        raise ValueError(f"{text!r} is not an acceptance; examples: {examples}") from None
