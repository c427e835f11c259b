"""Benches as one HTML file that needs no network, server or other file, and its sections.

Untrusted text (prompts, model names, metadata) is escaped: by Jinja in the page, by its ``tojson`` inside
scripts. A Content-Security-Policy allows only the two scripts and the style sheet in the file, by their
hashes, and no requests.
"""

from __future__ import annotations

import shlex
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import metadata
from typing import Any, NamedTuple

from ggufspec import units
from ggufspec.analysis import Arm, arms, breakdown, comparing, read_crossover, review
from ggufspec.domain import Estimate, Role
from ggufspec.errors import ResultsError
from ggufspec.forecast import Forecast
from ggufspec.report import plot
from ggufspec.report.columns import FilledTable, Row, TableLayout, column
from ggufspec.report.html import TEMPLATES, read_source, write_policy
from ggufspec.report.html.cards import Card, make_card
from ggufspec.report.plot import drawing
from ggufspec.report.rows import runs
from ggufspec.report.rows.benches import BLANK_IS_DEFAULT, MANNER, ArmRow
from ggufspec.report.text import comparison, reasons
from ggufspec.report.text.figures import extent, three_digits
from ggufspec.report.text.provenance import list_facts
from ggufspec.report.text.tables import Page
from ggufspec.report.text.verdict import where
from ggufspec.results import Configuration, ResultSet


@dataclass(frozen=True, kw_only=True)
class Figure:
    """One chart: ``spec`` draws it, ``alternative`` is its text for screen readers, ``data`` its numbers."""

    name: str
    title: str
    caption: str
    alternative: str
    spec: Mapping[str, Any]
    data: FilledTable


class _Chart(NamedTuple):
    title: str
    caption: str
    data: TableLayout


def _all_of(row: type[Row], *left_out: str) -> TableLayout:
    return TableLayout(row=row, names=row.fields()).without(*left_out)


_CHARTS: Mapping[str, _Chart] = {
    "crossover": _Chart(
        "Users and depth for which drafting pays",
        "The γ with the most tokens/s of all users together, and these over those of the target alone"
        " for as many users: blue is faster, orange is slower. The line separates drafting from not "
        "drafting. ~ is forecast from the cells around it; ? has an interval that includes 1.",
        _all_of(runs.CrossoverCellRow),
    ),
    "curve": _Chart(
        "Speed over draft size",
        "Tokens per second by γ, the number of tokens drafted per round, with 95 % intervals over "
        "prompts and repeats. The dotted line and its band are the target alone: points above it are "
        "faster.",
        _all_of(runs.SpeedRow, "label"),
    ),
    "bars": _Chart(
        "Speed of each arm",
        "Tokens per second, with 95 % intervals over prompts and repeats; in brackets, the speed-up "
        "over the target alone.",
        _all_of(runs.SpeedRow, "series"),
    ),
    "heatmap": _Chart(
        "Speed-up by setting",
        "Speed-up over the target alone: blue is faster, orange is slower; ? is undecided. Where "
        "several settings share a cell, it shows that with the most tokens/s.",
        _all_of(runs.HeatRow),
    ),
    "positions": _Chart(
        "Acceptance by position",
        "How often the first, second, … token of a draft was accepted, at the largest γ measured. The"
        " solid line counts all drafts; the dashed one only those whose earlier tokens were all "
        "accepted.",
        _all_of(runs.AcceptedAtRow),
    ),
    "segments": _Chart(
        "Acceptance by part of the answers",
        "How many of the tokens drafted in thinking, calls, JSON, code and prose were accepted, with "
        "95 % intervals over prompts, by the fastest arm of each kind.",
        _all_of(runs.AcceptedInRow),
    ),
    "rounds": _Chart(
        "Where a round's time goes",
        "Milliseconds of a mean round: the drafter proposes tokens, the target verifies them in one "
        "batch, and the rest.",
        _all_of(runs.SpentRow),
    ),
    "pareto": _Chart(
        "Memory against speed",
        "Memory and tokens per second. The axis says which memory: GPU memory where it is known, "
        "otherwise the memory of llama.cpp's process on the host. Blue diamonds on the dashed line "
        "are the Pareto front: no other arm is faster and needs no more memory.",
        _all_of(runs.MemorySpeedRow),
    ),
    "drift": _Chart(
        "Drift and disturbances",
        "Each run's tokens per second over the median of its arm and prompt, by time. Anchors repeat "
        "one configuration, so a slope of their line is the drift of the machine. During disturbed "
        "runs, other programs used the processor.",
        _all_of(runs.DriftRow),
    ),
}


def figures(results: ResultSet, forecasts: Sequence[Forecast] = ()) -> tuple[Figure, ...]:
    """Return the charts for which these results have data, in the order of the page."""
    return tuple(_figure(name, drawn) for name, drawn in plot.drawn(results, forecasts).items())


def _figure(name: str, drawn: plot.Drawn) -> Figure:
    is_bars = name == "curve" and not plot.has_curve(drawn.rows)
    chart = _CHARTS["bars" if is_bars else name]
    return Figure(
        name=name,
        title=chart.title,
        caption=chart.caption,
        alternative=str(drawn.chart.description),
        spec=drawing.spec(drawn.chart),
        data=chart.data.fill(drawn.rows),
    )


_LOAD = ("users", "depth", "rate")
_ARMS = TableLayout(
    row=ArmRow,
    names=(
        *(*_LOAD, "what", "models", "drafts_with", "llama_build", "layers", "threads", "kv_type", "ubatch"),
        *("settings", "draft", *MANNER, "gen_tps", "speedup", "verdict", "accept_rate"),
        "method_shares",
        *("mean_accepted_length", "texts", "valid", "status"),
    ),
    if_varied=(
        *(*_LOAD, "models", "drafts_with", "llama_build", "layers", "threads", "kv_type", "ubatch"),
        *("settings", *MANNER),
    ),
    blank_is_default=BLANK_IS_DEFAULT,
    kind="what",
)


class DeviceEnergyRow(Row):
    """What a token of an arm takes of a kind of device."""

    arm: ArmRow
    device: str = column(of="energy.device")
    per_token: Estimate = column("J/token", three_digits, of="energy.per_token")
    energy_ratio: Estimate | None = column("over the target alone", units.format_factor, of="energy.ratio")
    runs: int = column(of="energy.runs")


_ENERGY = TableLayout(
    row=DeviceEnergyRow,
    names=(*_LOAD, "what", "models", "draft", "device", "per_token", "energy_ratio", "runs"),
)


@dataclass(frozen=True, kw_only=True)
class Section:
    """The section of one bench, from the verdict to the machine."""

    id: str
    card: Card
    basis: str
    summary: FilledTable
    energy: FilledTable
    times: FilledTable
    reasons: tuple[str, ...]
    figures: tuple[Figure, ...]
    warnings: Mapping[str, str]
    command: str  # ggufspec's own
    commands: tuple[tuple[str, str], ...]  # llama.cpp's: each arm's name and its command line
    facts: Mapping[str, str]


def section(
    results: ResultSet, forecasts: Sequence[Forecast] = (), tuned: Configuration | None = None
) -> Section:
    """Return the section of one bench; without runs, it has only the facts."""
    groups = arms.group(results)
    diagnosis = breakdown.diagnose(groups)
    crossover = read_crossover(results)
    return Section(
        id=results.meta.id,
        card=make_card(results, groups, tuned, crossover),
        basis=_basis(groups),
        summary=_summary(groups, without=() if crossover is None else ("verdict",)),
        energy=_ENERGY.fill(
            {"arm": arm, "energy": energy} for arm in groups for energy in arm.energy.values()
        ),
        times=reasons.PARTS.fill(reasons.list_parts(diagnosis)),
        reasons=tuple(reasons.sentences(diagnosis, results.meta.engine)) if diagnosis.drafting else (),
        figures=figures(results, forecasts),
        warnings=review.warnings(results, groups),
        command=shlex.join(results.meta.command),
        commands=tuple(map(_command, groups)),
        facts=list_facts(results),
    )


def _compare(before: ResultSet, after: ResultSet) -> Page:
    """Return the comparison of two benches, or the reason why they cannot be compared."""
    try:
        compared = comparing.compare(before, after)
    except ResultsError as error:
        return Page(found=(f"{error.message}.",))
    return comparison.page(compared, comparison.engines(before.meta.engine, after.meta.engine))


def _summary(groups: Sequence[Arm], without: Collection[str]) -> FilledTable:
    """Return the arms without some columns: verdicts of a crossover are those of its map."""
    targets = {arm.models[0] for arm in groups if arm.role is not Role.DRAFTER}
    other = "drafts_with" if len(targets) > 1 else "models"  # one target is named below the table
    drafting = [arm for arm in groups if arm.draft_size is not None]
    return _ARMS.without(*without, other).fill(groups, drafting or groups)


def _basis(groups: Sequence[Arm]) -> str:
    """Return the sentences on models, prompts and repeats."""
    if not groups:
        return "Nothing was measured."
    targets = dict.fromkeys(arm.models[0] for arm in groups if arm.role is not Role.DRAFTER)
    drafters = dict.fromkeys(arm.drafts_with or "not known" for arm in groups if arm.draft_size is not None)
    return (
        f"Target: {', '.join(targets) or 'none'}. Drafter: {', '.join(drafters) or 'none'}. "
        f"{extent(groups[0])}. Tokens/s: geometric means over prompts of tokens decoded after the prompt per "
        "second, with 95 % intervals over prompts and repeats."
    )


def _command(arm: Arm) -> tuple[str, str]:
    """Return an arm's name and its command line on the first prompt."""
    drafting = arm.spec.drafting
    parts = [f"{where(arm)}{arm.what}: {' + '.join(arm.models)}"]
    if drafting:
        parts += [f"γ = {drafting.n_max}", *drafting.manner]
    return ", ".join(parts), shlex.join((arm.good or arm.runs)[0].argv)


def html(
    results: ResultSet | Sequence[ResultSet],
    forecasts: Sequence[Forecast] = (),
    configurations: Sequence[Configuration | None] = (),
    *,
    made_at: datetime | None = None,
    version: str | None = None,
) -> str:
    """Return a report on one bench, or on several with a comparison of each later one with the first.

    Args:
        results: one or several benches.
        forecasts: for the curve of the first bench.
        configurations: the tuned configuration of each bench, or None.
        made_at: the time that the page names; None for now.
        version: the version of ggufspec that the page names; None for this one.
    """
    benches = [results] if isinstance(results, ResultSet) else list(results)
    style, behaviour = map(read_source, ("style.css", "behaviour.js"))
    library = drawing.javascript()
    tuned = dict(enumerate(configurations))
    sections = [
        section(bench, forecasts if place == 0 else (), tuned.get(place))
        for place, bench in enumerate(benches)
    ]
    return TEMPLATES.get_template("report.html").render(
        sections=sections,
        compared={
            f"{benches[0].meta.id} → {other.meta.id}": _compare(benches[0], other) for other in benches[1:]
        },
        style=style,
        library=library,
        behaviour=behaviour,
        policy=write_policy(style, (library, behaviour)),
        version=version or metadata.version("ggufspec"),
        made_at=f"{made_at or datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
    )
