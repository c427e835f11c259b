"""The verdict on a drafter: from what a reference says of its guesses, and how runs agree with that."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from ggufspec import units
from ggufspec.domain import Failure, Program
from ggufspec.forecast.trace import Agreement, DraftTrace
from ggufspec.stats import Z95

_SURE = 2.0  # nats by which the target finds a token likelier than any other
_LEAST_SURE = 30  # tokens; of fewer, nothing is said
_CHANCE = 0.4
"""The share of the tokens the target is sure of that a broken drafter stays below, with its 95 % interval.

Sound drafters have 40 to 100 % of them right, also in texts that they were not made for; broken ones 0 to
32 %, which is what the last token alone tells a draft model. See docs/howto/broken-drafters.md.
"""
_HARD = 0.6  # of all tokens right: below, the text is hard for this drafter
_ALLOWED = 1  # rounds that differ
_ALLOWED_SHARE = 0.05


class DrafterVerdict(StrEnum):
    """What is wrong with a drafter, if anything."""

    WORKS = "works"
    BROKEN_FILE = "broken file"
    BROKEN_BUILD = "broken kernel or build"
    HARD_TEXT = "hard text"


@dataclass(frozen=True, kw_only=True)
class Guesses:
    """How much of the target's text a drafter has right, by the reference.

    Attributes:
        tokens: of which the drafter was asked for the next one.
        right: those that it has right.
        sure: tokens that the target is sure of.
        sure_right: those of them that the drafter has right.
    """

    tokens: int
    right: int
    sure: int
    sure_right: int


def count_guesses(traces: Sequence[DraftTrace], n_max: int) -> Guesses:
    """Count what a drafter has right of each next token of some texts."""
    places = [
        (view.text_leads[at] >= _SURE, is_right)
        for view in traces
        if view.text_leads is not None
        for at, is_right in _first_guesses(view, n_max)
    ]
    sure = [is_right for is_sure, is_right in places if is_sure]
    return Guesses(
        tokens=len(places),
        right=sum(is_right for _, is_right in places),
        sure=len(sure),
        sure_right=sum(sure),
    )


def _first_guesses(view: DraftTrace, n_max: int) -> Iterator[tuple[int, bool]]:
    """Yield each place at which a draft begins, and whether its first token is right."""
    if view.blocks is None:
        yield from enumerate(view.seen_by(Program.SERVER).match)
        return
    for at, draft in view.blocks[n_max].items():
        if at < len(view.tokens):
            yield at, draft.accepted > 0


def is_different(agreements: Sequence[Agreement]) -> bool:
    """Whether runs differ from their reference by more than near-ties and chance explain."""
    compared, differing = count_rounds(agreements)
    parts = any(agreement.parted_at is not None for agreement in agreements)
    return parts or differing > max(_ALLOWED, _ALLOWED_SHARE * compared)


def count_rounds(agreements: Sequence[Agreement]) -> tuple[int, int]:
    """Return how many rounds were compared, and how many of them differ."""
    return (
        sum(agreement.compared for agreement in agreements),
        sum(len(agreement.differing) for agreement in agreements),
    )


def is_at_chance(guesses: Guesses) -> bool:
    """Whether a drafter knows no more of a text than its last token tells, beyond chance."""
    right, wrong = guesses.sure_right + 0.5, guesses.sure - guesses.sure_right + 0.5
    most = math.log(right / wrong) + Z95 * math.sqrt(1 / right + 1 / wrong)  # empirical logit (Haldane 1956)
    return guesses.sure >= _LEAST_SURE and most < math.log(_CHANCE / (1 - _CHANCE))


def judge(
    guesses: Guesses, agreements: Sequence[Agreement], failure: Failure | None = None
) -> tuple[DrafterVerdict, str]:
    """Return the verdict, and why, as a sentence.

    Args:
        guesses: by the reference.
        agreements: of the runs with it, as far as they were made.
        failure: of a run.
    """
    if is_at_chance(guesses):
        sure = f"of {guesses.sure:,} tokens that the target is sure of"
        reason = f"the drafter has {guesses.sure_right:,} right {sure}, in the reference, too"
        return DrafterVerdict.BROKEN_FILE, reason
    if failure is not None:
        return DrafterVerdict.BROKEN_BUILD, f"{failure.status.value}: {failure.reason}"
    parted = [agreement.parted_at for agreement in agreements if agreement.parted_at is not None]
    if parted:
        reason = (
            f"the target writes another text from token {min(parted) + 1} on, and no near-tie explains it"
        )
        return DrafterVerdict.BROKEN_BUILD, reason
    compared, differing = count_rounds(agreements)
    if is_different(agreements):
        reason = f"{differing:,} of {compared:,} rounds do not accept what the reference foretells"
        return DrafterVerdict.BROKEN_BUILD, reason
    share = units.format_percent(guesses.right / max(1, guesses.tokens))
    is_hard = guesses.right < _HARD * guesses.tokens
    return (
        DrafterVerdict.HARD_TEXT if is_hard else DrafterVerdict.WORKS,
        f"the drafter has {share} of the text right, and drafts as foretold",
    )
