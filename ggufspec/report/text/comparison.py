"""A comparison of two sides for people: one row per arm, and what differs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from ggufspec import units
from ggufspec.analysis import (
    FAIL_ERROR,
    PASS_ERROR,
    Arm,
    BenchComparison,
    Change,
    Design,
    Guard,
    GuardedRow,
)
from ggufspec.report.text import tables
from ggufspec.report.text.figures import engine
from ggufspec.results import Meta

_BASIS = {
    Design.INTERLEAVED: "Both were measured in turn; [95 % interval over loads, on these prompts], as in "
    "the column new/old of the bench.",
    Design.SESSIONS: "[95 % interval over benches (Welch's t), on these prompts].",
    Design.SINGLE: "To decide, measure both in one bench (`ggufspec bench --llama OLD --llama NEW`), or "
    "compare three benches a side (`ggufspec compare A1 A2 A3 -- B1 B2 B3`).",
}


_REPORTED = (
    "The models are those that the servers say they serve. No checksum of their files is known, so it is not "
    "verified that they are the same."
)


def comparison(
    compared: BenchComparison, before: Meta, after: Meta, output: str = "md", guard: Guard | None = None
) -> str:
    """Return the table of ``ggufspec compare``, in Markdown or for the terminal."""
    cells = rows(compared, guard)
    lines = [
        engines(before.engine, after.engine),
        "",
        tables.table(columns(cells), cells, output, labels=("", "γ")),
        "",
        f"before: {compared.before}   after: {compared.after}",
        *(f"  {name}: {a} → {b}" for name, (a, b) in compared.differences.items()),
        *(f"  in one of them only: {arm}" for arm in compared.unmatched),
        *basis(compared),
        *(_guard(guard) if guard else ()),
        *(
            f"warning {name}: {bench}: {advice}"
            for bench, warnings in compared.warnings.items()
            for name, advice in warnings.items()
        ),
    ]
    return "\n".join(lines) + "\n"


def basis(compared: BenchComparison) -> tuple[str, ...]:
    """Return what the ratios rest on, and why there is no verdict."""
    reported = (_REPORTED,) if compared.is_reported else ()
    if compared.no_verdict is None:
        return (_BASIS[compared.design], *reported)
    reason = f"{compared.no_verdict[0].upper()}{compared.no_verdict[1:]}."
    if not compared.same_engine or compared.is_reported:
        return (reason, *reported)
    return (reason, _BASIS[Design.SINGLE])


def _guard(guard: Guard) -> Iterator[str]:
    yield (
        f"Guard: {guard.limit:.3f} is the limit. An arm is slower where its interval lies below the limit "
        f"({1 - FAIL_ERROR:.1%} for all arms together, Holm), and has passed where it lies above "
        f"({1 - PASS_ERROR:.0%} each)."
    )


def engines(before: str, after: str) -> str:
    """Return the line above the table that names the engines."""
    return engine(before) if before == after else f"Engines: {before} before, {after} after."


def rows(compared: BenchComparison, guard: Guard | None = None) -> list[dict[str, str]]:
    """Return the cells of each arm that both sides have, by the names of their columns."""
    guarded = {tested.row.before.spec: tested for tested in guard.rows} if guard else {}
    return [
        {
            "": row.before.what,
            "model": " + ".join(row.before.models),
            "γ": str(row.before.draft_size or ""),
            "before": units.format_rate(row.before_tps),
            "after": units.format_rate(row.after_tps),
            "after/before": ratio(row.change),
            "p": _p(row.change),
            "verdict": row.change.verdict.value if row.change.verdict else "",
            "guard": _tested(guarded[row.before.spec]) if row.before.spec in guarded else "",
            "accepted": _accepted(row.before, row.after),
            "texts equal": "" if row.texts_equal is None else f"{row.texts_equal} of {row.texts}",
        }
        for row in compared.rows
    ]


def columns(cells: Sequence[Mapping[str, str]]) -> list[str]:
    """Return the columns that hold anything."""
    return [name for name in cells[0] if name in {"", "model"} or any(row[name] for row in cells)]


def ratio(change: Change) -> str:
    """Return the speed after divided by the speed before, with its interval."""
    value = change.ratio
    interval = "" if value.lo is None or value.hi is None else f" [{value.lo:.3f}, {value.hi:.3f}]"
    return f"{value.value:.3f}{interval}"


def _tested(row: GuardedRow) -> str:
    return f"{row.state.value} [{row.lo:.3f}, {row.hi:.3f}]"


def _p(change: Change) -> str:
    if change.p_value is None:
        return ""
    return f"{change.p_value:.3f}" if change.p_value >= 0.001 else "< 0.001"


def _accepted(before: Arm, after: Arm) -> str:
    rates = [arm.acceptance.accept_rate if arm.acceptance else None for arm in (before, after)]
    if not any(rates):
        return ""
    return " → ".join("" if rate is None else units.format_percent(rate) for rate in rates)
