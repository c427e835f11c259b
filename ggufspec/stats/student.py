"""Student's t distribution with any degrees of freedom ("Student" 1908, Biometrika 6:1-25)."""

from __future__ import annotations

from functools import lru_cache


def preload() -> None:
    """Import scipy, which takes 0.2 s and is otherwise imported when it is first needed."""
    from scipy import special  # noqa: F401


def t_tail(value: float, degrees: float) -> float:
    """Return the chance that t exceeds a value."""
    from scipy import special

    return float(special.stdtr(degrees, -value))


@lru_cache(maxsize=4096)
def t_quantile(tail: float, degrees: float) -> float:
    """Return the value that t exceeds with the chance ``tail``."""
    from scipy import special

    return float(-special.stdtrit(degrees, tail))
