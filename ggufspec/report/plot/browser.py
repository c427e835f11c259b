"""Charts on a page without a network: the code of the library, and specs that fit the page."""

from __future__ import annotations

import os
from contextlib import suppress
from functools import cache
from importlib import metadata
from typing import Any

import altair as alt
import vl_convert

from ggufspec import paths


@cache
def javascript() -> str:
    """Return Vega, Vega-Lite and Vega-Embed as one script that sets ``window.vegaEmbed``, some 900 kB.

    Their licence is BSD 3-clause, © University of Washington Interactive Data Lab. Bundling takes
    seconds, so the script is kept in the cache folder.
    """
    file = paths.cache_dir() / f"vega-{metadata.version('vl-convert-python')}.js"
    with suppress(OSError, UnicodeDecodeError):
        return file.read_text(encoding="utf-8")
    script = str(vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;"))
    with suppress(OSError):  # the cache is optional
        file.parent.mkdir(parents=True, exist_ok=True)
        new = file.with_name(f".{file.name}.{os.getpid()}")
        new.write_text(script, encoding="utf-8")
        new.replace(file)
    return script


def spec(chart: alt.LayerChart) -> dict[str, Any]:
    """Return a chart's Vega-Lite spec: as wide as its container, transparent, without URLs."""
    drawing: dict[str, Any] = chart.to_dict()
    del drawing["$schema"]
    sizing = {"autosize": {"type": "fit-x", "contains": "padding"}, "width": "container", "background": None}
    return {**drawing, **sizing}
