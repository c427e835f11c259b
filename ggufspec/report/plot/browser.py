"""Charts on a page without a network: the code of the library, and specs that fit the page."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import altair as alt

SCRIPT = Path(__file__).with_name("vega.js")
"""Written by ``scripts/write_vega.py``, and part of the package: the library that bundles it has 84 MB."""


@cache
def javascript() -> str:
    """Return Vega, Vega-Lite and Vega-Embed as one script that sets ``window.vegaEmbed``, some 900 kB."""
    return SCRIPT.read_text(encoding="utf-8")


def spec(chart: alt.LayerChart) -> dict[str, Any]:
    """Return a chart's Vega-Lite spec: as wide as its container, transparent, without URLs."""
    drawing: dict[str, Any] = chart.to_dict()
    del drawing["$schema"]
    sizing = {"autosize": {"type": "fit-x", "contains": "padding"}, "width": "container", "background": None}
    return {**drawing, **sizing}
