"""The GPU's clocks, power and energy in all benches so far, and how the loads of a server differ."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from ggufspec import stats
from ggufspec.analysis import arms
from ggufspec.analysis.arm import Arm
from ggufspec.domain import Role
from ggufspec.results import ResultSet
from gpu_check.benches import Bench, doubts
from gpu_check.steps import Row, Section

_SPLITS = 400
_TAKEN = 5  # loads of each side of a split, as in a bench by default


def describe(benches: Iterable[tuple[str, ResultSet]]) -> Section:
    """Return a row for each arm: clocks, temperature, power, J per token, and reasons of throttling."""
    return Section(rows=[{"step": title, **row} for title, found in benches for row in _rows(found)])


def _rows(found: ResultSet) -> Iterator[Row]:
    for arm in arms.group(found):
        states = [run.conditions for run in arm.good if run.conditions is not None]
        energy = arm.energy.get("GPU")
        throttled = {reason for state in states for reason in state.gpu_throttled or ()}
        yield {
            "measured": arm.what,
            "γ": arm.draft_size,
            "layers": arm.spec.offload.target.layers,
            "SM clock (MHz)": _mean([state.gpu_mhz for state in states]),
            "memory clock (MHz)": _mean([state.gpu_memory_mhz for state in states]),
            "°C": max((state.gpu_c for state in states if state.gpu_c is not None), default=None),
            "W": _mean([state.gpu_w for state in states]),
            "J per token": None if energy is None else round(energy.per_token.value, 3),
            "throttled": ", ".join(sorted(throttled)),
            "CPU clock (MHz)": _mean([state.cpu_mhz for state in states]),
        }


def _mean(values: Iterable[float | None]) -> int | None:
    known = [value for value in values if value is not None]
    return round(statistics.fmean(known)) if known else None


def measure_loads(bench: Bench, seconds: float) -> Section:
    """Load a server again and again: how loads differ, and how often an interval of 5 against 5 is wrong.

    Both sides of a split are the same arm, so the ratio is 1: an interval without it is wrong. The splits
    share the loads, so that their share of wrong ones is an estimate from these loads alone.
    """
    asked = bench.demo("server", (3,), repeats=bench.preset.loads, warmup=1)
    found, _ = bench.run(asked, seconds, roles={Role.TARGET, Role.DRAFTING})
    rows = [_spread(arm) for arm in arms.group(found)]
    return Section(rows=rows, notes=doubts(found), benches=[found.meta.id])


def _spread(arm: Arm) -> Row:
    logs = np.log(arm.rates.table)  # (prompts, loads)
    means = (logs - np.nanmean(logs, axis=1, keepdims=True)).mean(axis=0)
    wrong, intervals = _wrong(logs)
    return {
        "measured": arm.what,
        "loads": logs.shape[1],
        "tokens/s": None if arm.rate is None else round(arm.rate.value, 1),
        "sd between loads": f"{statistics.stdev(means):.2%}" if len(means) > 1 else None,
        "largest less smallest": f"{math.expm1(max(means) - min(means)):.2%}",
        "intervals without 1": f"{wrong} of {intervals}" if intervals else None,
    }


def _wrong(logs: NDArray[np.float64], splits: int = _SPLITS) -> tuple[int, int]:
    """Return how many intervals of one half of the loads against the other exclude 1, and of how many."""
    rng, each = np.random.default_rng(0), min(_TAKEN, logs.shape[1] // 2)
    if each < 2 or np.isnan(logs).any():
        return 0, 0
    wrong = 0
    for _ in range(splits):
        order = rng.permutation(logs.shape[1])
        first, second = (_rates(logs[:, part]) for part in (order[:each], order[each : 2 * each]))
        effect = stats.paired_effect(first, second)
        ratio = None if effect is None else effect.ratio
        if ratio is not None and ratio.lo is not None and ratio.hi is not None:
            wrong += not ratio.lo <= 1 <= ratio.hi
    return wrong, splits


def _rates(logs: NDArray[np.float64]) -> stats.Rates:
    prompts, loads = logs.shape
    numbers = np.broadcast_to(np.arange(loads, dtype=np.float64), logs.shape)
    return stats.Rates([str(row) for row in range(prompts)], range(loads), np.exp(logs), loads=numbers)
