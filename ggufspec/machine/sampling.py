"""GPUs while something runs: read some times a second by a thread that ends with it."""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Sequence
from itertools import chain, pairwise
from statistics import fmean
from typing import Any, NamedTuple

from ggufspec.domain import Conditions
from ggufspec.machine import nvml

_PERIOD_S = 0.15
_PATIENCE_S = 1.0  # for a driver that does not answer


class Moment(NamedTuple):
    """What all GPUs told at one time of ``time.monotonic``."""

    at_s: float
    gpus: tuple[nvml.Reading, ...]


class GpuSampler:
    """Reads the GPUs from its construction on until ``stop``, or until nobody holds it any more.

    Raises:
        RuntimeError: no thread can be started.
    """

    def __init__(self, period_s: float = _PERIOD_S) -> None:
        self._found: Conditions | None = None
        self._over = threading.Event()
        self._moments = [_now()]
        self._thread = threading.Thread(
            target=_sample, args=(self._moments, self._over, period_s), name="ggufspec-gpus", daemon=True
        )
        weakref.finalize(self, self._over.set)
        self._energy_mj = nvml.energy_mj()
        self._thread.start()

    def stop(self) -> Conditions:
        """End the thread and return what was seen, in the fields about GPUs; the same when called again."""
        if self._found is None:
            after_mj = nvml.energy_mj()
            self._over.set()
            self._thread.join(_PATIENCE_S)
            moments = [*self._moments, _now()]
            self._found = summary(moments, self._energy_mj, after_mj, power_limit_w=nvml.power_limit_w())
        return self._found


def summary(
    moments: Sequence[Moment],
    before_mj: Sequence[float | None],
    after_mj: Sequence[float | None],
    *,
    power_limit_w: float | None = None,
) -> Conditions:
    """Return moments as conditions; a field that one of the GPUs never told is None.

    Clocks and what held them back are those between the first and the last moment, where nothing runs yet or
    any more, if there are such.

    Args:
        moments: at least the first and the last, in order of time.
        before_mj: each GPU's energy counter at the first.
        after_mj: and at the last.
        power_limit_w: what all GPUs together may draw.
    """
    inner = moments[1:-1] or moments
    celsius, reasons = _told(moments, "celsius"), _told(inner, "reasons")
    used, watts = (_together(moments, name) for name in ("used_bytes", "watts"))
    joules = _joules(moments, before_mj, after_mj)
    elapsed_s = moments[-1].at_s - moments[0].at_s
    return Conditions(
        gpu_mhz=_mean(_told(inner, "sm_mhz")),
        gpu_memory_mhz=_mean(_told(inner, "memory_mhz")),
        gpu_c=max(map(max, celsius), default=None),
        gpu_w=None if joules is None or elapsed_s <= 0 else joules / elapsed_s,
        gpu_peak_w=max(watts, default=None),
        gpu_power_limit_w=power_limit_w,
        gpu_j=joules,
        gpu_used_bytes=used[0] if used else None,
        gpu_peak_bytes=max(used, default=None),
        gpu_throttled=tuple(sorted(set[str]().union(*chain(*reasons)))) if reasons else None,
    )


def _told(moments: Sequence[Moment], name: str) -> list[list[Any]]:
    """Return what each GPU told of a field over time; nothing where one of them never did."""
    rows = ([getattr(gpu, name) for gpu in moment.gpus] for moment in moments)
    columns = [[value for value in column if value is not None] for column in zip(*rows, strict=True)]
    return columns if all(columns) else []


def _mean(told: Sequence[Sequence[float]]) -> float | None:
    return fmean(map(fmean, told)) if told else None


def _together(moments: Sequence[Moment], name: str) -> list[Any]:
    """Return a field summed over all GPUs, of those moments at which all told it."""
    rows = ([getattr(gpu, name) for gpu in moment.gpus] for moment in moments)
    return [sum(row) for row in rows if row and None not in row]


def _joules(
    moments: Sequence[Moment], before_mj: Sequence[float | None], after_mj: Sequence[float | None]
) -> float | None:
    """Return what all GPUs used: by their counters, or by the power they told where there is none.

    A counter that went back was reset, by another driver or a reset GPU, and says nothing.
    """
    total = 0.0
    for place, (before, after) in enumerate(zip(before_mj, after_mj, strict=True)):
        if before is not None and after is not None and after >= before:
            total += (after - before) / 1000
            continue
        told = [(moment.at_s, watts) for moment in moments if (watts := moment.gpus[place].watts) is not None]
        if len(told) < 2:
            return None  # some GPUs would pass for all
        total += sum((b[0] - a[0]) * (a[1] + b[1]) / 2 for a, b in pairwise(told))
    return total if before_mj else None


def _now() -> Moment:
    return Moment(time.monotonic(), nvml.read_gpus())


def _sample(moments: list[Moment], over: threading.Event, period_s: float) -> None:
    """Add a moment every period until it is over; knows no Sampler, so that one can be forgotten."""
    while not over.wait(period_s):
        moments.append(_now())
