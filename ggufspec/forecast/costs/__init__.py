"""What one evaluation costs: measured in seconds, or computed from a machine's published peaks."""

from __future__ import annotations

from ggufspec.forecast.costs.curve import CostCurve, CurveKind, MeasuredOn, Point, flat_curve
from ggufspec.forecast.costs.efficiency import ON_GPU, ON_HOST, Efficiency, PublishedFigure, with_interval
from ggufspec.forecast.costs.experts import (
    PERSISTENCE,
    ExpertUse,
    count_experts,
    describe_experts,
    needed_share,
)
from ggufspec.forecast.costs.roofline import (
    DEVICES,
    DevicePeaks,
    ModelPart,
    Shape,
    find_device,
    match_device,
    roofline_of_parts,
    seconds,
    seconds_of_parts,
    step_seconds,
)
