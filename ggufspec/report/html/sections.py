"""Benches as one HTML file that needs no network, server or other file, and its sections.

Untrusted text (prompts, model names, metadata) is escaped: by Jinja in the page, by its ``tojson`` inside
scripts. A Content-Security-Policy allows only the two scripts and the style sheet in the file, by their
hashes, and no requests.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import metadata

from ggufspec.analysis import Arm, arms, breakdown, comparing, read_crossover
from ggufspec.errors import ResultsError
from ggufspec.forecast import Forecast
from ggufspec.report import plot
from ggufspec.report.columns import FilledTable, TableLayout
from ggufspec.report.html import TEMPLATES, read_source, write_policy
from ggufspec.report.html.cards import Card, make_card
from ggufspec.report.plot import drawing
from ggufspec.report.rows.benches import ArmRow
from ggufspec.report.text import comparison, overview, reasons
from ggufspec.report.text.provenance import list_facts
from ggufspec.report.text.tables import Page
from ggufspec.report.text.verdict import where
from ggufspec.results import Configuration, ResultSet

_ENERGY = TableLayout(
    row=ArmRow,
    names=(
        *("users", "depth", "rate", "what", "models", "draft"),
        *("gpu_j_per_token", "gpu_energy_ratio", "cpu_j_per_token", "cpu_energy_ratio"),
    ),
)


@dataclass(frozen=True, kw_only=True)
class Section:
    """The section of one bench, from the verdict to the machine."""

    id: str
    card: Card
    page: Page
    energy: FilledTable
    times: FilledTable
    reasons: tuple[str, ...]
    figures: Mapping[str, plot.Drawn]
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
    of_map = () if crossover is None else ("verdict",)  # an arm has none beside those of the map
    return Section(
        id=results.meta.id,
        card=make_card(results, groups, tuned, crossover),
        page=overview.page(results, groups, overview.ARMS.without("machine", *of_map)),
        energy=_ENERGY.fill(arm for arm in groups if arm.energy),
        times=reasons.PARTS.fill(reasons.list_parts(diagnosis)),
        reasons=tuple(reasons.sentences(diagnosis, results.meta.engine)) if diagnosis.drafting else (),
        figures=plot.drawn(results, forecasts),
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
