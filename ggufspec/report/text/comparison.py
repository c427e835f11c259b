"""A comparison of two sides for people: one row per arm, and what differs."""

from __future__ import annotations

from collections.abc import Iterator

from ggufspec import units
from ggufspec.analysis import FAIL_ERROR, PASS_ERROR, BenchComparison, Design, Guard
from ggufspec.report.columns import TableLayout
from ggufspec.report.rows.benches import ComparedItem, ComparisonRow
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

COMPARED = TableLayout(
    row=ComparisonRow,
    names=(
        *("what", "models", "draft", "before_tps", "after_tps", "ratio", "p_value", "verdict", "tested"),
        *("accepted", "equal"),
    ),
    always=("what", "models"),
    labels=("what", "draft"),
)


def comparison(
    compared: BenchComparison, before: Meta, after: Meta, output: str = "md", guard: Guard | None = None
) -> str:
    """Return the table of ``ggufspec compare``, in Markdown or for the terminal."""
    lines = [
        engines(before.engine, after.engine),
        "",
        tables.render(COMPARED.fill(ComparedItem.list(compared, guard)), output),
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
        f"({units.format_percent(1 - FAIL_ERROR)} for all arms together, Holm), and has passed where it lies "
        f"above ({units.format_percent(1 - PASS_ERROR, 0)} each)."
    )


def engines(before: str, after: str) -> str:
    """Return the line above the table that names the engines."""
    return engine(before) if before == after else f"Engines: {before} before, {after} after."
