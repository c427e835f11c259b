"""Arm against arm: is one faster than the other, by more than matters in practice?"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from ggufspec.stats.cells import Cell, Values, log_ratios, middle
from ggufspec.stats.estimates import Estimate, speedup

_ALPHA = 0.05
_FLIPS = 10_000  # up to 13 units every pattern of signs is tried, above that so many random ones
_SEED = 20240419
_MIN_FLIPPED = 6  # units; five have 32 patterns of signs, so no p below 2/32


class SpeedVerdict(StrEnum):
    """What a comparison says of the first arm, seen from the second."""

    FASTER = "faster"
    SLOWER = "slower"
    SAME = "same"  # the whole interval lies within the practical threshold
    UNCLEAR = "unclear"  # more runs could tell


class Procedure(StrEnum):
    """Where a p-value comes from."""

    SIGN_FLIP = "sign-flip permutation"  # assumes only that without an effect either sign is as likely
    STUDENT_T = "Student's t"  # few units; assumes that their log ratios are normally distributed
    NONE = "none"  # a single unit


@dataclass(frozen=True, kw_only=True)
class Significance:
    """The ratio of two arms' rates, the chance of such a ratio without a difference, and the verdict.

    ``units`` are the independent values that were tested: prompts, or a single prompt's repeats. ``p_value``
    is 1 with a single unit.
    """

    ratio: Estimate
    p_value: float
    verdict: SpeedVerdict
    procedure: Procedure
    units: int


def significance(
    a: Mapping[Cell, float], b: Mapping[Cell, float], *, threshold: float = 0.01
) -> Significance | None:
    """Compare arm ``a`` with arm ``b``, paired by prompt and repeat.

    Six units or more: sign-flip permutation test of the mean log ratio (Fisher 1935, "The Design of
    Experiments", section 21; Good 2005, "Permutation, Parametric and Bootstrap Tests of Hypotheses", chapter
    3). Five units or fewer cannot reach p < 0.05 that way, so Student's t, which pays for its reach with
    the assumption of normal log ratios.

    FASTER and SLOWER need both: p < 0.05, and a ratio above ``1 + threshold`` or below its reciprocal.

    Args:
        a: positive tokens/s of each (prompt, repeat).
        b: the same of the other arm.
        threshold: the smallest change that matters in practice, 0.01 for 1 %.

    Returns:
        The comparison, or None when no cell was measured on both sides.
    """
    ratio, groups = speedup(a, b), list(log_ratios(a, b).values())
    if ratio is None:
        return None
    units = groups[0] if len(groups) == 1 else np.array([middle(group) for group in groups])
    p_value, procedure = _p_value(units)
    return Significance(
        ratio=ratio,
        p_value=p_value,
        verdict=_verdict(ratio, p_value, bool(units.mean() > 0), threshold),
        procedure=procedure,
        units=len(units),
    )


def _verdict(ratio: Estimate, p_value: float, up: bool, threshold: float) -> SpeedVerdict:
    if p_value < _ALPHA and up and ratio.value > 1 + threshold:
        return SpeedVerdict.FASTER
    if p_value < _ALPHA and not up and ratio.value < 1 / (1 + threshold):
        return SpeedVerdict.SLOWER
    if ratio.lo is None or ratio.hi is None:
        return SpeedVerdict.UNCLEAR
    within = 1 / (1 + threshold) <= ratio.lo and ratio.hi <= 1 + threshold
    return SpeedVerdict.SAME if within else SpeedVerdict.UNCLEAR


def _p_value(units: Values) -> tuple[float, Procedure]:
    if len(units) < 2:
        return 1.0, Procedure.NONE
    if len(units) < _MIN_FLIPPED:
        return _students(units), Procedure.STUDENT_T
    return _flipped(units), Procedure.SIGN_FLIP


def _flipped(units: Values) -> float:
    """Return the two-sided p-value: the share of sign patterns whose sum is as far from zero."""
    n, sizes = len(units), np.abs(units)
    exact = 2**n <= _FLIPS
    if exact:
        negative = (np.arange(2**n)[:, None] >> np.arange(n)) & 1
    else:
        negative = np.random.default_rng(_SEED).integers(0, 2, (_FLIPS - 1, n), dtype=np.int8)
    sums = np.abs(sizes.sum() - 2 * (negative @ sizes))
    as_far = int(np.count_nonzero(sums >= abs(units.sum()) - 1e-9 * sizes.sum()))
    # The observed pattern is one of the random ones too (Phipson and Smyth 2010, doi:10.2202/1544-6115.1585).
    return as_far / 2**n if exact else (as_far + 1) / _FLIPS


def _students(units: Values) -> float:
    """Return the two-sided p-value of Student's t (Abramowitz and Stegun 1964, 26.7.3 and 26.7.4)."""
    error = float(np.std(units, ddof=1)) / math.sqrt(len(units))
    mean = abs(float(units.mean()))
    if error <= 1e-12 * mean:
        return 0.0 if mean > 0 else 1.0
    degrees = len(units) - 1
    angle = math.atan(mean / error / math.sqrt(degrees))
    odd = degrees % 2
    term, total = (math.cos(angle) if odd else 1.0), 0.0
    for power in range(odd + 2, degrees + 1, 2):
        total += term
        term *= (power - 1) / power * math.cos(angle) ** 2
    inside = 2 / math.pi * (angle + math.sin(angle) * total) if odd else math.sin(angle) * total
    return min(max(1 - inside, 0.0), 1.0)
