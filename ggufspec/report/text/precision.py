"""What speed-ups vary by, and checks of them by other means: ``show --variance`` and ``show --all``."""

from __future__ import annotations

import math
from collections.abc import Callable

from ggufspec import units
from ggufspec.analysis import Arm, arms
from ggufspec.domain import Role
from ggufspec.report.columns import FilledTable, Row, TableLayout, column
from ggufspec.report.rows.benches import ArmRow
from ggufspec.report.text import tables
from ggufspec.report.text.figures import engine
from ggufspec.results import ResultSet
from ggufspec.stats import Estimate, expected_width

_SPEEDUPS = (
    "speed-up: mean of the log ratios, which has the interval. median: of each prompt's median over repeats. "
    "equal work: total tokens over total time. all runs: without exclusions. first runs: before runs were "
    "measured again after a collapse."
)
_TOKENS = (
    "tokens/round: per evaluation of the target. tokens/draft: per verified draft, as llama-server and vLLM "
    "count."
)


def _share(level: str) -> Callable[[Arm], float | None]:
    return lambda arm: arm.gain.components.shares.get(level) if arm.gain else None


def _half_width(arm: Arm) -> float | None:
    """Return half of the interval of a speed-up, in logarithms; None without one."""
    ratio = arm.gain.ratio if arm.gain else None
    return (
        None if ratio is None or ratio.lo is None or ratio.hi is None else math.log(ratio.hi / ratio.lo) / 2
    )


def _expected(prompts: int = 1, loads: int = 1) -> Callable[[Arm], float | None]:
    """Return the function that expects the half width for so many times the prompts or loads."""

    def expect(arm: Arm) -> float | None:
        half = _half_width(arm)
        if arm.gain is None or half is None:
            return None
        components = arm.gain.components
        now = expected_width(components, prompts=components.prompts, loads=components.loads)
        more = {"prompts": components.prompts * prompts, "loads": components.loads * loads}
        if not now or max(more.values()) < 2:
            return None
        if (prompts > 1 and components.prompt is None) or (loads > 1 and components.load is None):
            return None  # a single one shows nothing of how it varies
        return half * expected_width(components, **more) / now  # scaled to the present one

    return expect


def _plus_minus(half: float) -> str:
    """Return half of an interval in logarithms as a share of the value."""
    return f"±{units.format_percent(math.sinh(half))}"


class VarianceRow(Row):
    """What the speed-up of an arm varies by."""

    arm: ArmRow = column(of=lambda arm: arm)
    prompt_share: float | None = column("prompt share", units.format_percent, of=_share("prompt"))
    load_share: float | None = column("load share", units.format_percent, of=_share("load"))
    residual_share: float | None = column("residual share", units.format_percent, of=_share("residual"))
    now: float | None = column("now", _plus_minus, of=_half_width)
    more_prompts: float | None = column("twice the prompts", _plus_minus, of=_expected(prompts=2))
    more_loads: float | None = column("twice the loads", _plus_minus, of=_expected(loads=2))


class CheckRow(Row):
    """The speed-up of an arm by other means, and its acceptance in detail.

    What it shows is an arm with ``first``, the same arm before runs were measured again.
    """

    arm: ArmRow
    degrees: float | None = column("df", "{:.1f}".format, of="arm.gain.degrees")
    median: float | None = column("median", units.format_factor, of="arm.median_gain")
    work: float | None = column("equal work", units.format_factor, of="arm.work_gain")
    of_all: Estimate | None = column("all runs", units.format_factor, of="arm.gain_of_all.ratio")
    of_first: Estimate | None = column("first runs", units.format_factor, of="first.gain.ratio")
    n_cells: int = column("cells", of=lambda item: len(item["arm"].rates))
    left_out: int | None = column("left out", of=lambda item: item["arm"].dropped or None)
    accepted: Estimate | None = column(
        "accepted", units.format_percent, of="arm.acceptance_intervals.accept_rate"
    )
    length: Estimate | None = column(
        "tokens/round", "{:.2f}".format, of="arm.acceptance_intervals.mean_accepted_length"
    )
    per_draft: Estimate | None = column(
        "tokens/draft", "{:.2f}".format, of="arm.acceptance_intervals.tokens_per_draft"
    )


_ARM = ("what", "models", "draft")
_VARIANCE = TableLayout(
    row=VarianceRow,
    names=(*_ARM, "prompt_share", "load_share", "residual_share", "now", "more_prompts", "more_loads"),
    always=("what", "draft"),
    labels=("what", "draft"),
)
_CHECKS = TableLayout(
    row=CheckRow,
    names=(
        *(
            *_ARM,
            "speedup",
            "p_value",
            "degrees",
            "verdict",
            "median",
            "work",
            "of_all",
            "of_first",
            "n_cells",
        ),
        *("left_out", "accepted", "length", "per_draft"),
    ),
    always=("what", "draft"),
    labels=("what", "draft"),
)


def variance(results: ResultSet, output: str = "md") -> str:
    """Return the shares of variance of each speed-up, and what twice as many prompts or loads would give.

    Args:
        results: a bench.
        output: ``md``, or ``table`` for the terminal.
    """
    drafting = [arm for arm in arms.group(results) if arm.gain is not None]
    note = (
        "Share of the variance of one cell's ratio that lies between prompts (or conversations), between "
        "loads (or repeats, where each run has a process of its own), and within. The last columns are "
        "expected half widths of the speed-up's interval."
    )
    return _page(results, _VARIANCE.fill(drafting), output, note)


def checks(results: ResultSet, output: str = "md") -> str:
    """Return each arm's speed-up by other means, with and without exclusions, and its acceptance in detail.

    Args:
        results: a bench.
        output: ``md``, or ``table`` for the terminal.
    """
    first = {arm.spec: arm for arm in arms.group(results, results.first_measured)}
    drafting = [arm for arm in arms.group(results) if arm.role is Role.DRAFTING]
    table = _CHECKS.fill({"arm": arm, "first": first.get(arm.spec)} for arm in drafting)
    return _page(results, table, output, _SPEEDUPS, _TOKENS)


def _page(results: ResultSet, table: FilledTable, output: str, *notes: str) -> str:
    if not table.rows:
        return "There is no speed-up to examine, as no arm drafts beside its target alone.\n"
    return "\n".join((engine(results.meta.engine), "", tables.render(table, output), "", *notes, ""))
