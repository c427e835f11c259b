"""What one evaluation costs: measured in seconds, or computed from a machine's published peaks."""

from __future__ import annotations

from ggufspec.forecast.costs.curve import CostCurve, Kind, MeasuredOn, Point, flat
from ggufspec.forecast.costs.roofline import DEVICES, Device, Shape, roofline, seconds

__all__ = [
    "DEVICES",
    "CostCurve",
    "Device",
    "Kind",
    "MeasuredOn",
    "Point",
    "Shape",
    "flat",
    "roofline",
    "seconds",
]
