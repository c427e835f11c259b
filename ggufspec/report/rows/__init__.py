"""The rows of all tables: a new field here is a new column of frames, of JSON and its schema, and of tables.

See ``report.columns``.
"""

from __future__ import annotations

from ggufspec.report.rows.benches import (
    AcceptanceRow,
    ArmRow,
    BenchArm,
    ComparedItem,
    ComparisonRow,
    EnergyRow,
    MachineRow,
    NamedAdvice,
    OriginRow,
    SettingsRow,
    SummaryRow,
)
from ggufspec.report.rows.plans import (
    BisectionRow,
    CrossoverRow,
    DeviceRow,
    FinalistRow,
    ForecastRow,
    ListedBenchRow,
    OutlookRow,
    PlannedArmRow,
    PlannedBlockRow,
    PlanRow,
    ProspectRow,
    list_finalists,
    list_plans,
    list_trials,
)
from ggufspec.report.rows.runs import (
    ArmOnPrompts,
    CategoryRow,
    LogRow,
    PositionRow,
    PromptRow,
    RoundRow,
    RunColumns,
    RunRow,
)

__all__ = [
    "AcceptanceRow",
    "ArmOnPrompts",
    "ArmRow",
    "BenchArm",
    "BisectionRow",
    "CategoryRow",
    "ComparedItem",
    "ComparisonRow",
    "CrossoverRow",
    "DeviceRow",
    "EnergyRow",
    "FinalistRow",
    "ForecastRow",
    "ListedBenchRow",
    "LogRow",
    "MachineRow",
    "NamedAdvice",
    "OriginRow",
    "OutlookRow",
    "PlanRow",
    "PlannedArmRow",
    "PlannedBlockRow",
    "PositionRow",
    "PromptRow",
    "ProspectRow",
    "RoundRow",
    "RunColumns",
    "RunRow",
    "SettingsRow",
    "SummaryRow",
    "list_finalists",
    "list_plans",
    "list_trials",
]
