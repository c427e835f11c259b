"""Projections for people: speed-up over γ, or over γ and acceptance, and the best γ."""

from __future__ import annotations

from collections.abc import Sequence

from ggufspec import units
from ggufspec.forecast import whatif
from ggufspec.forecast.whatif import Acceptance, AcceptanceRate, CostSource, Steady, WhatIf, WhatIfProjection
from ggufspec.report.columns import TableLayout
from ggufspec.report.rows.plans import OutlookRow, break_even
from ggufspec.report.text import tables

_OUTLOOKS = TableLayout(
    row=OutlookRow,
    names=(
        *("draft", "accept_rate", "mean_accepted_length", "verify_ratio", "draft_share", "tokens_per_s"),
        *("speedup", "break_even_accept_rate"),
    ),
)


def surface(answer: WhatIf, output: str = "md") -> str:
    """Return a table over γ for one acceptance, or over both for several, with the best γ and break-even.

    Args:
        answer: the projections; those from a roofline are marked as such.
        output: ``md``, or ``table`` for the terminal, where the best γ comes first.
    """
    outlooks = answer.projections
    acceptances = list(dict.fromkeys(outlook.acceptance for outlook in outlooks))
    if len(acceptances) == 1:
        items = ({"projection": outlook, "costs": answer.costs} for outlook in outlooks)
        table, verdict = tables.render(_OUTLOOKS.fill(items), output), _best(outlooks)
    else:
        table, verdict = _over_both(outlooks, acceptances, output), _best_each(outlooks, acceptances)
    verdict = f"{verdict}\n{_reading(acceptances[0])}"
    if outlooks[0].users > 1:
        verdict += (
            f"\nTokens/s are of all {outlooks[0].users} users together, beside as many of the target alone."
        )
    if answer.costs is CostSource.ROOFLINE:
        verdict += "\nRoofline: tokens/s are estimated from peak rates, not measured."
    first, second = (verdict, table) if output == tables.TERMINAL else (table, verdict)
    return f"{first}\n\n{second}\n"


def _over_both(outlooks: Sequence[WhatIfProjection], acceptances: Sequence[Acceptance], output: str) -> str:
    rows = []
    is_rate = isinstance(acceptances[0], AcceptanceRate)
    for size in dict.fromkeys(outlook.n_max for outlook in outlooks):
        row = [outlook for outlook in outlooks if outlook.n_max == size]
        cells = {outlook.acceptance: units.format_factor(outlook.speedup) for outlook in row}
        even = row[0].break_even_alpha
        alpha = "never" if even is None else f"α = {even:.2f}"
        rows.append(
            [
                str(size),
                *(cells.get(acceptance, "") for acceptance in acceptances),
                break_even(row[0].break_even_accept_rate) if is_rate else alpha,
            ]
        )
    return tables.grid(["speed-up at γ", *map(_name, acceptances), "break-even"], rows, output)


def _best(outlooks: Sequence[WhatIfProjection]) -> str:
    top = whatif.best(outlooks)
    if top.speedup > 1:
        return (
            f"Best: γ = {top.n_max}, {units.format_factor(top.speedup)}. "
            "Break-even: the acceptance rate above which drafting pays."
        )
    easiest = min(outlooks, key=lambda outlook: outlook.break_even_accept_rate)
    if easiest.break_even_accept_rate > 1:
        return "By this projection, drafting would not pay: at these costs no acceptance rate is high enough."
    return (
        f"By this projection, drafting would not pay: γ = {top.n_max} comes closest with "
        f"{units.format_factor(top.speedup)}. γ = {easiest.n_max} would pay above an acceptance rate of "
        f"{break_even(easiest.break_even_accept_rate)}."
    )


def _best_each(outlooks: Sequence[WhatIfProjection], acceptances: Sequence[Acceptance]) -> str:
    tops = [
        (acceptance, whatif.best([outlook for outlook in outlooks if outlook.acceptance == acceptance]))
        for acceptance in acceptances
    ]
    answers = [
        f"{_name(acceptance)}: γ = {top.n_max}, {units.format_factor(top.speedup)}"
        if top.speedup > 1
        else f"{_name(acceptance)}: no γ would pay"
        for acceptance, top in tops
    ]
    return "Best: " + "; ".join(answers) + "."


def _name(acceptance: Acceptance) -> str:
    match acceptance:
        case AcceptanceRate():
            return f"{units.format_percent(acceptance.rate)} accepted"
        case Steady():
            return f"α = {acceptance.alpha:.2f}"
        case _:
            return "by position"


def _reading(acceptance: Acceptance) -> str:
    """Return what an acceptance means, as one sentence."""
    match acceptance:
        case AcceptanceRate():
            return "Acceptance: the share of the drafted tokens that is accepted, at every γ."
        case Steady():
            return "Acceptance: the probability α that each drafted token is accepted, at every γ."
        case _:
            return "Acceptance: the share of rounds that accept each position of the draft."
