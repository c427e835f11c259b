"""A comparison as people read it: one row per arm, all together, and what the benches do not share."""

from __future__ import annotations

from tabulate import tabulate

from ggufspec import units
from ggufspec.arms import Arm
from ggufspec.comparing import Comparison
from ggufspec.results import Meta
from ggufspec.stats import Significance


def comparison(compared: Comparison, before: Meta, after: Meta) -> str:
    """Return the table of ``ggufspec compare``."""
    rows = [
        {
            "": row.before.role.value,
            "model": " + ".join(row.before.models),
            "γ": str(row.before.draft_size or ""),
            "before": _rate(row.before),
            "after": _rate(row.after),
            "after/before": _ratio(row.change),
            "p": _p(row.change),
            "verdict": row.change.verdict.value,
            "accepted": _accepted(row.before, row.after),
            "texts equal": "" if row.texts_equal is None else f"{row.texts_equal} of {row.texts}",
        }
        for row in compared.rows
    ]
    said = [name for name in rows[0] if name in {"", "model"} or any(row[name] for row in rows)]
    table = tabulate(
        [[row[name] for name in said] for row in rows], headers=said, tablefmt="github", disable_numparse=True
    )
    overall = compared.overall
    lines = [
        table,
        "",
        f"overall: {_ratio(overall)}, p {_p(overall)}: {overall.verdict.value}",
        f"before: {before.id}   after: {after.id}",
        *(f"  {name}: {a} → {b}" for name, (a, b) in compared.differences.items()),
        *(f"  in one of them only: {arm}" for arm in compared.unmatched),
        "Two benches are not interleaved: a machine that was warmer or busier in one of them shows here too.",
    ]
    return "\n".join(lines) + "\n"


def _rate(arm: Arm) -> str:
    return units.format_rate(arm.rate.value) if arm.rate else ""


def _ratio(change: Significance) -> str:
    ratio = change.ratio
    interval = "" if ratio.lo is None or ratio.hi is None else f" [{ratio.lo:.3f}, {ratio.hi:.3f}]"
    return f"{ratio.value:.3f}{interval}"


def _p(change: Significance) -> str:
    return f"{change.p_value:.3f}" if change.p_value >= 0.001 else "< 0.001"


def _accepted(before: Arm, after: Arm) -> str:
    rates = [arm.acceptance and arm.acceptance.accept_rate for arm in (before, after)]
    return " → ".join("" if rate is None else f"{rate:.1%}" for rate in rates) if any(rates) else ""
