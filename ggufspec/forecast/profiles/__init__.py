"""Measured once, kept: what evaluations cost on this machine, and what drafters would have proposed."""

from __future__ import annotations

from ggufspec.forecast.profiles.curves import MeasuredCurve, depths_for, fit, measure_curve, of
from ggufspec.forecast.profiles.store import (
    SHARED,
    ExpectedRound,
    Profile,
    SharedProfile,
    find_profile,
    keep,
    keep_experts,
    keep_rounds,
    kept,
    kept_experts,
    kept_rounds,
    known,
    read_shared,
    save,
    write_shared,
)
from ggufspec.forecast.profiles.tracing import TracedTexts, traces
