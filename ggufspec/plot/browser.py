"""What a page needs to draw charts without a network: the library's own code, and specs that fit the page."""

from __future__ import annotations

from functools import cache
from typing import Any

import altair as alt
import vl_convert


@cache
def javascript() -> str:
    """Return Vega, Vega-Lite and Vega-Embed as one script that sets ``window.vegaEmbed``, some 900 kB.

    Their licence is BSD 3-clause, © University of Washington Interactive Data Lab.
    """
    return str(vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;"))


def spec(chart: alt.LayerChart) -> dict[str, Any]:
    """Return a chart's Vega-Lite spec: as wide as its place on the page, transparent, without any URL."""
    whole: dict[str, Any] = chart.to_dict()
    del whole["$schema"]
    sizing = {"autosize": {"type": "fit-x", "contains": "padding"}, "width": "container", "background": None}
    return {**whole, **sizing}
