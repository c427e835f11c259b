"""What speed-ups vary by, and checks of them by other means: ``show --variance`` and ``show --all``."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ggufspec import units
from ggufspec.analysis import Arm, arms
from ggufspec.domain import Role
from ggufspec.report.text import figures, tables
from ggufspec.report.text.figures import engine, spread
from ggufspec.results import ResultSet
from ggufspec.stats import Components, Estimate, expected_width

_LABELS = ("", "γ")
_SPEEDUPS = (
    "speed-up: mean of the log ratios, which has the interval. median: of each prompt's median over repeats. "
    "equal work: total tokens over total time. all runs: without exclusions. first runs: before runs were "
    "measured again after a collapse."
)
_TOKENS = (
    "tokens/round: per evaluation of the target. tokens/draft: per verified draft, as llama-server and vLLM "
    "count."
)


def variance(results: ResultSet, output: str = "md") -> str:
    """Return the shares of variance of each speed-up, and what twice as many prompts or loads would give.

    Args:
        results: a bench.
        output: ``md``, or ``table`` for the terminal.
    """
    rows = [
        _variance_row(arm, arm.gain.components, _half_width(arm.gain.ratio))
        for arm in arms.group(results)
        if arm.gain is not None
    ]
    note = (
        "Share of the variance of one cell's ratio that lies between prompts (or conversations), between "
        "loads (or repeats, where each run has a process of its own), and within. The last columns are "
        "expected half widths of the speed-up's interval."
    )
    return _page(results, rows, output, (note,))


def checks(results: ResultSet, output: str = "md") -> str:
    """Return each arm's speed-up by other means, with and without exclusions, and its acceptance in detail.

    Args:
        results: a bench.
        output: ``md``, or ``table`` for the terminal.
    """
    first = {arm.spec: arm for arm in arms.group(results, results.first_measured)}
    rows = [_check_row(arm, first.get(arm.spec)) for arm in arms.group(results) if arm.role is Role.DRAFTING]
    notes = (_SPEEDUPS, _TOKENS)
    return _page(results, rows, output, notes)


def _page(results: ResultSet, rows: Sequence[dict[str, str]], output: str, notes: Sequence[str]) -> str:
    if not rows:
        return "There is no speed-up to examine, as no arm drafts beside its target alone.\n"
    names = [name for name in rows[0] if name in _LABELS or any(row[name] for row in rows)]
    table = tables.table(names, rows, output, labels=_LABELS)
    return "\n".join((engine(results.meta.engine), "", table, "", *notes, ""))


def _half_width(ratio: Estimate) -> float | None:
    """Return half of an interval, in logarithms; None without one."""
    return None if ratio.lo is None or ratio.hi is None else math.log(ratio.hi / ratio.lo) / 2


def _name(arm: Arm) -> dict[str, str]:
    return {"": arm.what, "model": " + ".join(arm.models), "γ": str(arm.draft_size or "")}


def _variance_row(arm: Arm, components: Components, half: float | None) -> dict[str, str]:
    shares = components.shares
    return {
        **_name(arm),
        **{
            f"{name} share": units.format_percent(shares[level]) if level in shares else ""
            for name, level in (("prompt", "prompt"), ("load", "load"), ("residual", "residual"))
        },
        "now": "" if half is None else f"±{units.format_percent(math.sinh(half))}",
        "twice the prompts": _expected(components, half, prompts=2),
        "twice the loads": _expected(components, half, loads=2),
    }


def _expected(components: Components, half: float | None, *, prompts: int = 1, loads: int = 1) -> str:
    """Return the expected half width for so many times the prompts or loads, scaled to the present one."""
    now = expected_width(components, prompts=components.prompts, loads=components.loads)
    more = {"prompts": components.prompts * prompts, "loads": components.loads * loads}
    if half is None or not now or (more["prompts"] < 2 and more["loads"] < 2):
        return ""
    if (prompts > 1 and components.prompt is None) or (loads > 1 and components.load is None):
        return ""  # a single one shows nothing of how it varies
    return f"±{units.format_percent(math.sinh(half * expected_width(components, **more) / now))}"


def _check_row(arm: Arm, first: Arm | None) -> dict[str, str]:
    acceptance, gain = arm.acceptance_intervals, arm.gain
    before = first.gain if first is not None else None
    return {
        **_name(arm),
        "speed-up": figures.factor(gain.ratio if gain else None),
        "p": "" if gain is None or gain.p_value is None else f"{gain.p_value:.3g}",
        "df": "" if gain is None or gain.degrees is None else f"{gain.degrees:.1f}",
        "verdict": arm.judgement.verdict.value if arm.judgement else "",
        "median": _factor(arm.median_gain),
        "equal work": _factor(arm.work_gain),
        "all runs": figures.factor(arm.gain_of_all.ratio if arm.gain_of_all else None),
        "first runs": figures.factor(before.ratio if before else None),
        "cells": str(len(arm.rates)),
        "left out": str(arm.dropped) if arm.dropped else "",
        "accepted": spread(acceptance.accept_rate if acceptance else None, units.format_percent),
        "tokens/round": spread(acceptance.mean_accepted_length if acceptance else None, "{:.2f}".format),
        "tokens/draft": spread(acceptance.tokens_per_draft if acceptance else None, "{:.2f}".format),
    }


def _factor(value: float | None) -> str:
    return "" if value is None else units.format_factor(value)
