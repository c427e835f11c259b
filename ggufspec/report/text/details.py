"""Details of a bench for people: ``show --per``, ``--variance`` and ``--all``."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from ggufspec import units
from ggufspec.analysis import Arm, arms, of_segments
from ggufspec.domain import OWN_PROCESSES, Role, Status
from ggufspec.report.columns import MOST, FilledTable, Row, TableLayout, column
from ggufspec.report.rows.benches import BLANK_IS_DEFAULT, MANNER, ArmRow
from ggufspec.report.rows.runs import ArmOnPrompts, SegmentRow, TurnRow
from ggufspec.report.text import tables
from ggufspec.report.text.figures import engine
from ggufspec.results import ResultSet
from ggufspec.stats import Estimate, expected_width

if TYPE_CHECKING:  # only report/frames imports pandas at run time
    from pandas import DataFrame


_RESULTS = 5  # columns that settings leave free

_SETTINGS = (
    *("draft_model", "method", "ngram", "draft", *MANNER, "synthetic_accept"),
    *("users", "depth"),
    *("requested_ngl", "requested_ngld", "threads", "kv_type", "ubatch", "settings", "target", "pair"),
)
"""Columns that are shown where they vary, the first ones first."""
_SHOWN = {
    "arm": ("prompts", "gen_tps", "accept_rate", "mean_accepted_length", "speedup", "verdict", "status"),
    "category": ("prompts", "gen_tps", "accept_rate", "mean_accepted_length", "speedup", "verdict"),
    "prompt": (
        *("category", "repeats", "gen_tps", "accept_rate", "mean_accepted_length", "speedup", "verdict"),
    ),
    "run": ("decode_tps", "accept_rate", "outcome", "text_identical", "warmup", "anchor", "wall_s", "log"),
    "position": ("n_drafts", "n_accepted", "accept_rate", "conditional_accept_rate"),
    "round": ("n_drafted", "n_accepted"),
}
"""What a table with a row per arm, category, … shows, the most important first."""
_KEYS = {
    "category": ("category",),
    "prompt": ("prompt",),
    "run": ("prompt", "repeat"),
    "position": ("category", "position"),
    "round": ("prompt", "repeat", "round"),
}
"""What a row of such a table is about, beside the arm."""


def choose(frame: DataFrame, per: str) -> tuple[list[str], int]:
    """Return the columns of a frame that people see, and how many others hold anything.

    Args:
        frame: one row per arm, category, prompt, run, position or round.
        per: which of these.
    """
    filled = [name for name in frame.columns if frame[name].notna().any()]
    varied = [name for name in _SETTINGS if name in filled and _varies(frame, name)]
    keys = [name for name in ("role", *_KEYS.get(per, ())) if name in filled]
    results = [name for name in _SHOWN[per] if name in filled]
    room = MOST - len(keys) - min(len(results), _RESULTS)
    chosen = [*keys[:1], *varied[:room], *keys[1:], *results][:MOST]
    return chosen, len(filled) - len(chosen)


def _varies(frame: DataFrame, name: str) -> bool:
    if name in BLANK_IS_DEFAULT:
        return int(frame.groupby("role")[name].nunique(dropna=False).max()) > 1
    return frame[name].nunique(dropna=True) > 1


_WHERE_ROUNDS_COUNT = (
    "An accepted token counts where it stands. A round and its rejected tokens count where the target's own "
    "token stands that ended it."
)


def _layout(row: type[Row], part: str, *figures: str) -> TableLayout:
    """Return the layout of a table with a row for each arm and part."""
    return TableLayout(
        row=row,
        names=("role", *_SETTINGS, part, *figures),
        if_varied=_SETTINGS,
        blank_is_default=BLANK_IS_DEFAULT,
        kind="role",
        labels=("role", "draft", part),
    )


_PARTS: dict[str, tuple[TableLayout, Callable[[Arm], Iterable[object]], str]] = {
    "turn": (
        _layout(
            TurnRow,
            *("turn", "conversations", "prompt_tokens", "cached_tokens", "ttft_s", "gen_tps"),
            *("accept_rate", "mean_accepted_length", "speedup", "verdict"),
        ),
        ArmOnPrompts.by_turn,
        "First token: geometric mean of the time from the request to it.",
    ),
    "segment": (
        _layout(
            SegmentRow,
            *("segment", "n_tokens", "share", "accept_rate", "tokens_per_round", "token_s", "speedup"),
        ),
        of_segments,
        _WHERE_ROUNDS_COUNT,
    ),
}
"""What a table with a row for each arm and turn, or segment, shows to people, and what has a row."""


def parts(results: ResultSet, per: str, output: str) -> str | None:
    """Return the table of the parts of answers or conversations for people; None for other tables.

    Args:
        results: a bench.
        per: what has a row.
        output: ``md``, or ``table`` for the terminal.
    """
    if per not in _PARTS:
        return None
    layout, split, note = _PARTS[per]
    rows = [part for arm in arms.group(results) for part in split(arm)]
    return _page(results, layout.fill(rows), output, note)


_OF_ROUNDS = {"position": "draft positions", "round": "rounds"}
_MISSING = {
    "category": "no prompt of {} has a category: the prompts of `ggufspec bench --suite domains` have one, "
    'and those of your own suite can have one (category = "…")',
    "turn": "no prompt of {} is a conversation: some of `ggufspec bench --suite domains` are, and those of "
    'your own suite can be (followups = ["…"])',
    "segment": "{} has no segments, because it was not recorded in which round each token was sent: "
    "`ggufspec bench --engine server` records that, of one request after another",
}
"""Why a bench with good runs has no rows of a table."""


def why_empty(results: ResultSet, per: str) -> str | None:
    """Return why a table of ``show --per`` is empty, and the command that measures what is missing.

    Args:
        results: a bench.
        per: what has a row: arm, category, prompt, turn, segment, run, position or round.

    Returns:
        One sentence; None if the table is not empty.
    """
    name, runs = results.meta.id, results.current
    if per == "arm" or (per == "run" and results.runs):
        return None
    if not runs:
        return f"{name} has no runs: `ggufspec bench` measures some"
    if not any(output.status is Status.OK for output in runs.outputs):
        return f"no run of {name} succeeded: `ggufspec show {name} --runs` shows how each of them ended"
    filled: Mapping[str, Callable[[], bool]] = {  # only the one that is asked for is looked into
        "category": lambda: any(spec.prompt.category for spec in runs.specs),
        "turn": lambda: any(prompt.turn for spec in runs.specs for prompt in spec.prompts),
        "segment": lambda: any(runs.column("by_segment")),
        "position": lambda: any(arm.acceptance and arm.acceptance.by_position for arm in arms.group(results)),
        "round": lambda: any(runs.column("rounds")),
    }
    if per not in filled or filled[per]():
        return None
    return _MISSING[per].format(name) if per in _MISSING else _without_rounds(results, _OF_ROUNDS[per])


def _without_rounds(results: ResultSet, what: str) -> str:
    name, engine = results.meta.id, results.meta.engine
    if not any(spec.role is Role.DRAFTING for spec in results.current.specs):
        return f"no arm of {name} drafts, so it has no {what}: give a drafter with -md FILE, or a --method"
    # the library records them with any llama.cpp, the server with most
    other = "server" if engine in OWN_PROCESSES else "inprocess" if engine == "server" else None
    how = f": `ggufspec bench --engine {other}` records them" if other else ""
    return f"{name} has no {what}, because the engine {engine} did not report them{how}"


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
        *(*_ARM, "speedup", "p_value", "degrees", "verdict", "median", "work", "of_all", "of_first"),
        *("n_cells", "left_out", "accepted", "length", "per_draft"),
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
    return tables.Page(engine=engine(results.meta.engine), table=table, notes=notes).text(output)
