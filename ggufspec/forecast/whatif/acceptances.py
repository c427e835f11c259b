"""What is known of an acceptance, and what it says about drafts of any length."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

_LONGEST = 1000  # tokens of a draft
_STEPS = 60  # halvings of an interval of 1: as fine as a float


@dataclass(frozen=True)
class Steady:
    """Every token is accepted with the same chance α, whatever came before: the model of Leviathan et al."""

    alpha: float

    def __post_init__(self) -> None:
        if not 0 <= self.alpha <= 1:
            raise ValueError(f"an acceptance is from 0 to 1, not {self.alpha:g}")

    @property
    def most(self) -> int | None:
        """The longest draft that this says something about: any."""
        return None

    def accepted(self, n_max: int) -> float:
        """Return the accepted tokens of a draft of ``n_max``, on average."""
        return sum(self.alpha**place for place in range(1, n_max + 1))

    @classmethod
    def from_rate(cls, accept_rate: float, n_max: int) -> Steady:
        """Return the α at which drafts of ``n_max`` tokens have this share of accepted tokens.

        Raises:
            ValueError: the share is not from 0 to 1, or no draft has so many tokens.
        """
        if not 1 <= n_max <= _LONGEST:
            raise ValueError(f"a draft has 1 to {_LONGEST} tokens, not {n_max}")
        if not 0 <= accept_rate <= 1:
            raise ValueError(f"an acceptance is from 0 to 1, not {accept_rate:g}")
        return cls(_solve(lambda alpha: cls(alpha).accepted(n_max), accept_rate * n_max))


@dataclass(frozen=True)
class AcceptanceRate:
    """The same share of the drafted tokens is accepted, whatever the size of the draft.

    It describes one draft size. A drafter's own rate falls as drafts get longer, so it does not show which
    draft size is best.
    """

    rate: float

    def __post_init__(self) -> None:
        if not 0 <= self.rate <= 1:
            raise ValueError(f"an acceptance is from 0 to 1, not {self.rate:g}")

    @property
    def most(self) -> int | None:
        """The longest draft that this says something about: any."""
        return None

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


def _solve(rising: Callable[[float], float], wanted: float) -> float:
    low, high = 0.0, 1.0
    for _ in range(_STEPS):
        middle = (low + high) / 2
        low, high = (middle, high) if rising(middle) < wanted else (low, middle)
    return high
