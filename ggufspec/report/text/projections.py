"""Outlooks as people read them: speed-up over γ, or over γ and acceptance, and what is best."""

from __future__ import annotations

from collections.abc import Sequence

from ggufspec import units
from ggufspec.forecast import whatif
from ggufspec.forecast.whatif import Acceptance, Outlook, Steady
from ggufspec.report.text import formats


def surface(outlooks: Sequence[Outlook]) -> str:
    """Return a table over γ for one acceptance, or over both for several, with the best γ and break-even."""
    acceptances = list(dict.fromkeys(each.acceptance for each in outlooks))
    if len(acceptances) == 1:
        return f"{_lines(outlooks)}\n\n{_answer(outlooks)}\n"
    return f"{_grid(outlooks, acceptances)}\n\n{_answers(outlooks, acceptances)}\n"


def _lines(outlooks: Sequence[Outlook]) -> str:
    rows = [
        [
            str(each.n_max),
            f"{each.accept_rate:.1%}",
            f"{each.mean_accepted_length:.2f}",
            f"{each.verify_ratio:.2f}×",
            f"{each.draft_share:.0%}",
            units.format_rate(each.tokens_per_s),
            f"{each.speedup:.2f}×",
            _even(each),
        ]
        for each in outlooks
    ]
    head = ["γ", "accepted", "tokens/round", "verification", "drafter's share", "tokens/s", "speed-up"]
    return formats.grid([*head, "break-even"], rows)


def _grid(outlooks: Sequence[Outlook], acceptances: Sequence[Acceptance]) -> str:
    rows = []
    for size in dict.fromkeys(each.n_max for each in outlooks):
        row = [each for each in outlooks if each.n_max == size]
        cells = {each.acceptance: f"{each.speedup:.2f}×" for each in row}
        even = row[0].break_even_alpha
        rows.append(
            [
                str(size),
                *(cells.get(each, "") for each in acceptances),
                "never" if even is None else f"α = {even:.2f}",
            ]
        )
    return formats.grid(["speed-up at γ", *map(_name, acceptances), "break-even"], rows)


def _answer(outlooks: Sequence[Outlook]) -> str:
    top = whatif.best(outlooks)
    if top.speedup > 1:
        return (
            f"Best: γ = {top.n_max}, {top.speedup:.2f}×. Break-even: the share that must be accepted there."
        )
    easiest = min(outlooks, key=lambda each: each.break_even_accept_rate)
    if easiest.break_even_accept_rate > 1:
        return "Do not draft: at these costs no acceptance is enough."
    return (
        f"Do not draft: γ = {top.n_max} comes nearest with {top.speedup:.2f}×. "
        f"At γ = {easiest.n_max} it would pay above {easiest.break_even_accept_rate:.1%} accepted."
    )


def _answers(outlooks: Sequence[Outlook], acceptances: Sequence[Acceptance]) -> str:
    tops = [
        (acceptance, whatif.best([each for each in outlooks if each.acceptance == acceptance]))
        for acceptance in acceptances
    ]
    said = [
        f"{_name(acceptance)}: γ = {top.n_max}, {top.speedup:.2f}×"
        if top.speedup > 1
        else f"{_name(acceptance)}: do not draft"
        for acceptance, top in tops
    ]
    return "Best: " + "; ".join(said) + "."


def _name(acceptance: Acceptance) -> str:
    return f"α = {acceptance.alpha:.2f}" if isinstance(acceptance, Steady) else "by position"


def _even(each: Outlook) -> str:
    return "never" if each.break_even_accept_rate > 1 else f"{max(each.break_even_accept_rate, 0):.1%}"
