"""From stored runs to statements: arms, acceptance, comparisons, and warnings about the measurement."""

from __future__ import annotations

from ggufspec.analysis.acceptance import Acceptance
from ggufspec.analysis.arms import Arm
from ggufspec.analysis.comparing import BenchComparison, compare
from ggufspec.analysis.listing import ListedBench
from ggufspec.analysis.texts import AuditSummary
from ggufspec.analysis.warnings import MeasurementWarning

__all__ = [
    "Acceptance",
    "Arm",
    "AuditSummary",
    "BenchComparison",
    "ListedBench",
    "MeasurementWarning",
    "compare",
]
