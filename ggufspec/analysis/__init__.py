"""From stored runs to statements: arms, acceptance, comparisons, and warnings about the measurement."""

from __future__ import annotations

from ggufspec.analysis.acceptance import Acceptance
from ggufspec.analysis.arm import Arm, models_of
from ggufspec.analysis.boards import Board, BoardRow, BundleState, PublishedBundle
from ggufspec.analysis.breakdown import Breakdown, Diagnosis, Part, why
from ggufspec.analysis.comparing import BenchComparison, Change, ComparedArm, Design, compare
from ggufspec.analysis.crossover import (
    LOOKS,
    CellSource,
    CrossoverCell,
    CrossoverMap,
    map_crossover,
    read_crossover,
)
from ggufspec.analysis.guarding import FAIL_ERROR, PASS_ERROR, Guard, GuardedRow, GuardState
from ggufspec.analysis.judging import (
    THRESHOLD,
    Ranking,
    is_meaningful,
    judge_effect,
    judge_family,
    judge_ratio,
    rank,
)
from ggufspec.analysis.listing import ListedBench, models
from ggufspec.analysis.segments import TextGain, differing_gains, judge_categories, of_segments
from ggufspec.analysis.texts import AuditSummary
from ggufspec.analysis.warnings import SERVER_LOADS, MeasurementWarning
