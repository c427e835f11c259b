"""Results as pandas DataFrames; the only module that imports pandas at run time.

The columns of each frame are those of its row type in ``rows``. Fractions stay fractions, absent values are
null, and column names have the units.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, BinaryIO

import pandas as pd

from ggufspec.analysis import BenchComparison, Board, CrossoverMap, Guard, ListedBench, arms, of_segments
from ggufspec.domain import RunSpec
from ggufspec.forecast import Forecast, planning
from ggufspec.forecast.whatif import ServedForecast, WhatIf
from ggufspec.llama.logs import LoggedRun
from ggufspec.notebooks import named_options
from ggufspec.report.columns import Row
from ggufspec.report.rows import benches as bench_rows, plans as plan_rows, runs as run_rows
from ggufspec.report.rows.listing import ConfigurationRow, ListedBenchRow
from ggufspec.results import Meta, ResultSet
from ggufspec.tuning import Prospect, Tuned
from ggufspec.tuning.bisect import Bisection, Verdict


def _frame(row: type[Row], items: Iterable[Any]) -> pd.DataFrame:
    """Return a frame with a row for each item, in which integers stay integers even if some are absent."""
    records = [row.record(item) for item in items]
    return pd.DataFrame(records, columns=list(row.names()), dtype=object).convert_dtypes()


@named_options
def origin(bench: ResultSet | Meta) -> dict[str, Any]:
    """Return where the rows of a bench come from, see ``report.rows.OriginRow``."""
    return bench_rows.OriginRow.record(bench.meta if isinstance(bench, ResultSet) else bench)


@named_options
def summary(results: ResultSet) -> pd.DataFrame:
    """Return one row per arm: target alone, drafter alone, drafting at each size.

    What the columns hold says ``report.rows.SummaryRow``; intervals are of 95 %, see stats.
    """
    return _frame(bench_rows.SummaryRow, bench_rows.BenchArm.list(results))


def machines(benches: Mapping[str, ResultSet]) -> pd.DataFrame:
    """Return one row per arm of each machine, with the machine before the columns of ``summary``."""
    return _frame(
        bench_rows.MachineRow,
        (
            {"machine": machine, "summary": arm}
            for machine, bench in benches.items()
            for arm in bench_rows.BenchArm.list(bench)
        ),
    )


@named_options
def runs(results: ResultSet) -> pd.DataFrame:
    """Return one row per run; columns mark warm-ups, anchors, failures and disturbed runs."""
    measured = results.runs
    distinct = {spec.key: spec for spec in measured.specs}
    settings = {key: bench_rows.SettingsRow.record(spec) for key, spec in distinct.items()}
    columns = {
        name: [settings[spec.key][name] for spec in measured.specs] for name in bench_rows.SettingsRow.names()
    }
    columns["bench"] = [results.meta.id] * len(measured)
    table = run_rows.RunColumns(measured)
    made = {
        name: columns[name] if name in columns else column.source(table)
        for name, column in run_rows.RunRow.columns.items()
    }
    return pd.DataFrame(made, index=range(len(measured)), dtype=object).convert_dtypes()


def sort_by_arm(frame: pd.DataFrame, results: ResultSet) -> pd.DataFrame:
    """Return a frame of runs or rounds sorted by arm, each arm's rows in the order of measurement."""
    keys = [tuple(bench_rows.SettingsRow.record(arm.spec).values()) for arm in arms.group(results)]
    rank = {key: place for place, key in enumerate(keys)}
    plain = frame[list(bench_rows.SettingsRow.names())].astype(object)
    settings = plain.where(plain.notna(), None).itertuples(index=False, name=None)
    ranks = pd.Series([rank.get(key, len(rank)) for key in settings], index=frame.index, dtype=int)
    return frame.loc[ranks.sort_values(kind="stable").index]


@named_options
def prompts(results: ResultSet) -> pd.DataFrame:
    """Return one row per arm and prompt: mean tokens/s, mean of the paired speed-ups, acceptance.

    A prompt of which every cell is excluded, because it was disturbed or its text differs, has no tokens/s.
    """
    return _frame(
        run_rows.PromptRow,
        (
            run_rows.ArmOnPrompts(arm=arm, prompts=(prompt,))
            for arm in arms.group(results)
            for prompt in dict.fromkeys(spec.prompt for spec in arm.good.specs)
        ),
    )


@named_options
def categories(results: ResultSet) -> pd.DataFrame:
    """Return one row per arm and category of prompts: the columns of ``summary`` for these prompts only."""
    return _frame(
        run_rows.CategoryRow,
        (part for arm in arms.group(results) for part in run_rows.ArmOnPrompts.by_category(arm)),
    )


@named_options
def turns(results: ResultSet) -> pd.DataFrame:
    """Return one row per arm and turn, counted from 1, over all conversations that have such a turn."""
    return _frame(
        run_rows.TurnRow, (part for arm in arms.group(results) for part in run_rows.ArmOnPrompts.by_turn(arm))
    )


@named_options
def segments(results: ResultSet) -> pd.DataFrame:
    """Return one row per arm and kind of text: thinking, tool calls, JSON, code and prose."""
    return _frame(run_rows.SegmentRow, (part for arm in arms.group(results) for part in of_segments(arm)))


@named_options
def positions(results: ResultSet) -> pd.DataFrame:
    """Return one row per drafting arm, category and draft position (1 is the first drafted token)."""
    parts = (part for arm in arms.group(results) for part in run_rows.ArmOnPrompts.by_category(arm))
    return _frame(run_rows.PositionRow, (position for part in parts for position in part.positions()))


@named_options
def rounds(results: ResultSet) -> pd.DataFrame:
    """Return one row per verification round, for programs that report rounds."""
    return _frame(
        run_rows.RoundRow,
        (
            {"run": run, "round": number, "verified": verified}
            for run in results.current
            for number, verified in enumerate(run.sample.rounds or (), start=1)
        ),
    )


@named_options
def comparison(compared: BenchComparison, guard: Guard | None = None) -> pd.DataFrame:
    """Return one row per arm that both sides have, see ``report.rows.ComparisonRow``."""
    return _frame(bench_rows.ComparisonRow, bench_rows.ComparedItem.list(compared, guard))


def board(board: Board) -> pd.DataFrame:
    """Return a row for each arm of a board, the largest speed-up first."""
    return _frame(ConfigurationRow, board.rows)


def benches(stored: Iterable[ListedBench]) -> pd.DataFrame:
    """Return a row for each bench; ``complete`` is whether it has every planned run."""
    return _frame(ListedBenchRow, stored)


def logs(runs: Sequence[LoggedRun]) -> pd.DataFrame:
    """Return one row per run in logs, with the lines that have its figures."""
    return _frame(run_rows.LogRow, runs)


def forecasts(forecasts: Sequence[Forecast]) -> pd.DataFrame:
    """Return one row per forecast; ``category`` is null over all prompts."""
    return _frame(plan_rows.ForecastRow, forecasts)


def served_forecasts(served: ServedForecast) -> pd.DataFrame:
    """Return one row per draft size; what needs a server with the target alone is left out without one."""
    made = forecasts(served.forecasts)
    known = [
        name for name in plan_rows.ForecastRow.names() if not re.search("speedup|target|break_even", name)
    ]
    return made if served.has_baseline else made[known]


def prospects(configurations: Sequence[Prospect]) -> pd.DataFrame:
    """Return one row per forecast configuration, and one more for each category of prompts."""
    return _frame(
        plan_rows.ProspectRow,
        (
            {"prospect": prospect, "forecast": forecast}
            for prospect in configurations
            for forecast in (prospect.overall, *prospect.by_category.values())
        ),
    )


def outlooks(answer: WhatIf) -> pd.DataFrame:
    """Return one row per γ and acceptance; ``costs`` says where the costs come from."""
    items = ({"projection": projection, "costs": answer.costs} for projection in answer.projections)
    return _frame(plan_rows.OutlookRow, items)


def finalists(tuned: Tuned) -> pd.DataFrame:
    """Return one row per measured configuration: those of the confirmation, then those of the selection."""
    return _frame(plan_rows.FinalistRow, plan_rows.list_finalists(tuned))


def memory_plans(planned: planning.Planned) -> pd.DataFrame:
    """Return one row per number of the target's layers, see ``report.rows.PlanRow``."""
    return _frame(plan_rows.PlanRow, plan_rows.list_plans(planned))


def crossover(crossover: CrossoverMap) -> pd.DataFrame:
    """Return one row per number of users and depth, with the fastest draft size there."""
    return _frame(plan_rows.CrossoverRow, crossover.cells)


def bisection(bisected: Bisection, verdict: Verdict) -> pd.DataFrame:
    """Return one row per compared pair of versions, see ``report.rows.BisectionRow``."""
    return _frame(plan_rows.BisectionRow, plan_rows.list_trials(bisected, verdict))


def planned_arms(expected: Mapping[RunSpec, float], *, runs: int) -> pd.DataFrame:
    """Return one row per arm of a planned sweep, with its expected seconds."""
    items = ({"spec": spec, "runs": runs, "expected_s": seconds} for spec, seconds in expected.items())
    return _frame(plan_rows.PlannedArmRow, items)


def planned_blocks(blocks: Iterable[Mapping[str, Any]]) -> pd.DataFrame:
    """Return one row per block of a fleet's plan: who would measure it, from when to when."""
    return _frame(plan_rows.PlannedBlockRow, sorted(blocks, key=lambda row: (row["from_s"], row["machine"])))


def join_machines(tables: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """Return the tables of several machines as one, with the machine as the first column.

    Args:
        tables: machine -> its rows; all have the same columns.
    """
    parts = []
    for machine, table in tables.items():
        part = table.copy()
        part.insert(0, "machine", pd.Series([machine] * len(part), index=part.index, dtype="string"))
        parts.append(part)
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=["machine"])


def read_parquet(file: BinaryIO) -> pd.DataFrame:
    """Return the table of a Parquet file.

    Raises:
        ValueError: it is not Parquet.
    """
    return pd.read_parquet(file)
