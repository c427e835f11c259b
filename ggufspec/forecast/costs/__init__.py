"""What one evaluation costs: measured in seconds, or computed from a machine's published peaks."""

from __future__ import annotations

from ggufspec.forecast.costs.curve import CostCurve, CurveKind, MeasuredOn, Point, flat_curve
from ggufspec.forecast.costs.experts import (
    PERSISTENCE,
    ExpertUse,
    count_experts,
    describe_experts,
    needed_share,
)
from ggufspec.forecast.costs.roofline import (
    DEVICES,
    ON_GPU,
    ON_HOST,
    DevicePeaks,
    Efficiency,
    ModelPart,
    PublishedFigure,
    Shape,
    find_device,
    match_device,
    roofline_of_parts,
    seconds,
    seconds_of_parts,
    step_seconds,
    with_interval,
)
