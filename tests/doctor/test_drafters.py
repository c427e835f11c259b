"""Verdicts on drafters, from counts; ``tests/real`` has real ones."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ggufspec.doctor.drafters import DrafterVerdict, Guesses, judge
from ggufspec.domain import Failure, Round, Status
from ggufspec.forecast import trace
from ggufspec.forecast.trace import Agreement
from tests.support.walks import rounds_of, trace_of, traced_run

TEXT = trace_of(
    [at % 5 != 0 for at in range(24)],
    tokens=tuple(range(100, 124)),
    text_leads=(5.0,) * 12 + (0.1,) + (5.0,) * 11,
    text_spread=0.01,
    leads=tuple(3.0 if at % 5 else -3.0 for at in range(24)),
    spread=0.01,
)
RUN = {"n_predict": 24, "n_max": 3}
GOOD = Guesses(tokens=400, right=360, sure=350, sure_right=340)
SAME = Agreement(compared=90, differing=(), drafted=400, accepted=300, foretold=300)


def _compare(rounds: tuple[Round, ...], tokens: tuple[int, ...] = TEXT.tokens) -> Agreement:
    return trace.compare_rounds(TEXT, traced_run(**RUN), rounds, tokens, margin=0.25)


def test_rounds_are_compared_where_they_begin() -> None:
    rounds = rounds_of(TEXT, **RUN)
    agreement = _compare(rounds)
    assert agreement.compared == sum(entry.drafted > 0 for entry in rounds) > 4
    assert agreement.accepted == agreement.foretold == sum(entry.accepted for entry in rounds)
    assert (agreement.differing, agreement.parted_at) == ((), None)
    # one that accepts nothing does not shift those behind it
    _, _, *rest = rounds_of(TEXT, **RUN)
    assert _compare((Round(3, 0), Round(3, 3), *rest)).differing == (1,)
    assert (
        len(_compare(tuple(Round(3, 0) for _ in range(20))).differing) == 16
    )  # nothing is right at 5, 10, 15


@pytest.mark.parametrize(("place", "parted_at"), [(7, 7), (12, None)])
def test_another_text_counts_unless_a_near_tie_explains_it(place: int, parted_at: int | None) -> None:
    tokens = (*TEXT.tokens[:place], 1, *TEXT.tokens[place + 1 :])
    agreement = _compare(rounds_of(TEXT, **RUN), tokens)
    assert agreement.parted_at == parted_at
    assert 0 < agreement.compared < len(rounds_of(TEXT, **RUN))  # those behind it are of another text


@pytest.mark.parametrize(
    ("guesses", "agreement", "verdict"),
    [
        (GOOD, SAME, DrafterVerdict.WORKS),
        (replace(GOOD, right=200), SAME, DrafterVerdict.HARD_TEXT),
        (replace(GOOD, right=60, sure_right=50), SAME, DrafterVerdict.BROKEN_FILE),
        (replace(GOOD, right=30, sure=78, sure_right=30), SAME, DrafterVerdict.HARD_TEXT),  # may be chance
        (replace(GOOD, right=60, sure=20, sure_right=4), SAME, DrafterVerdict.HARD_TEXT),  # too few are sure
        (GOOD, replace(SAME, differing=(4,)), DrafterVerdict.WORKS),
        (GOOD, replace(SAME, differing=tuple(range(9))), DrafterVerdict.BROKEN_BUILD),
        (GOOD, replace(SAME, parted_at=30), DrafterVerdict.BROKEN_BUILD),
        (replace(GOOD, right=200), replace(SAME, parted_at=30), DrafterVerdict.BROKEN_BUILD),
    ],
)
def test_the_verdict(guesses: Guesses, agreement: Agreement, verdict: DrafterVerdict) -> None:
    assert judge(guesses, [agreement])[0] is verdict


def test_a_run_that_fails_is_the_builds_fault() -> None:
    verdict, reason = judge(GOOD, [SAME], Failure(Status.CRASHED, "signal 11"))
    assert verdict is DrafterVerdict.BROKEN_BUILD
    assert "signal 11" in reason
