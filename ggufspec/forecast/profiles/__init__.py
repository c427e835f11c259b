"""Measured once, kept: what evaluations cost on this machine, and what drafters would have proposed."""

from __future__ import annotations

from ggufspec.forecast.profiles.curves import curve, depths_for, of, pooled
from ggufspec.forecast.profiles.store import Profile, find, keep, kept, known, save
from ggufspec.forecast.profiles.tracing import Texts, traces

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
