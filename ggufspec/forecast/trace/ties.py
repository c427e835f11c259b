"""Which rounds of a greedy run another order of additions could change.

A run evaluates the text in other batches than its trace. That moves logits a little, by the trace's spread.
A choice that is no closer than that falls in the run as in the trace. Closer ones are near-ties: between the
target's two likeliest tokens, between the drafter's, or between a confidence and p_min.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ggufspec.domain import Round
from ggufspec.engines.library import NEAR_TIE
from ggufspec.forecast.trace.ngrams import walk
from ggufspec.forecast.trace.walks import DraftTrace, TracedRun, TraceStep

_DRAFT_TIE = 2 * NEAR_TIE
"""A drafter's movements add up over a text: its caches hold what the target computed in other batches. With
kernels for SSE4.2, a confidence of the DFlash head moved 4.3 times as far as any that was measured.
"""


@dataclass(frozen=True, kw_only=True)
class Certainty:
    """How sure the rounds of a greedy run are.

    Attributes:
        rounds: how many there are if every near-tie falls as in the trace.
        sure: how many of the first of these no near-tie can change.
        fewest: the least there can be, whichever way the drafter's near-ties fall.
        most: the most there can be.
        keeps_text: whether no near-tie of the target can change the text. If not, ``fewest`` and ``most`` are
            those with this text.
    """

    rounds: int
    sure: int
    fewest: int
    most: int
    keeps_text: bool

    @property
    def is_sure(self) -> bool:
        """Whether no near-tie can change the counts."""
        return self.sure == self.rounds and self.keeps_text


def certainty(trace: DraftTrace, run: TracedRun) -> Certainty | None:
    """Return how sure the rounds are that ``steps`` or ``ngram_steps`` returns for a greedy run.

    Drafts from the text have no near-ties of their own. None stands for what is not known.

    Raises:
        ValueError: see ``steps`` and ``ngram_steps``.
    """
    if trace.text_spread is None or trace.text_leads is None:
        return None
    taken = walk(trace, run)
    changes_at = first_text_tie(trace)
    if not run.drafting.method.drafts_with_model:
        sure = sum(_end(step) < changes_at for step in taken)
        size = len(taken)
        return Certainty(rounds=size, sure=sure, fewest=size, most=size, keeps_text=sure == size)
    if trace.spread is None:
        return None
    choices = _Choices(trace.seen_by(run.program), run)
    last = _end(taken[-1]) if taken else 0
    fewest, most = choices.rounds()
    sure = 0
    for step in taken:
        if choices.accepted(step.at) != {int(step.accepted)} or _end(step) >= changes_at:
            break
        sure += 1
    return Certainty(rounds=len(taken), sure=sure, fewest=fewest, most=most, keeps_text=last < changes_at)


@dataclass(frozen=True, kw_only=True)
class Agreement:
    """How the rounds of a measured run compare with what its trace allows.

    Attributes:
        compared: rounds within the text of both, of whose drafts the trace tells what they come to.
        differing: the tokens before each of these that accepted another number than near-ties allow.
        drafted: tokens that these rounds drafted.
        accepted: tokens that they accepted.
        foretold: tokens that they accept in the trace.
        parted_at: the first token of another text, where that is no near-tie; None where there is none.
    """

    compared: int
    differing: tuple[int, ...]
    drafted: int
    accepted: int
    foretold: int
    parted_at: int | None = None


def compare_rounds(
    trace: DraftTrace, run: TracedRun, rounds: Sequence[Round], tokens: Sequence[int], *, margin: float = 0.0
) -> Agreement:
    """Compare a measured run with its trace, place by place: a round that differs does not shift the others.

    Args:
        trace: of a greedy text, with leads and spreads.
        run: what was measured.
        rounds: its rounds, in their order.
        tokens: its text.
        margin: by how many nats choices may move beyond what the trace has seen, as with other kernels.
    """
    assert trace.text_leads is not None
    assert trace.text_spread is not None
    choices = _Choices(trace.seen_by(run.program), run, margin)
    pairs = zip(tokens, trace.tokens, strict=False)
    shared = next((place for place, (ours, theirs) in enumerate(pairs) if ours != theirs), None)
    is_tie = shared is None or trace.text_leads[shared] <= max(NEAR_TIE * trace.text_spread, margin)
    at, differing, compared = run.first, [], [0, 0, 0, 0]
    for entry in rounds:
        if at + entry.accepted >= (len(trace.tokens) if shared is None else shared):
            break
        foretold = choices.likely(at)
        if foretold is not None and entry.drafted:
            counts = (1, entry.drafted, entry.accepted, foretold)
            compared = [sum(both) for both in zip(compared, counts, strict=True)]
            if entry.accepted not in choices.accepted(at):
                differing.append(at)
        at += entry.accepted + 1
    n_compared, drafted, accepted, foretold = compared
    return Agreement(
        compared=n_compared,
        differing=tuple(differing),
        drafted=drafted,
        accepted=accepted,
        foretold=foretold,
        parted_at=None if is_tie else shared,
    )


def _end(step: TraceStep) -> int:
    """Return the place of the token that the target adds at the end of a round."""
    return step.at + int(step.accepted)


def first_text_tie(trace: DraftTrace) -> float:
    """Return the place of the first token that a near-tie of the target could change; infinity without one.

    Raises:
        ValueError: the trace does not tell.
    """
    if trace.text_leads is None or trace.text_spread is None:
        raise ValueError(f"trace {trace.prompt_id} does not tell how close the target's choices were")
    limit = NEAR_TIE * trace.text_spread
    return next((position for position, lead in enumerate(trace.text_leads) if lead <= limit), math.inf)


class _Choices:
    """What rounds may accept, and how many there may be, from each place of a text on."""

    def __init__(self, trace: DraftTrace, run: TracedRun, margin: float = 0.0) -> None:
        assert trace.spread is not None
        self._trace, self._run, self._limit = trace, run, max(_DRAFT_TIE * trace.spread, margin)

    def likely(self, at: int) -> int | None:
        """Return what a round from a place on accepts in the trace; None where that was not recorded."""
        try:
            return self._trace.accepted(at, self._run.most(at), self._run.drafting.n_max)
        except ValueError:
            return None

    def accepted(self, at: int) -> set[int]:
        """Return each number of tokens that a round from a place on may accept."""
        most = self._run.most(at)
        numbers = self._numbers(at, most)
        if self._trace.ended:  # an end inside a draft counts as the target's own token; see ``steps``
            last = len(self._trace.tokens) - at
            numbers = {number - 1 if number == last and number < most else number for number in numbers}
        return numbers

    def _numbers(self, at: int, most: int) -> set[int]:
        n_max, p_min = self._run.drafting.n_max, self._run.p_min
        try:
            confidences = self._trace.confidences(at, most, n_max)
            leads = self._trace.draft_leads(at, most, n_max)
        except ValueError:  # no draft was recorded there: a near-tie led to this place
            return {*range(most + 1)}
        numbers: set[int] = set()
        limit = self._limit
        for position in range(most):
            if p_min and position < len(confidences):
                odds = _odds(confidences[position]) - _odds(p_min)
                if odds <= limit:
                    numbers |= {position, position + self._run.drafts_doubtful}
                    if odds < -limit:
                        return numbers
            if at + position >= len(self._trace.tokens):
                numbers.add(position)
                return numbers
            if position >= len(leads):
                return numbers | {*range(position, most + 1)}
            if leads[position] < -limit:
                return numbers | {position}
            if leads[position] <= limit:
                numbers.add(position)
        return numbers | {most}

    def rounds(self) -> tuple[int, int]:
        """Return the fewest and the most rounds that a run may have."""
        from_there: dict[int, tuple[int, int]] = {}  # none where a run is over
        first = self._run.first
        for at in range(len(self._trace.tokens) - 1, first - 1, -1):
            if not self._run.is_over(at):
                rest = [from_there.get(at + number + 1, (0, 0)) for number in self.accepted(at)]
                from_there[at] = 1 + min(low for low, _ in rest), 1 + max(high for _, high in rest)
        return from_there.get(first, (0, 0))


def _odds(probability: float) -> float:
    """Return the log-odds of a probability, which move by no more than the logits that it is made of."""
    if not 0 < probability < 1:
        return math.inf if probability >= 1 else -math.inf
    return math.log(probability / (1 - probability))
