"""An estimated value with its interval."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """A value with its 95 % interval; ``lo`` and ``hi`` are None where nothing shows how it varies.

    ``assumed_spread`` is by how much loads differ (one standard deviation, as a fraction), where they are too
    few to show that and the interval assumes it. None for an interval that follows from measurements alone.
    No verdict follows from an assumed one.
    """

    value: float
    lo: float | None
    hi: float | None
    assumed_spread: float | None = None

    @classmethod
    def around(cls, value: float, half_width: float | None = None) -> Estimate:
        """Return a value with an interval that is as wide on both sides; None for no interval."""
        if half_width is None:
            return cls(value=value, lo=None, hi=None)
        return cls(value=value, lo=value - half_width, hi=value + half_width)

    def moved_to(self, value: float, *, scale: float = 1.0) -> Estimate:
        """Return another value; its interval lies around it as this one does, ``scale`` times as wide."""
        if self.lo is None or self.hi is None:
            return Estimate.around(value)
        return Estimate(
            value=value, lo=value - scale * (self.value - self.lo), hi=value + scale * (self.hi - self.value)
        )

    @property
    def relative_half_width(self) -> float | None:
        """Half the interval's width over the value, 0.02 for ±2 %; None without an interval."""
        if self.lo is None or self.hi is None or self.value == 0:
            return None
        return (self.hi - self.lo) / 2 / abs(self.value)
