"""What one evaluation costs: measured in seconds, or computed from a machine's published peaks."""

from __future__ import annotations

from ggufspec.costs.curve import CostCurve, Kind, MeasuredOn, Point, flat
from ggufspec.costs.devices import DEVICES, Device
from ggufspec.costs.roofline import Shape, roofline, seconds

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
