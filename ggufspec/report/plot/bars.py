"""Tokens/s of each arm as bars, for arms without a draft size to draw them over."""

from __future__ import annotations

from typing import Any

import altair as alt

from ggufspec.report.plot import look
from ggufspec.report.plot.look import Datum
from ggufspec.report.rows.charts import SpeedRow

_BAND = 46  # pixels of an arm: its name above its bar
_BAR = 16
_RAISED, _LOWERED = -11, 9  # pixels of the name and of the bar from the middle of the band
_VALUE = 120  # pixels at the right of a name for its value
_KINDS = {"target alone": look.QUIET, "measured": look.BLUE, "forecast": look.QUIET}


def draw_bars(rows: list[Datum]) -> alt.LayerChart:
    """Draw tokens/s with 95 % intervals as a bar for each row: label, kind, tps, tps_lo, tps_hi, rate, gain.

    A name stands above its bar, not beside it: so it is whole on a phone, too.
    """
    y = alt.Y("row:O", sort=None, axis=None, scale=alt.Scale(paddingInner=0, paddingOuter=0))
    shown = [{**row, "row": place, "value": _value(row)} for place, row in enumerate(rows)]
    x = alt.X("tps:Q", title="tokens/s", scale=look.speeds(rows), axis=alt.Axis(tickCount=5))
    base = alt.Chart(look.values(shown)).encode(
        y=y,
        tooltip=look.tooltip(SpeedRow, "series"),
    )
    kinds = list(dict.fromkeys(row["kind"] for row in rows))
    colours = alt.Scale(domain=kinds, range=[_KINDS[arm_kind] for arm_kind in kinds])
    layers: list[Any] = [
        base.mark_bar(size=_BAR, yOffset=_LOWERED, cornerRadiusEnd=2).encode(
            x=x,
            color=alt.Color("kind:N", scale=colours, legend=None),
            opacity=alt.condition("datum.kind === 'forecast'", alt.value(0.5), alt.value(1)),
        )
    ]
    if look.has_intervals(rows):
        layers.append(
            base.mark_rule(strokeWidth=2, color=look.INK, yOffset=_LOWERED).encode(
                x=alt.X("tps_lo:Q", title="tokens/s"), x2="tps_hi:Q"
            )
        )
    texts = base.properties(name="label_arms")
    layers += [
        texts.mark_text(
            align="left", dy=_RAISED, color=look.INK, limit=alt.ExprRef(f"max(60, width - {_VALUE})")
        ).encode(x=alt.value(0), text="label:N"),
        base.properties(name="label_values")
        .mark_text(align="right", dy=_RAISED, color=look.INK, fontWeight="bold")
        .encode(x=alt.value("width"), text="value:N"),
    ]
    speeds = "; ".join(f"{row['label']} {row['value']}" for row in shown)
    return look.dress(
        *layers, description=f"Tokens per second of each arm: {speeds}.", height=_BAND * len(rows)
    )


def _value(row: Datum) -> str:
    """Return tokens/s and the speed-up, if there is one: ``44.2 (1.35×)``."""
    return f"{row['rate']} ({row['gain']})" if row["gain"] else str(row["rate"])
