"""What one evaluation costs: measured in seconds, or computed from a machine's published peaks."""

from __future__ import annotations

from ggufspec.forecast.costs.curve import CostCurve, CurveKind, MeasuredOn, Point, flat_curve
from ggufspec.forecast.costs.roofline import (
    DEVICES,
    ON_GPU,
    ON_HOST,
    PERSISTENCE,
    DevicePeaks,
    Efficiency,
    ExpertUse,
    ModelPart,
    PublishedFigure,
    Shape,
    count_experts,
    describe_experts,
    find_device,
    match_device,
    needed_share,
    roofline_of_parts,
    seconds,
    seconds_of_parts,
    step_seconds,
    with_interval,
)
