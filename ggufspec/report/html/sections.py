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

from ggufspec import units
from ggufspec.analysis import Arm, arms, breakdown, comparing, read_crossover, review
from ggufspec.domain import Role, Status
from ggufspec.errors import ResultsError
from ggufspec.forecast import Forecast
from ggufspec.report.html import TEMPLATES, standalone
from ggufspec.report.html.cards import Card, make_card
from ggufspec.report.html.figures import Figure, figures
from ggufspec.report.html.tables import Field, Table, number, rate, table
from ggufspec.report.plot import browser
from ggufspec.report.text import comparison, reasons
from ggufspec.report.text.comparison import engines
from ggufspec.report.text.figures import by_method, extent, layers, three_digits, unchanged
from ggufspec.report.text.provenance import list_facts
from ggufspec.report.text.verdict import where
from ggufspec.results import Configuration, ResultSet

_LOAD = (number("users", "users"), number("depth", "depth", "{:,}"))
_SUMMARY = (
    *_LOAD,
    number("arrivals", "requests/s", units.format_number),
    Field(name="role", head="measured"),
    Field(name="models", head="model"),
    Field(name="layers", head="GPU layers"),
    *(number("threads", "threads"), Field(name="kv_type", head="KV type"), number("ubatch", "ubatch")),
    Field(name="settings", head="settings"),
    *(number("gamma", "γ"), number("p_min", "p-min", units.format_number)),
    rate("tps"),
    number("gain", "speed-up", units.format_factor, interval=True),
    Field(name="verdict", head="verdict"),
    number("accepted", "accepted", units.format_percent),
    Field(name="by_method", head="by method"),
    number("length", "tokens/round", "{:.2f}"),
    Field(name="text", head="text unchanged"),
    Field(name="status", head="status"),
)
_IF_VARIED = (
    "users",
    "depth",
    "arrivals",
    "models",
    "layers",
    "threads",
    "kv_type",
    "ubatch",
    "settings",
    "p_min",
    "status",
)
_ENERGY = (
    *_LOAD,
    *(Field(name="role", head="measured"), Field(name="models", head="models"), number("gamma", "γ")),
    Field(name="device", head="device"),
    number("per_token", "J/token", three_digits, interval=True),
    number("ratio", "over the target alone", units.format_factor, interval=True),
    number("runs", "runs"),
)
_TIMES = (
    Field(name="step", head="step"),
    Field(name="part", head="spent on"),
    number("ms", "ms", three_digits),
    number("share", "share", units.format_percent),
)
_COMPARED = (
    *_LOAD,
    *(Field(name="role", head="measured"), Field(name="models", head="models"), number("gamma", "γ")),
    *(number("before", "before, tokens/s", "{:.4g}"), number("after", "after, tokens/s", "{:.4g}")),
    number("ratio", "after / before", "{:.3f}", interval=True),
    number("p", "p", "{:.3f}"),
    Field(name="verdict", head="verdict"),
    Field(name="texts", head="texts equal"),
)


@dataclass(frozen=True, kw_only=True)
class Section:
    """The section of one bench, from the verdict to the machine."""

    id: str
    card: Card
    basis: str
    summary: Table
    energy: Table
    times: Table
    reasons: tuple[str, ...]
    figures: tuple[Figure, ...]
    warnings: Mapping[str, str]
    command: str  # ggufspec's own
    commands: tuple[tuple[str, str], ...]  # llama.cpp's: each arm's name and its command line
    facts: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class BenchPair:
    """Two benches: the table of the arms that both have, or the reason why there is none."""

    before: str
    after: str
    rows: Table | None
    verdict: str
    differences: Mapping[str, tuple[str, str]]
    engine: str = ""


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
        energy=_energy(groups),
        times=table("Where the time goes", reasons.rows(diagnosis), _TIMES),
        reasons=tuple(reasons.sentences(diagnosis, results.meta.engine)) if diagnosis.drafting else (),
        figures=figures(results, forecasts),
        warnings=review.warnings(results, groups),
        command=shlex.join(results.meta.command),
        commands=tuple(map(_command, groups)),
        facts=list_facts(results),
    )


def pair_benches(before: ResultSet, after: ResultSet) -> BenchPair:
    """Return the comparison of two benches, or the reason why they cannot be compared."""
    try:
        compared = comparing.compare(before, after)
    except ResultsError as error:
        return BenchPair(
            before=before.meta.id, after=after.meta.id, rows=None, verdict=f"{error.message}.", differences={}
        )
    rows = [
        {
            **_named(row.before),
            "before": row.before_tps,
            "after": row.after_tps,
            **_estimate("ratio", row.change.ratio),
            "p": row.change.p_value,
            "verdict": row.change.verdict and row.change.verdict.value,
            "texts": None if row.texts_equal is None else f"{row.texts_equal} of {row.texts}",
        }
        for row in compared.rows
    ]
    return BenchPair(
        before=before.meta.id,
        after=after.meta.id,
        rows=table(f"{after.meta.id} compared with {before.meta.id}", rows, _COMPARED),
        verdict=" ".join(comparison.basis(compared)),
        engine=engines(before.meta.engine, after.meta.engine),
        differences=compared.differences,
    )


def _summary(groups: Sequence[Arm], without: Collection[str]) -> Table:
    """Return the arms without some columns: verdicts of a crossover are those of its map."""
    targets = {arm.models[0] for arm in groups if arm.role is not Role.DRAFTER}
    rows = [
        {
            **_named(arm),
            **({} if len(targets) > 1 or arm.spec.build else {"models": arm.drafts_with or arm.models[0]}),
            "layers": layers(arm),
            **{name: getattr(arm.spec, name) for name in ("threads", "kv_type", "ubatch")},
            "settings": shlex.join(arm.spec.words) or None,
            "p_min": arm.spec.drafting and arm.spec.drafting.p_min,
            **_estimate("tps", arm.rate),
            "accepted": arm.acceptance and arm.acceptance.accept_rate,
            "by_method": by_method(arm.acceptance) or None,
            "length": arm.acceptance and arm.acceptance.mean_accepted_length,
            **_estimate("gain", arm.gain and arm.gain.ratio),
            "verdict": arm.judgement and arm.judgement.verdict.value,
            "text": unchanged(arm),
            "status": arm.status,
        }
        for arm in groups
    ]
    drafting = [row for row in rows if row["gamma"] is not None] or rows
    constant = {name for name in _IF_VARIED if len({row[name] for row in drafting} - {None}) < 2}
    if any(row["status"] != Status.OK.value for row in rows):
        constant.discard("status")
    if all(row["by_method"] is None for row in rows):
        constant.add("by_method")
    fields = [field for field in _SUMMARY if field.name not in constant.union(without)]
    return table("All arms that were measured", rows, fields)


def _energy(groups: Sequence[Arm]) -> Table:
    rows = [
        {
            **_named(arm),
            "device": device,
            **_estimate("per_token", energy.per_token),
            **_estimate("ratio", energy.ratio),
            "runs": energy.runs,
        }
        for arm in groups
        for device, energy in arm.energy.items()
    ]
    return table("Energy per token", rows, _ENERGY)


def _named(arm: Arm) -> dict[str, object]:
    build = f" ({arm.spec.build})" if arm.spec.build else ""
    traffic = arm.spec.traffic
    load = {
        "users": traffic and traffic.users,
        "depth": traffic and traffic.depth,
        "arrivals": traffic and traffic.rate,
    }
    return {**load, "role": arm.what, "models": " + ".join(arm.models) + build, "gamma": arm.draft_size}


def _estimate(name: str, estimate: object) -> dict[str, object]:
    ends = {"": "value", "_lo": "lo", "_hi": "hi"}
    return {f"{name}{end}": getattr(estimate, part, None) for end, part in ends.items()}


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
        parts.append(f"γ = {drafting.n_max}")
        parts += [f"p-min {units.format_number(drafting.p_min)}"] if drafting.p_min else []
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
    style, behaviour = map(standalone.read_source, ("style.css", "behaviour.js"))
    library = browser.javascript()
    tuned = dict(enumerate(configurations))
    sections = [
        section(bench, forecasts if place == 0 else (), tuned.get(place))
        for place, bench in enumerate(benches)
    ]
    return TEMPLATES.get_template("report.html").render(
        sections=sections,
        compared=[pair_benches(benches[0], other) for other in benches[1:]],
        style=style,
        library=library,
        behaviour=behaviour,
        policy=standalone.write_policy(style, (library, behaviour)),
        version=version or metadata.version("ggufspec"),
        made_at=f"{made_at or datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
    )
