"""A bench as charts: pure functions from results to Altair charts, for notebooks, files and the report.

    ggufspec.plot.curve(results)                              # shows itself in a notebook
    ggufspec.plot.curve(results).save("curve.html")           # or .json
    ggufspec.plot.image(ggufspec.plot.curve(results), "png")  # or "svg": bytes; no browser is needed

Each returns None where the results have nothing to show. Colours differ for colour-blind readers and on light
and dark pages. Numbers come from ``report.rows``.
"""

from __future__ import annotations

from ggufspec.report.plot.curves import curve, curve_rows, drift, has_curve, pareto
from ggufspec.report.plot.drawing import CHARTS, Drawn, Pictures, draw_pictures, drawn, image
from ggufspec.report.plot.heatmaps import crossover, heatmap
from ggufspec.report.plot.inside_rounds import positions, rounds, segments
