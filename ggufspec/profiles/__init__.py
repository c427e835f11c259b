"""Measured once, kept: what evaluations cost on this machine, and what drafters would have proposed."""

from __future__ import annotations

from ggufspec.profiles.curves import curve, depths_for, of, pooled
from ggufspec.profiles.forecasts import keep, kept
from ggufspec.profiles.store import Profile, find, known, save
from ggufspec.profiles.tracing import Texts, traces

__all__ = [
    "Profile",
    "Texts",
    "curve",
    "depths_for",
    "find",
    "keep",
    "kept",
    "known",
    "of",
    "pooled",
    "save",
    "traces",
]
