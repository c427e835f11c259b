"""From stored runs to statements: arms, acceptance, comparisons, and warnings about the measurement."""

from __future__ import annotations

from ggufspec.analysis.acceptance import Acceptance
from ggufspec.analysis.arm import Arm, models_of
from ggufspec.analysis.boards import Board, BoardRow, BundleState, PublishedBundle
from ggufspec.analysis.breakdown import Breakdown, Diagnosis, Part, why
from ggufspec.analysis.comparing import BenchComparison, Change, Design, compare
from ggufspec.analysis.crossover import (
    CellSource,
    CellVerdict,
    CrossoverCell,
    CrossoverMap,
    DraftGain,
    map_crossover,
    read_crossover,
)
from ggufspec.analysis.guarding import FAIL_ERROR, PASS_ERROR, Guard, GuardedRow, GuardState
from ggufspec.analysis.listing import ListedBench
from ggufspec.analysis.texts import AuditSummary
from ggufspec.analysis.warnings import MeasurementWarning

__all__ = [
    "FAIL_ERROR",
    "PASS_ERROR",
    "Acceptance",
    "Arm",
    "AuditSummary",
    "BenchComparison",
    "Board",
    "BoardRow",
    "Breakdown",
    "BundleState",
    "CellSource",
    "CellVerdict",
    "Change",
    "CrossoverCell",
    "CrossoverMap",
    "Design",
    "Diagnosis",
    "DraftGain",
    "Guard",
    "GuardState",
    "GuardedRow",
    "ListedBench",
    "MeasurementWarning",
    "Part",
    "PublishedBundle",
    "compare",
    "map_crossover",
    "models_of",
    "read_crossover",
    "why",
]
