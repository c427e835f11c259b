"""Memory against speed: which arms nothing beats in both."""

from __future__ import annotations

from collections.abc import Sequence

import altair as alt

from ggufspec.analysis import Arm
from ggufspec.report.plot import look
from ggufspec.report.plot.rows import Row, named_arms
from ggufspec.results import ResultSet

_LABEL = 130  # pixels
_MIB = 1 << 20


def pareto_rows(results: ResultSet) -> list[Row]:
    """Return what ``pareto`` draws, one row per arm, the smallest first.

    Columns: label, memory_of (in words, the same for all), memory_mib, tps, tps_lo, tps_hi, rate, gain, and
    front: whether no other arm is as small and faster.
    """
    fast = [(arm, row) for arm, row in named_arms(results) if row["gen_tps"]]
    of, sizes = _memory([arm for arm, _ in fast], results)
    known = [(size, row) for size, (_, row) in zip(sizes, fast, strict=True) if size is not None]
    rows: list[Row] = []
    best = 0.0
    for size, row in sorted(known, key=lambda each: (each[0], -each[1]["gen_tps"])):
        rows.append(
            {
                "label": row["label"],
                "memory_of": of,
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
    """Return which memory all arms tell, in words, and the most that a run of each took of it.

    That of GPUs comes first. Where every run loads anew, NVML measured what it added to what was in use
    before. Models that stay loaded are counted as llama.cpp said it, because NVML sees those of other arms,
    too. Builds for the processor alone have only the host's memory.
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
    """Whether every arm tells; one without layers on a GPU takes nothing there, but not all may."""
    return None not in sizes and any(sizes)


def _placed(arm: Arm) -> int | None:
    """Return what the log says of an arm's models on GPUs, the drafter's share included."""
    told = [(said.gpu_bytes, said.draft_gpu_bytes or 0) for said in arm.outputs]
    return max((own + drafter for own, drafter in told if own is not None), default=None)


def _most(arm: Arm, name: str, *, above: str | None = None) -> int | None:
    """Return the most that a column says over an arm's runs; with ``above`` less that of the same run."""
    sizes = arm.good.column(name)
    less = arm.good.column(above) if above else [0] * len(sizes)
    pairs = zip(sizes, less, strict=True)
    return max((size - own for size, own in pairs if size is not None and own is not None), default=None)


def pareto(results: ResultSet) -> alt.LayerChart | None:
    """Return tokens/s over memory with the Pareto front; None with fewer than two sizes known.

    The axis says which memory: that of the GPUs where it was measured, else that of llama.cpp's process.
    """
    return draw_pareto(pareto_rows(results))


def draw_pareto(rows: list[Row]) -> alt.LayerChart | None:
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
    tooltip = [
        alt.Tooltip("label:N", title="arm"),
        alt.Tooltip("memory_mib:Q", title="MiB", format=".4~r"),
        alt.Tooltip("tps:Q", title="tokens/s", format=".4~r"),
        alt.Tooltip("gain:N", title="speed-up"),
    ]
    front = [row for row in rows if row["front"]]
    every = alt.Chart(look.values(rows)).encode(x=x, tooltip=tooltip)
    ahead = alt.Chart(look.values(front)).encode(x=x, y=y)
    layers = (
        ahead.mark_line(interpolate="step-after", color=look.BLUE, strokeWidth=2, strokeDash=[4, 3]),
        every.mark_rule(strokeWidth=1.5, opacity=0.5, color=look.QUIET).encode(
            y=alt.Y("tps_lo:Q", title="tokens/s"), y2="tps_hi:Q"
        ),
        every.mark_point(filled=True, size=75, opacity=1).encode(
            y=y,
            color=alt.condition("datum.front", alt.value(look.BLUE), alt.value(look.QUIET)),
            shape=alt.condition("datum.front", alt.value("diamond"), alt.value("circle")),
        ),
        ahead.properties(name="label_each")
        .mark_text(align="left", baseline="top", dx=8, dy=5, limit=_LABEL, color=look.INK)
        .encode(text="label:N"),
    )
    said = "; ".join(f"{row['label']}: {row['memory_mib']:.0f} MiB, {row['rate']} tokens/s" for row in front)
    return look.dress(
        *layers,
        description=f"Speed over {rows[0]['memory_of']}; nothing beats these in both: {said}.",
    )
