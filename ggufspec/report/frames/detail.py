"""A bench in detail: one row per arm and prompt, per draft position, per verification round."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import zip_longest
from typing import Any

import pandas as pd

from ggufspec import stats
from ggufspec.analysis import acceptance, arms
from ggufspec.domain import Prompt, RunSpec
from ggufspec.report.frames.bench import SETTING_COLUMNS, settings
from ggufspec.report.frames.tables import attributes, frame
from ggufspec.results import ResultSet

_ACCEPTANCE = ("n_drafted", "n_accepted", "n_rounds", "accept_rate", "mean_accepted_length", "coverage")
PROMPT_COLUMNS = (*SETTING_COLUMNS, "prompt", "category", "repeats", "gen_tps", "speedup", *_ACCEPTANCE)
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
ROUND_COLUMNS = ("run", *SETTING_COLUMNS, "prompt", "repeat", "round", "n_drafted", "n_accepted")


def prompts(results: ResultSet) -> pd.DataFrame:
    """Return one row per arm and prompt: mean tokens/s, mean of the paired speed-ups, acceptance."""
    rows: list[dict[str, Any]] = []
    groups = arms.group(results)
    baselines = {arm.spec: arm for arm in groups}
    for arm in groups:
        baseline = baselines.get(arm.spec.baseline) if arm.draft_size else None
        rates = stats.per_prompt(arm.rates)
        gains = stats.per_prompt(arm.rates, baseline.rates) if baseline else {}
        said: dict[Prompt, list[Any]] = {}
        for spec, output in zip(arm.good.specs, arm.outputs, strict=True):
            said.setdefault(spec.prompt, []).append(output)
        rows += [
            {
                **settings(arm.spec),
                **attributes(acceptance.of(outputs) if arm.draft_size else None, _ACCEPTANCE),
                "prompt": prompt.id,
                "category": prompt.category,
                "repeats": len(outputs),
                "gen_tps": rates[prompt.id],
                "speedup": gains.get(prompt.id),
            }
            for prompt, outputs in said.items()
        ]
    return frame(rows, PROMPT_COLUMNS)


def categories(results: ResultSet) -> pd.DataFrame:
    """Return one row per arm and category of prompts: the figures of ``summary`` for these prompts alone."""
    rows: list[dict[str, Any]] = []
    for arm in arms.group(results):
        named = {spec.prompt.id: spec.prompt.category for spec in arm.good.specs}
        for category in dict.fromkeys(named.values()):
            own = arm.rates.of_prompts({prompt for prompt, of in named.items() if of == category})
            gain = stats.paired_effect(own, arm.baseline.rates) if arm.baseline else None
            said = zip(arm.good.specs, arm.outputs, strict=True)
            outputs = [output for spec, output in said if spec.prompt.category == category]
            rate = stats.mean_rate(own)
            rows.append(
                {
                    **settings(arm.spec),
                    **attributes(acceptance.of(outputs) if arm.draft_size else None, _ACCEPTANCE),
                    "category": category,
                    "prompts": sum(value == category for value in named.values()),
                    "gen_tps": rate and rate.value,
                    "gen_tps_lo": rate and rate.lo,
                    "gen_tps_hi": rate and rate.hi,
                    "speedup": gain and gain.ratio.value,
                    "speedup_lo": gain and gain.ratio.lo,
                    "speedup_hi": gain and gain.ratio.hi,
                    "verdict": gain and gain.verdict.value,
                }
            )
    return frame(rows, CATEGORY_COLUMNS)


def positions(results: ResultSet) -> pd.DataFrame:
    """Return one row per drafting arm, category and draft position (1 is the first drafted token).

    ``accept_rate`` is the share of drafts that were accepted up to there,
    ``conditional_accept_rate`` its share among those that were accepted up to the position before.
    """
    rows: list[dict[str, Any]] = []
    for arm in arms.group(results):
        said: dict[str | None, list[Any]] = {}
        for spec, output in zip(arm.good.specs, arm.outputs, strict=True):
            said.setdefault(spec.prompt.category, []).append(output)
        for category, outputs in said.items():
            of = acceptance.of(outputs)
            if not arm.draft_size or of is None or of.by_position is None or of.n_drafts is None:
                continue
            rows += [
                {
                    **settings(arm.spec),
                    "category": category,
                    "position": position,
                    "n_drafts": of.n_drafts,
                    "n_accepted": round(share * of.n_drafts),
                    "accept_rate": share,
                    "conditional_accept_rate": given,
                }
                for position, (share, given) in enumerate(
                    zip_longest(of.by_position, of.conditional or ()), start=1
                )
            ]
    return frame(rows, POSITION_COLUMNS)


def rounds(results: ResultSet) -> pd.DataFrame:
    """Return one row per verification round, of the runs whose program tells."""
    rows = [
        {
            **settings(run.spec),
            "run": run.log,
            "prompt": run.spec.prompt.id,
            "repeat": run.repeat,
            "round": number,
            "n_drafted": each.drafted,
            "n_accepted": each.accepted,
        }
        for run in results.current
        for number, each in enumerate(run.sample.rounds or (), start=1)
    ]
    return frame(rows, ROUND_COLUMNS)


def cells(expected: Mapping[RunSpec, float], *, runs: int) -> pd.DataFrame:
    """Return one row per arm of a sweep that was not yet run, with its expected seconds."""
    rows = [
        {**settings(spec), "runs": runs, "expected_s": round(seconds, 1)}
        for spec, seconds in expected.items()
    ]
    return frame(rows, CELL_COLUMNS)
