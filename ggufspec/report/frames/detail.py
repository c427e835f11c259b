"""A bench in detail: one row per arm and prompt, per draft position, per verification round."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import zip_longest
from typing import Any

import pandas as pd

from ggufspec import stats
from ggufspec.analysis import acceptance, arms
from ggufspec.domain import Prompt, RunSpec
from ggufspec.notebooks import named_options
from ggufspec.report.frames.bench import SETTING_COLUMNS, acceptance_row, settings
from ggufspec.report.frames.tables import frame
from ggufspec.report.schemas.rows import AcceptanceRow
from ggufspec.results import ResultSet

_ACCEPTANCE = AcceptanceRow.columns()
PROMPT_COLUMNS = (
    *SETTING_COLUMNS,
    "prompt",
    "category",
    "repeats",
    "gen_tps",
    "speedup",
    "verdict",
    *_ACCEPTANCE,
)
CATEGORY_COLUMNS = (
    *(*SETTING_COLUMNS, "category", "prompts", "gen_tps", "gen_tps_lo", "gen_tps_hi"),
    *("speedup", "speedup_lo", "speedup_hi", "verdict", *_ACCEPTANCE),
)
POSITION_COLUMNS = (
    *SETTING_COLUMNS,
    "category",
    "position",
    "n_drafts",
    "n_accepted",
    "accept_rate",
    "conditional_accept_rate",
)
CELL_COLUMNS = (*SETTING_COLUMNS, "runs", "expected_s")
PLANNED_BLOCK_COLUMNS = ("machine", "host", "block", "from_s", "until_s")
ROUND_COLUMNS = (*("log", *SETTING_COLUMNS, "prompt", "repeat", "round", "n_drafted", "n_accepted"),)


@named_options
def prompts(results: ResultSet) -> pd.DataFrame:
    """Return one row per arm and prompt: mean tokens/s, mean of the paired speed-ups, acceptance.

    A prompt of which every cell is excluded, because it was disturbed or its text differs, has no tokens/s.
    """
    rows: list[dict[str, Any]] = []
    groups = arms.group(results)
    baselines = {arm.spec: arm for arm in groups}
    for arm in groups:
        baseline = baselines.get(arm.spec.baseline) if arm.draft_size else None
        rates = stats.per_prompt(arm.rates)
        gains = stats.per_prompt(arm.rates, baseline.rates) if baseline else {}
        by_prompt: dict[Prompt, list[Any]] = {}
        for spec, output in zip(arm.good.specs, arm.outputs, strict=True):
            by_prompt.setdefault(spec.prompt, []).append(output)
        rows += [
            {
                **settings(arm.spec).cells(),
                **acceptance_row(acceptance.of(outputs) if arm.draft_size else None).cells(),
                "prompt": prompt.id,
                "category": prompt.category,
                "repeats": len(outputs),
                "gen_tps": rates.get(prompt.id),
                "speedup": gains.get(prompt.id),
                "verdict": arm.judge(arm.baseline, {prompt.id}).verdict.value if arm.baseline else None,
            }
            for prompt, outputs in by_prompt.items()
        ]
    return frame(rows, PROMPT_COLUMNS)


@named_options
def categories(results: ResultSet) -> pd.DataFrame:
    """Return one row per arm and category of prompts: the columns of ``summary`` for these prompts only."""
    rows: list[dict[str, Any]] = []
    for arm in arms.group(results):
        named = {spec.prompt.id: spec.prompt.category for spec in arm.good.specs}
        for category in dict.fromkeys(named.values()):
            of_category = {prompt for prompt, name in named.items() if name == category}
            rates_of_category = arm.rates.of_prompts(of_category)
            judged = arm.judge(arm.baseline, of_category) if arm.baseline else None
            ratio = judged and judged.ratio
            runs = zip(arm.good.specs, arm.outputs, strict=True)
            outputs = [output for spec, output in runs if spec.prompt.category == category]
            rate = stats.mean_rate(rates_of_category)
            rows.append(
                {
                    **settings(arm.spec).cells(),
                    **acceptance_row(acceptance.of(outputs) if arm.draft_size else None).cells(),
                    "category": category,
                    "prompts": sum(value == category for value in named.values()),
                    "gen_tps": rate and rate.value,
                    "gen_tps_lo": rate and rate.lo,
                    "gen_tps_hi": rate and rate.hi,
                    "speedup": ratio and ratio.value,
                    "speedup_lo": ratio and ratio.lo,
                    "speedup_hi": ratio and ratio.hi,
                    "verdict": judged and judged.verdict.value,
                }
            )
    return frame(rows, CATEGORY_COLUMNS)


@named_options
def positions(results: ResultSet) -> pd.DataFrame:
    """Return one row per drafting arm, category and draft position (1 is the first drafted token).

    ``accept_rate`` is the share of drafts that were accepted up to this position,
    ``conditional_accept_rate`` the share among those that were accepted up to the previous position.
    """
    rows: list[dict[str, Any]] = []
    for arm in arms.group(results):
        by_category: dict[str | None, list[Any]] = {}
        for spec, output in zip(arm.good.specs, arm.outputs, strict=True):
            by_category.setdefault(spec.prompt.category, []).append(output)
        for category, outputs in by_category.items():
            figures = acceptance.of(outputs)
            if (
                not arm.draft_size
                or figures is None
                or figures.by_position is None
                or figures.n_drafts is None
            ):
                continue
            rows += [
                {
                    **settings(arm.spec).cells(),
                    "category": category,
                    "position": position,
                    "n_drafts": figures.n_drafts,
                    "n_accepted": round(share * figures.n_drafts),
                    "accept_rate": share,
                    "conditional_accept_rate": conditional,
                }
                for position, (share, conditional) in enumerate(
                    zip_longest(figures.by_position, figures.conditional or ()), start=1
                )
            ]
    return frame(rows, POSITION_COLUMNS)


@named_options
def rounds(results: ResultSet) -> pd.DataFrame:
    """Return one row per verification round, for programs that report rounds."""
    rows = [
        {
            **settings(run.spec).cells(),
            "log": run.log,
            "prompt": run.spec.prompt.id,
            "repeat": run.repeat,
            "round": number,
            "n_drafted": verified.drafted,
            "n_accepted": verified.accepted,
        }
        for run in results.current
        for number, verified in enumerate(run.sample.rounds or (), start=1)
    ]
    return frame(rows, ROUND_COLUMNS)


def cells(expected: Mapping[RunSpec, float], *, runs: int) -> pd.DataFrame:
    """Return one row per arm of a planned sweep, with its expected seconds."""
    rows = [
        {**settings(spec).cells(), "runs": runs, "expected_s": round(seconds, 1)}
        for spec, seconds in expected.items()
    ]
    return frame(rows, CELL_COLUMNS)


def planned_blocks(blocks: Iterable[Mapping[str, Any]]) -> pd.DataFrame:
    """Return one row per block of a fleet's plan: who would measure it, from when to when."""
    rows = sorted(blocks, key=lambda row: (row["from_s"], row["machine"]))
    return frame(rows, PLANNED_BLOCK_COLUMNS)
