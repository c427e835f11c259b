"""The audit of texts in one line: how much of what was written is not the target's own, and the control."""

from __future__ import annotations

from math import ceil, floor, log10

from ggufspec import units
from ggufspec.analysis import AuditSummary, texts
from ggufspec.domain import Role
from ggufspec.results import ResultSet


def audit_line(results: ResultSet) -> str | None:
    """Return the line about a bench's texts; None where none was judged."""
    summaries = texts.summarize_by_role(results.current)
    parts = [
        f"{name} {_finding(summaries[role])}"
        for role, name in ((Role.DRAFTING, "drafting"), (Role.TARGET, "the target alone (control)"))
        if role in summaries and summaries[role].texts
    ]
    reasons = sorted({reason for summary in summaries.values() for reason in summary.unjudged})
    if reasons:
        parts.append(f"complete texts were not judged: {'; '.join(reasons)}")
    control = summaries.get(Role.TARGET)
    if control is not None and control.compared:
        repeats = units.counted(control.compared, "repeat")
        parts.append(f"{control.identical} of {repeats} of the target alone wrote its first text again")
    return f"Text audit: {'; '.join(parts)}." if parts else None


def _finding(summary: AuditSummary) -> str:
    extent = f"{units.counted(summary.tokens, 'token')} of {units.counted(summary.texts, 'text')}"
    if summary.divergent is None:
        return f"{extent}, {_distribution(summary)}"
    ties = f", {units.counted(summary.near_ties, 'near-tie')}" if summary.near_ties else ""
    count = f"{summary.divergent} divergent" if summary.divergent else "no divergence"
    return f"{extent}, {count}{_bounds(summary)}{ties}"


def _bounds(summary: AuditSummary) -> str:
    """Return the highest shares that are compatible with what was found, in parentheses."""
    of_texts, of_tokens = summary.highest_share_of_texts, summary.highest_share_of_tokens
    if of_texts is None or of_tokens is None:
        return ""
    return (
        f" (at 95 %: below {format_bound(of_texts)} of texts; below {format_bound(of_tokens)} of tokens if "
        "they differ independently)"
    )


def _distribution(summary: AuditSummary) -> str:
    if summary.p_value is None:
        return "too few to test their distribution"
    verb = "do not follow" if summary.p_value < texts.UNLIKELY else "follow"
    impossible = f", {summary.impossible} impossible" if summary.impossible else ""
    chance = "< 0.001" if summary.p_value < texts.UNLIKELY else f"= {summary.p_value:.3f}"
    return f"which {verb} the target's distribution (p {chance}{impossible})"


def format_bound(share: float) -> str:
    """Return an upper bound in per cent with two significant digits, rounded up: ``0.025 %``."""
    percent = 100 * share
    digits = max(0, 1 - floor(log10(percent)))
    scale = 10**digits
    return f"{min(ceil(percent * scale - 1e-9) / scale, 100):.{digits}f} %"
