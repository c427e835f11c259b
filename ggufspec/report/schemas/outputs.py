"""The types of the outputs for programs, from which their JSON Schemas are made.

Every field is always there; null is what was not measured or does not apply. Fractions are fractions, units
are in the names.
"""

from __future__ import annotations

from types import GenericAlias
from typing import Annotated, Any

from msgspec import Meta, Struct, defstruct

from ggufspec.choices import Layers
from ggufspec.domain import Estimate, Launch, Serving, SpeedVerdict
from ggufspec.report.columns import Column, Row
from ggufspec.report.rows import ComparisonRow, FinalistRow, NamedAdvice, OriginRow, PlanRow, SummaryRow


class DoctorFinding(Struct, forbid_unknown_fields=True, kw_only=True):
    """The result of one check; ``status`` is ok, remark or missing."""

    name: str
    status: str
    text: str
    fix: str | None


class DoctorReport(Struct, forbid_unknown_fields=True, kw_only=True):
    """All checks of this machine; ``can_run`` is whether a bench can run, after a build if necessary."""

    schema: str
    can_run: bool
    findings: list[DoctorFinding]


class TunedArm(Struct, forbid_unknown_fields=True, kw_only=True):
    """A drafter, draft size and offload; the target alone has neither drafter nor method."""

    target: str
    drafter: str | None
    method: str | None
    draft: int | None
    p_min: float | None
    requested_ngl: Layers
    requested_ngld: Layers


class Choice(TunedArm, forbid_unknown_fields=True, kw_only=True):
    """What is safe to run for the prompts of a category, or for all of them (null).

    ``verdict``, ``speedup`` and ``p_value`` are of ``candidate``, a configuration that drafts, over the
    target alone. Only where it is faster, it is also what to run.
    """

    category: str | None
    prompts: int
    tokens_per_s: Estimate
    verdict: SpeedVerdict | None
    candidate: TunedArm | None
    speedup: Estimate | None
    p_value: float | None


class ForecastRow(TunedArm, forbid_unknown_fields=True, kw_only=True):
    """The forecast of a configuration over all prompts.

    ``n_rounds_lo`` and ``n_rounds_hi`` are how many rounds there may be where near-ties fall otherwise; null
    where that was not asked for: of slower configurations, and for several users or sampled texts.
    ``sure_texts`` are the prompts whose text no near-tie of the target can change.
    """

    tokens_per_s: Estimate
    speedup: Estimate
    accept_rate: float | None
    n_rounds: float
    n_rounds_lo: int | None
    n_rounds_hi: int | None
    sure_texts: int | None
    break_even_accept_rate: float | None


class PassedOverArm(TunedArm, forbid_unknown_fields=True, kw_only=True):
    """A configuration that was better, and why it is not recommended."""

    reason: str


class Finalist(TunedArm, forbid_unknown_fields=True, kw_only=True):
    """A measured configuration; only the confirmation's figures are a verdict."""

    stage: str
    recommended: bool
    tokens_per_s: Estimate | None
    speedup: Estimate | None
    accept_rate: float | None
    status: str


class Needs(Struct, forbid_unknown_fields=True, kw_only=True):
    """What alone would have to change for drafting to pay."""

    draft: int
    accept_rate: float | None
    drafter_factor: float | None
    verify_ratio: float | None


class Corrections(Struct, forbid_unknown_fields=True, kw_only=True):
    """How measured runs corrected the forecast."""

    runs: int
    corrections: dict[str, Estimate]


class TuneReport(Struct, forbid_unknown_fields=True, kw_only=True):
    """The verdict of a tuning, with commands that run and measure it, and all forecasts."""

    schema: str
    verdict: str
    drafts: bool
    overall: Choice
    by_category: list[Choice]
    alike: list[TunedArm]
    edge: int | None
    reason: str | None
    needs: Needs | None
    engine: str
    serving: Serving | None
    launch: Launch | None
    passed_over: list[PassedOverArm]
    commands: dict[str, str]
    pair: str
    spent_s: dict[str, float]
    prompts: list[str]
    n_predict: int
    results: str
    selection: str
    warnings: list[NamedAdvice]
    finalists: list[Finalist]
    calibration: Corrections | None
    forecasts: list[ForecastRow]


class DraftGain(Struct, forbid_unknown_fields=True, kw_only=True):
    """What one draft size does for several users; tokens/s are of all users together."""

    draft: int
    tokens_per_s: float
    speedup: Estimate


class CrossoverCell(Struct, forbid_unknown_fields=True, kw_only=True):
    """A number of users at a depth, with the fastest draft size.

    ``source`` is measured, forecast or unknown, ``verdict`` faster, slower, same or undecided. ``drafts`` is
    whether the policy is to draft.
    """

    users: int
    depth: int
    source: str
    verdict: str
    drafts: bool
    draft: int | None
    speedup: Estimate | None
    tokens_per_s: float | None
    target_tokens_per_s: float | None
    repeats: int
    by_draft: list[DraftGain]


class UsersLimit(Struct, forbid_unknown_fields=True, kw_only=True):
    """The number of users from which drafting does not pay at a depth.

    Null if it pays for the most users, or nothing is known about them.
    """

    depth: int
    users: int | None


class DepthLimit(Struct, forbid_unknown_fields=True, kw_only=True):
    """The depth from which drafting does not pay for so many users.

    Null if it pays at the deepest, or nothing is known about that.
    """

    users: int
    depth: int | None


class CrossoverReport(Struct, forbid_unknown_fields=True, kw_only=True):
    """Where drafting pays over users and depth.

    ``cells`` are row by row: all depths of the first number of users come first. All their intervals hold
    together in 95 of 100 maps. ``run_sd`` and ``forecast_sd`` are standard deviations of log speed-ups,
    ``forecast_errors`` measured over forecast speed-ups - 1.
    """

    schema: str
    bench: str
    pair: str
    policy: str
    users: list[int]
    depths: list[int]
    cells: list[CrossoverCell]
    users_limits: list[UsersLimit]
    depth_limits: list[DepthLimit]
    run_sd: float | None
    forecast_sd: float
    forecast_errors: list[float]
    warnings: list[NamedAdvice]


def _rows(row: type[Row], *before: type[Row]) -> Any:
    """Return the type of rows in JSON: objects with ``schema``, other rows' columns and their own."""
    fields: dict[str, Any] = {"schema": str}
    for part in (*before, row):
        for column in part.columns.values():
            fields |= {} if column.only_shown else _described(column)
    item = defstruct(
        row.__name__,
        list(fields.items()),
        module=__name__,
        namespace={"__doc__": row.description},
        forbid_unknown_fields=True,
        kw_only=True,
    )
    return GenericAlias(list, (item,))


def _described(column: Column) -> dict[str, Any]:
    """Return the types of a column by the names that it has in a frame, with its help."""
    if not column.help:
        return column.types
    return {name: Annotated[hint, Meta(description=column.help)] for name, hint in column.types.items()}


TYPES: dict[str, Any] = {
    "summary": _rows(SummaryRow, OriginRow),
    "comparison": _rows(ComparisonRow),
    "tune": TuneReport,
    "finalists": _rows(FinalistRow, OriginRow),
    "crossover": CrossoverReport,
    "plan": _rows(PlanRow),
    "doctor": DoctorReport,
}
"""Output -> its type; with ``-o jsonl``, each line is an item of the list."""

TITLES = {
    "summary": "Arms of a bench: `bench`, `sweep` and `show` with -o json",
    "comparison": "A comparison of benches: `compare -o json`",
    "tune": "A tuning: `tune -o json`",
    "finalists": "Measured configurations of a tuning: `tune -o jsonl`",
    "crossover": "Where drafting pays over users and depth: `crossover -o json`",
    "plan": "Memory by layers on the GPU: `plan -o json`",
    "doctor": "Checks of a machine: `doctor -o json`",
}
