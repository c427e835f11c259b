"""Lines through measurements: how a machine drifts during a bench, and costs that rise with a size."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ggufspec.domain import Estimate

_TAIL = 0.025
_EXACT_UP_TO = 40


def drift(times_s: Sequence[float], rates: Sequence[float]) -> Estimate | None:
    """Return the relative change of an anchor's rate from its first to its last measurement.

    The median of the slopes between all pairs of log rates, times the time from first to last (Theil 1950;
    Sen 1968, doi:10.1080/01621459.1968.10480934), with Sen's interval from the distribution of Kendall's
    tau. It assumes independent noise: a slow wave that is no trend may look like one.

    Args:
        times_s: when each measurement was taken, in seconds from any origin.
        rates: its positive tokens/s.

    Returns:
        -0.05 for 5 % slower at the end; without an interval below five measurements, where none has 95 %.
        None with fewer than two different times.

    Raises:
        ValueError: the sequences differ in length, or a rate is not positive.
    """
    if len(times_s) != len(rates):
        raise ValueError(f"{len(times_s)} times for {len(rates)} rates")
    if any(not (rate > 0 and math.isfinite(rate)) for rate in rates):
        raise ValueError("a rate is a positive number")
    times, logs = np.asarray(times_s, dtype=np.float64), np.log(np.asarray(rates, dtype=np.float64))
    first, second = np.triu_indices(len(times), 1)
    apart = times[second] != times[first]
    first, second = first[apart], second[apart]
    if not len(first):
        return None
    changes = np.sort((logs[second] - logs[first]) / (times[second] - times[first])) * np.ptp(times)
    rank = _rank(len(times), len(changes))
    return Estimate(
        value=math.expm1(np.median(changes)),
        lo=None if rank is None else math.expm1(changes[rank]),
        hi=None if rank is None else math.expm1(changes[-1 - rank]),
    )


def _rank(n: int, slopes: int) -> int | None:
    """Return which slope, counted from 0 at either end, bounds the 95 % interval; None where none does.

    The number of discordant pairs of n independent values: exact by Mann's recursion (1945, Econometrica
    13:245-259), for many values its normal approximation (Kendall 1938, Biometrika 30:81-93).
    """
    if n <= _EXACT_UP_TO:
        chances = np.ones(1)
        for size in range(2, n + 1):
            chances = np.convolve(chances, np.full(size, 1 / size))
        count = int(np.count_nonzero(np.cumsum(chances) <= _TAIL))
    else:
        pairs = n * (n - 1) / 2
        count = math.floor(pairs / 2 - 1.96 * math.sqrt(n * (n - 1) * (2 * n + 5) / 18) / 2)
    return count - 1 if 1 <= count <= (slopes + 1) // 2 else None


def rising_line(
    sizes: Sequence[float], more: Sequence[float], errors: Sequence[float]
) -> tuple[float, float]:
    """Return the line start + slope × size nearest to some costs; neither of its two parts is negative.

    Non-negative least squares (Lawson and Hanson 1974, Solving Least Squares Problems).

    Args:
        sizes: where the costs were measured.
        more: the costs, in any unit; measured ones may be negative by noise.
        errors: the size of each one's error, in any positive unit: only their ratios count.
    """
    from scipy.optimize import nnls  # slow to import

    scale = 1 / np.asarray(errors, dtype=np.float64)
    line = np.column_stack((np.ones(len(sizes)), sizes)) * scale[:, None]
    start, slope = nnls(line, np.asarray(more, dtype=np.float64) * scale)[0]
    return float(start), float(slope)
