"""A comparison of two benches for people: one row per arm, the overall change, and what differs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ggufspec import units
from ggufspec.analysis import Arm, BenchComparison
from ggufspec.report.text import tables
from ggufspec.report.text.figures import engine
from ggufspec.results import Meta
from ggufspec.stats import Effect

ASIDE = "The runs of two benches are not interleaved: a warmer or busier machine changes the result too."

BY_NAME = "Models are matched by the names of their files: not both benches recorded their content."


def comparison(compared: BenchComparison, before: Meta, after: Meta, output: str = "md") -> str:
    """Return the table of ``ggufspec compare``, in Markdown or for the terminal with the verdict first."""
    cells = rows(compared)
    overall = compared.overall
    conclusion = compared.no_verdict or f"p {_p(overall)}: {overall.verdict.value}"
    verdict = (f"overall: {ratio(overall)}, {conclusion}",)
    table = (
        engines(before.engine, after.engine),
        "",
        tables.table(columns(cells), cells, output, labels=("", "γ")),
    )
    lines = [
        *((*verdict, "", *table) if output == tables.TERMINAL else (*table, "", *verdict)),
        *(("",) if output == tables.TERMINAL else ()),
        f"before: {before.id}   after: {after.id}",
        *(f"  {name}: {a} → {b}" for name, (a, b) in compared.differences.items()),
        *(f"  in one of them only: {arm}" for arm in compared.unmatched),
        *((BY_NAME,) if compared.by_name else ()),
        ASIDE,
    ]
    return "\n".join(lines) + "\n"


def engines(before: str, after: str) -> str:
    """Return the line above the table that names the engines."""
    return engine(before) if before == after else f"Engines: {before} before, {after} after."


def rows(compared: BenchComparison) -> list[dict[str, str]]:
    """Return the cells of each arm that both benches have, by the names of their columns."""
    return [
        {
            "": row.before.what,
            "model": " + ".join(row.before.models),
            "γ": str(row.before.draft_size or ""),
            "before": _rate(row.before),
            "after": _rate(row.after),
            "after/before": ratio(row.change),
            "p": "" if compared.no_verdict else _p(row.change),
            "verdict": compared.verdict(row.change) or "",
            "accepted": _accepted(row.before, row.after),
            "texts equal": "" if row.texts_equal is None else f"{row.texts_equal} of {row.texts}",
        }
        for row in compared.rows
    ]


def columns(cells: Sequence[Mapping[str, str]]) -> list[str]:
    """Return the columns that hold anything."""
    return [name for name in cells[0] if name in {"", "model"} or any(row[name] for row in cells)]


def ratio(change: Effect) -> str:
    """Return the speed after divided by the speed before, with its interval."""
    value = change.ratio
    interval = "" if value.lo is None or value.hi is None else f" [{value.lo:.3f}, {value.hi:.3f}]"
    return f"{value.value:.3f}{interval}"


def _rate(arm: Arm) -> str:
    return units.format_rate(arm.rate.value) if arm.rate else ""


def _p(change: Effect) -> str:
    if change.p_value is None:
        return ""
    return f"{change.p_value:.3f}" if change.p_value >= 0.001 else "< 0.001"


def _accepted(before: Arm, after: Arm) -> str:
    rates = [arm.acceptance.accept_rate if arm.acceptance else None for arm in (before, after)]
    if not any(rates):
        return ""
    return " → ".join("" if rate is None else units.format_percent(rate) for rate in rates)
