"""What other programs may have added to a log ratio or a log time.

Programs that keep x of n cores busy are expected to slow a run by the logarithm s = -ln(1 - x/n): the share
of the processor that is left. Two things of it remain in the mean log ratio of two arms:

- what their runs were slowed by unequally: the difference of their mean expected slow-downs, times an unknown
  factor. It is small where idle cores take the load, and large where threads wait for each other;
- what the arms lose unequally where their runs are slowed alike: an unknown share of the mean slow-down. A
  busy loop beside one thread slowed the embedded target by 20 % and drafting by 8 %, on a machine with two
  cores.

``scripts/validate_disturbance.py`` measures both beside real busy loops. Their root mean square is a part of
the standard error, so that a result beside other programs is one about the quiet machine, too.

A forecast compares kinds of work instead of arms: the batches of a calibration lose another share than single
tokens do. That is the second of these things, and larger where threads have no core of their own.

Costs that rise with a size are a line of which neither part is negative.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from ggufspec.stats.cells import Cell, Rates, Values, align

_MOST_TAKEN = 0.9  # of the cores: what is left of a run then cannot be told from the load
_FACTOR = 1.8  # root mean square: 0.2 was seen with a core for each thread, and 2 to 3 with fewer cores
_UNEQUAL = 0.16  # standard deviation of the share: up to 0.19 was seen with a core for each thread
_WAITING = 0.55  # is added to the share where no thread has a core of its own: each operation waits for all
_KNOWN = 1e6  # degrees of freedom from which on Student's t is normal


def expected_slowdown(cores_taken: Values, cores: int) -> Values:
    """Return the logarithm by which programs that keep so many of the cores busy slow a run.

    A salvaged bench does not say how many cores there were: nothing is known of its runs, 0.
    """
    if cores < 1:
        return np.zeros_like(cores_taken)
    return np.asarray(-np.log1p(-np.minimum(cores_taken / cores, _MOST_TAKEN)))


def disturbance_error(rates: Mapping[Cell, float], baseline: Mapping[Cell, float]) -> float:
    """Return what other programs may have added to the mean log ratio of two arms: its root mean square.

    Args:
        rates: of an arm; plain mappings say nothing of other programs.
        baseline: the same of the other arm. Cells that one side lacks are left out.
    """
    first, second = align(rates, baseline)
    common = (mean_slowdown(first) + mean_slowdown(second)) / 2
    return math.hypot(_FACTOR * _systematic(first, second), _UNEQUAL * common) if common else 0.0


def _systematic(first: Rates, second: Rates) -> float:
    """Return by how much the expected slow-downs of two arms differ beyond chance, a logarithm.

    What differs by chance from repeat to repeat makes the runs scatter, too, and their residuals have it: a
    standard error of the difference is left out.
    """
    tables = [arm.slowed if arm.slowed is not None else np.zeros(arm.table.shape) for arm in (first, second)]
    differences = np.where(np.isnan(first.table), np.nan, tables[0] - tables[1])
    of_repeats = np.nanmean(differences[:, (~np.isnan(differences)).any(axis=0)], axis=0)
    chance = float(of_repeats.std(ddof=1)) / math.sqrt(len(of_repeats)) if len(of_repeats) > 1 else 0.0
    return max(0.0, abs(float(np.nanmean(differences))) - chance)


def unequal_slowdown(cores_taken: float, cores: int, threads: int) -> float:
    """Return by how much other programs slow one kind of work more than another: a standard deviation.

    Args:
        cores_taken: by other programs.
        cores: of the machine.
        threads: of llama.cpp.
    """
    without_core = min(1.0, max(0.0, threads + cores_taken - cores) / threads)
    slowdown = float(expected_slowdown(np.asarray(cores_taken), cores))
    return slowdown * (_UNEQUAL + _WAITING * without_core)


def mean_slowdown(rates: Rates) -> float:
    """Return the mean expected slow-down of an arm's runs, a logarithm."""
    if rates.slowed is None or not len(rates):
        return 0.0
    return float(rates.slowed[~np.isnan(rates.table)].mean())


def combine_slowdowns(first: float, second: float) -> float:
    """Return the same for two arms that share no runs, from their mean expected slow-downs."""
    return math.hypot((first - second) * _FACTOR, (first + second) / 2 * _UNEQUAL)


def widen(error: float, degrees: float, disturbance: float) -> tuple[float, float]:
    """Return a standard error that includes a disturbance, and its degrees of freedom (Satterthwaite 1946).

    The size of a disturbance is taken as known: it does not follow from the same few runs.
    """
    if not disturbance:
        return error, degrees
    total = math.hypot(error, disturbance)
    return total, min(degrees * (total / error) ** 4, _KNOWN) if error > 0 else _KNOWN


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
