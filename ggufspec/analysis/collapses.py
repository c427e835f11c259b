"""Collapsed runs: far slower or far faster than the other runs of their arm."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from ggufspec.analysis.arm import counted
from ggufspec.domain import NO_PROMPT, Role, RunSpec
from ggufspec.results import Runs

LEAST_REPEATS = 3
"""Repeats of a prompt that are judged by their own median."""
_FACTOR = 2.0  # between repeats of a prompt
_FACTOR_BETWEEN_PROMPTS = 4.0  # texts and their lengths differ
_COMMON = 0.1  # of the runs of an arm
_LEAST_COMMON = 2  # runs; one of a short bench is more than a tenth


def find_collapses(runs: Runs) -> tuple[int, ...]:
    """Return the places of the runs that collapsed; a run that is too fast counts like one that is too slow.

    The rule: the tokens/s of a run differ by more than a factor of 2 from the median of its arm's repeats on
    the same prompt, the run included. With fewer than three repeats its evaluations per second of the target
    are compared with the median of all runs of the arm, and the factor is 4. That needs three runs, and an
    arm whose drafts are equally long, as rounds then take about the same time.

    Args:
        runs: of one cell each; those that enter no mean are left out.
    """
    tps = counted(runs)
    specs, spec_of = runs.by_spec()
    arms, arm_of = _arms(specs)
    cells: dict[tuple[int, str], int] = {}  # with prompts, of whatever repeat
    cell_of = [
        cells.setdefault((arm, spec.prompt.id), len(cells)) for arm, spec in zip(arm_of, specs, strict=True)
    ]
    collapsed = set[int]()
    few = set[int]()
    good = np.flatnonzero(tps > 0)
    for indices in _groups(good, np.array(cell_of)[spec_of[good]]):
        if len(indices) >= LEAST_REPEATS:
            collapsed.update(_far(indices, tps, _FACTOR))
        else:
            few.update(indices.tolist())
    if few:
        pace = tps * _evaluations_per_token(runs, [arms[arm_of[number]] for number in spec_of])
        paced = np.flatnonzero(pace > 0)
        for indices in _groups(paced, np.array(arm_of)[spec_of[paced]]):
            if len(indices) >= LEAST_REPEATS:
                collapsed.update(few.intersection(_far(indices, pace, _FACTOR_BETWEEN_PROMPTS)))
    return tuple(sorted(collapsed))


def find_common(runs: Runs) -> dict[RunSpec, tuple[int, int]]:
    """Return each arm of which more than a tenth of the runs collapsed: how many did, and of how many.

    Args:
        runs: as they were first measured, see ``ResultSet.first_measured``.
    """
    specs, spec_of = runs.by_spec()
    arms, arm_of = _arms(specs)
    numbers = np.array(arm_of, dtype=np.intp)[spec_of]
    collapsed = np.array(find_collapses(runs), dtype=np.intp)
    total, counts = (
        np.bincount(some, minlength=len(arms)).tolist() for some in (numbers, numbers[collapsed])
    )
    return {
        arm: (count, of)
        for arm, count, of in zip(arms, counts, total, strict=True)
        if count >= _LEAST_COMMON and count > _COMMON * of
    }


def _arms(specs: Iterable[RunSpec]) -> tuple[list[RunSpec], list[int]]:
    """Return the arms of runs, and for each specification the number of its arm."""
    numbers: dict[RunSpec, int] = {}
    arm_of = [numbers.setdefault(replace(spec, prompt=NO_PROMPT), len(numbers)) for spec in specs]
    return list(numbers), arm_of


def _groups(indices: NDArray[np.intp], numbers: NDArray[np.intp]) -> list[NDArray[np.intp]]:
    """Return the places that have the same number together."""
    order = np.argsort(numbers, kind="stable")
    return np.split(indices[order], np.flatnonzero(np.diff(numbers[order])) + 1)


def _far(indices: NDArray[np.intp], rates: NDArray[np.float64], factor: float) -> list[int]:
    """Return the places whose rate differs from the median of all by more than a factor."""
    logs = np.log(rates[indices])
    far: list[int] = indices[np.abs(logs - np.median(logs)) > np.log(factor)].tolist()
    return far


def _evaluations_per_token(runs: Runs, arms: Iterable[RunSpec]) -> NDArray[np.float64]:
    """Return how often the target is evaluated for each token; NaN where rounds draft unequally much."""
    decoded = runs.numbers("decoded")
    by_round = runs.numbers("n_rounds") / np.where(decoded > 0, decoded, np.nan)
    listed = list(arms)
    drafting = [arm.drafting for arm in listed]
    plain = np.array([arm.role is not Role.DRAFTING for arm in listed], dtype=bool)
    equal = [
        drafts is not None and drafts.method.drafts_with_model and not drafts.first and not drafts.p_min
        for drafts in drafting
    ]
    return np.where(plain, 1.0, np.where(equal, by_round, np.nan))
