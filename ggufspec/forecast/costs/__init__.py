"""What one evaluation costs: measured in seconds, or computed from a machine's published peaks."""

from __future__ import annotations

from ggufspec.forecast.costs.curve import CostCurve, CurveKind, MeasuredOn, Point, flat_curve
from ggufspec.forecast.costs.roofline import DEVICES, DevicePeaks, Shape, roofline, seconds

__all__ = [
    "DEVICES",
    "CostCurve",
    "CurveKind",
    "DevicePeaks",
    "MeasuredOn",
    "Point",
    "Shape",
    "flat_curve",
    "roofline",
    "seconds",
]
