"""Memory against speed: which arms nothing beats in both."""

from __future__ import annotations

import altair as alt

from ggufspec.plot import look
from ggufspec.plot.rows import Row, arm_rows
from ggufspec.results import ResultSet

_MEMORY = "peak resident memory (MiB)"
_LABEL = 130  # pixels
_MIB = 1 << 20


def pareto_rows(results: ResultSet) -> list[Row]:
    """Return what ``pareto`` draws, one row per arm, the smallest first.

    Columns: label, memory_mib (the most that a run took on the host), tps, tps_lo, tps_hi, rate, gain, front:
    whether no other arm is as small and faster.
    """
    known = [row for row in arm_rows(results) if row["gen_tps"] and row["peak_rss_bytes"]]
    rows: list[Row] = []
    best = 0.0
    for row in sorted(known, key=lambda row: (row["peak_rss_bytes"], -row["gen_tps"])):
        rows.append(
            {
                "label": row["label"],
                "memory_mib": row["peak_rss_bytes"] / _MIB,
                **{f"tps{end}": row[f"gen_tps{end}"] for end in ("", "_lo", "_hi")},
                "rate": row["rate"],
                "gain": row["gain"],
                "front": row["gen_tps"] > best,
            }
        )
        best = max(best, row["gen_tps"])
    return rows


def pareto(results: ResultSet) -> alt.LayerChart | None:
    """Return tokens/s over memory with the Pareto front; None with fewer than two sizes known.

    Stored runs tell the peak resident memory of llama.cpp's process; what it holds on a GPU nobody recorded.
    """
    return draw_pareto(pareto_rows(results))


def draw_pareto(rows: list[Row]) -> alt.LayerChart | None:
    """Draw the rows of ``pareto_rows``."""
    if len({row["memory_mib"] for row in rows}) < 2:
        return None
    x = alt.X(
        "memory_mib:Q", title=_MEMORY, axis=alt.Axis(tickCount=6), scale=alt.Scale(zero=False, padding=30)
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
    return look.dress(*layers, description=f"Speed over memory; nothing beats these in both: {said}.")
