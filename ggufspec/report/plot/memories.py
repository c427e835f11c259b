"""Memory against speed, with the Pareto front."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import altair as alt

from ggufspec.analysis import Arm
from ggufspec.domain import LoadedModel
from ggufspec.report.plot import look
from ggufspec.report.plot.look import Datum, named_arms
from ggufspec.report.rows.charts import MemorySpeedRow
from ggufspec.results import ResultSet

_LABEL = 160  # pixels
_MIB = 1 << 20


def pareto_rows(results: ResultSet) -> list[Datum]:
    """Return what ``pareto`` draws, one row per arm, the smallest first.

    Columns: label, memory_of (in words, the same for all), memory_mib, tps, tps_lo, tps_hi, rate, gain, and
    front: whether no other arm is faster and needs no more memory.
    """
    fast = [(arm, row) for arm, row in named_arms(results) if row["gen_tps"]]
    memory_of, sizes = _memory([arm for arm, _ in fast], results)
    sized = [(size, row) for size, (_, row) in zip(sizes, fast, strict=True) if size is not None]
    rows: list[Datum] = []
    best = 0.0
    for size, row in sorted(sized, key=lambda sized: (sized[0], -sized[1]["gen_tps"])):
        rows.append(
            {
                "label": row["label"],
                "memory_of": memory_of,
                "memory_mib": size / _MIB,
                **{f"tps{end}": row[f"gen_tps{end}"] for end in ("", "_lo", "_hi")},
                "rate": row["rate"],
                "gain": row["gain"],
                "front": row["gen_tps"] > best,
            }
        )
        best = max(best, row["gen_tps"])
    return rows


def _memory(arms: Sequence[Arm], results: ResultSet) -> tuple[str, list[int | None]]:
    """Return which memory is known for all arms, in words, and each arm's largest amount.

    GPU memory comes first. If every run loads its models, NVML measured the increase over the memory in use
    before. For models that stay loaded, llama.cpp's log counts, because NVML would include other arms. CPU
    builds have only the host's memory.
    """
    if results.meta.build.backend != "cpu":
        if results.meta.engine.startswith("binary"):
            taken = [_most(arm, "gpu_peak_bytes", above="gpu_used_bytes") for arm in arms]
            if _all_known(taken):
                return "GPU memory taken at its peak, by NVML", taken
        placed = [_placed(arm) for arm in arms]
        if _all_known(placed):
            return "GPU memory taken, by llama.cpp's log", placed
        used = [_most(arm, "gpu_peak_bytes") for arm in arms]
        if _all_known(used):
            return "GPU memory in use at its peak, by NVML", used
    return "peak resident memory on the host", [_most(arm, "peak_rss_bytes") for arm in arms]


def _all_known(sizes: Sequence[int | None]) -> bool:
    """Whether the memory of every arm is known, and not 0 for all."""
    return None not in sizes and any(sizes)


def _placed(arm: Arm) -> int | None:
    """Return the GPU memory of an arm's models from the log, the drafter included."""
    models = [(output.target or LoadedModel(), output.drafter or LoadedModel()) for output in arm.outputs]
    sizes = [(target.gpu_bytes, drafter.gpu_bytes or 0) for target, drafter in models]
    return max((target + drafter for target, drafter in sizes if target is not None), default=None)


def _most(arm: Arm, name: str, *, above: str | None = None) -> int | None:
    """Return the maximum of a column over an arm's runs, with ``above`` minus that column of the same run."""
    sizes = arm.good.column(name)
    bases = arm.good.column(above) if above else [0] * len(sizes)
    pairs = zip(sizes, bases, strict=True)
    return max((size - base for size, base in pairs if size is not None and base is not None), default=None)


def pareto(results: ResultSet) -> alt.LayerChart | None:
    """Return tokens/s over memory with the Pareto front; None with fewer than two different sizes.

    The axis says which memory: GPU memory where it is known, otherwise that of llama.cpp's process.
    """
    return draw_pareto(pareto_rows(results))


def draw_pareto(rows: list[Datum]) -> alt.LayerChart | None:
    """Draw the rows of ``pareto_rows``."""
    if len({row["memory_mib"] for row in rows}) < 2:
        return None
    x = alt.X(
        "memory_mib:Q",
        title=f"{rows[0]['memory_of']} (MiB)",
        axis=alt.Axis(tickCount=6),
        scale=alt.Scale(zero=False, padding=30),
    )
    y = alt.Y("tps:Q", title="tokens/s", scale=look.speeds(rows))
    tooltip = look.tooltip(MemorySpeedRow)
    front = [row for row in rows if row["front"]]
    points_of_all = alt.Chart(look.values(rows)).encode(x=x, tooltip=tooltip)
    ahead = alt.Chart(look.values(front)).encode(x=x, y=y)
    intervals = points_of_all.mark_rule(strokeWidth=1.5, opacity=0.5, color=look.QUIET).encode(
        y=alt.Y("tps_lo:Q", title="tokens/s"), y2="tps_hi:Q"
    )
    layers = (
        ahead.mark_line(interpolate="step-after", color=look.BLUE, strokeWidth=2, strokeDash=[4, 3]),
        *([intervals] if look.has_intervals(rows) else []),
        points_of_all.mark_point(filled=True, size=75, opacity=1).encode(
            y=y,
            color=alt.condition("datum.front", alt.value(look.BLUE), alt.value(look.QUIET)),
            shape=alt.condition("datum.front", alt.value("diamond"), alt.value("circle")),
        ),
        *_labels(front, x, y),
    )
    points = "; ".join(
        f"{row['label']}: {row['memory_mib']:.0f} MiB, {row['rate']} tokens/s" for row in front
    )
    return look.dress(
        *layers,
        description=f"Speed over {rows[0]['memory_of']}; no arm is better in both than these: {points}.",
    )


def _labels(front: list[Datum], x: alt.X, y: alt.Y) -> Iterator[Any]:
    """Yield the names of the smallest and the fastest arm of the front, towards the middle of the chart."""
    smallest, fastest = (
        alt.Chart(look.values([row]), name=f"label_{name}").encode(x=x, y=y, text="label:N")
        for name, row in (("smallest", front[0]), ("fastest", front[-1]))
    )
    yield smallest.mark_text(align="left", baseline="top", dx=8, dy=5, limit=_LABEL, color=look.INK)
    if len(front) > 1:
        yield fastest.mark_text(align="right", baseline="bottom", dx=-6, dy=-8, limit=_LABEL, color=look.INK)
