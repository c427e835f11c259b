"""Measured once, kept: what evaluations cost on this machine, and what drafters would have proposed."""

from __future__ import annotations

from ggufspec.forecast.profiles.curves import curve, depths_for, of
from ggufspec.forecast.profiles.store import Profile, find_profile, keep, kept, known, save
from ggufspec.forecast.profiles.tracing import TracedTexts, traces

__all__ = [
    "Profile",
    "TracedTexts",
    "curve",
    "depths_for",
    "find_profile",
    "keep",
    "kept",
    "known",
    "of",
    "save",
    "traces",
]
