"""Traces, what both models say of one text; and the rounds of runs over them.

Rounds are exact in greedy mode, and expected ones under sampling. A ``TracedRun`` knows how its llama.cpp
program goes from round to round, and how that changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from ggufspec.domain import Drafting, Program
from ggufspec.engines.library import HeadDraft


@dataclass(frozen=True, kw_only=True)
class DraftTrace:
    """What target and drafter say of one text; the tuples have one entry per generated token.

    Attributes:
        prompt_id: the prompt's name.
        category: the prompt's category, if it has one.
        tokens: what the target generated, with its end-of-generation token if it came to one. A run of the
            drafting programs for N tokens needs up to ``needed`` of them.
        match: whether the drafter, having read all before this token, would have proposed it.
        confidence: the drafter's probability of what it would have proposed there, as p_min sees it:
            among its ten likeliest tokens, without temperature.
        overlap: Σ min(p, q) of both models' distributions there, after all samplers; None where unknown.
        n_prompt: how many tokens the prompt has.
        prompt_tokens: those tokens, where they are known; what drafts from the text so far needs them.
        ended: whether the last token ends the generation.
        drafts: for a head that drafts token by token, the draft that begins at each place. What it proposes
            further on depends on where it began, so ``match`` and ``confidence`` hold for first tokens only.
        blocks: for a head that drafts blocks, by draft size and place the drafts with which rounds begin;
            ``match`` and ``confidence`` say nothing then.
        text_leads: by how many nats the target finds each token likelier than any other; None where unknown.
        text_spread: by how many nats its logits move against each other in batches of other sizes.
        leads: by how many nats the drafter finds each token likelier than any other, negative where it would
            have proposed another; None where unknown, and for heads, whose drafts have their own.
        spread: by how many nats the drafter's logits move.
        served_drafts: of a layer for MTP, ``drafts`` in a server's run, which begins from another state.
        other: of the text that batches of another size write after the same prompt, where that is another.
    """

    prompt_id: str
    tokens: tuple[int, ...]
    match: tuple[bool, ...]
    confidence: tuple[float, ...]
    overlap: tuple[float, ...] | None = None
    category: str | None = None
    n_prompt: int = 1
    prompt_tokens: tuple[int, ...] = field(default=(), repr=False)
    ended: bool = False
    drafts: tuple[HeadDraft, ...] | None = field(default=None, repr=False)
    blocks: Mapping[int, Mapping[int, HeadDraft]] | None = field(default=None, repr=False)
    text_leads: tuple[float, ...] | None = field(default=None, repr=False)
    text_spread: float | None = None
    leads: tuple[float, ...] | None = field(default=None, repr=False)
    spread: float | None = None
    served_drafts: tuple[HeadDraft, ...] | None = field(default=None, repr=False)
    other: DraftTrace | None = field(default=None, repr=False)

    @property
    def texts(self) -> tuple[DraftTrace, ...]:
        """It, and the trace of the other text if there is one."""
        return (self,) if self.other is None else (self, self.other)

    @property
    def is_heads(self) -> bool:
        """Whether it is a head's."""
        return self.drafts is not None or self.blocks is not None

    def seen_by(self, program: Program) -> DraftTrace:
        """Return the trace with the drafts that a program makes."""
        drafts = self.served_drafts if program is Program.SERVER else None
        if drafts is None:
            return self
        return replace(
            self,
            match=tuple(draft.accepted > 0 for draft in drafts),
            confidence=tuple(draft.confidences[0] for draft in drafts),
            drafts=drafts,
            served_drafts=None,
        )

    def confidences(self, at: int, most: int, n_max: int) -> tuple[float, ...]:
        """Return the confidence in up to ``most`` tokens of a draft of size γ that begins at a place.

        After a token that is not the target's, that of other drafts stands in. In blocks, 0 stands after the
        first one that ends every draft.

        Raises:
            ValueError: no draft of that size was recorded at that place.
        """
        draft = self._draft(at, n_max) if most else None
        confidences = () if draft is None else draft.confidences
        return (*confidences, *self.confidence[at + len(confidences) : at + most])[:most]

    def draft_leads(self, at: int, most: int, n_max: int) -> tuple[float, ...]:
        """Return the drafter's leads of the target's tokens, as far as a draft from a place on tells them.

        Raises:
            ValueError: no draft of that size was recorded at that place.
        """
        draft = self._draft(at, n_max) if most else None
        return ((self.leads or ())[at : at + most] if draft is None else draft.leads)[:most]

    def accepted(self, at: int, drafted: int, n_max: int) -> int:
        """Return how many tokens of a draft of size γ, cut to ``drafted`` tokens, are the target's.

        Raises:
            ValueError: no draft of that size was recorded at that place.
        """
        draft = self._draft(at, n_max) if drafted else None
        if draft is not None:
            return min(draft.accepted, drafted)
        bits = self.match[at : at + drafted]
        return next((position for position, matches in enumerate(bits) if not matches), len(bits))

    def _draft(self, at: int, n_max: int) -> HeadDraft | None:
        if self.drafts is not None:
            return self.drafts[at]
        if self.blocks is None:
            return None
        draft = self.blocks.get(n_max, {}).get(at)
        if draft is None:
            raise ValueError(f"trace {self.prompt_id} has no draft of {n_max} tokens after {at} tokens")
        return draft


class TraceStep(NamedTuple):
    """A round as it happens, or with a chance: where it begins, what it drafts and accepts.

    ``at`` counts the tokens that were generated before it. ``chance`` is 1 in greedy mode, where ``accepted``
    is whole. ``proposals`` are the drafter's evaluations that propose a token, drafted in the end or not.
    """

    at: int
    chance: float
    drafted: int
    accepted: float
    proposals: int


@dataclass(frozen=True, kw_only=True)
class Counts:
    """Rounds taken together; the numbers are whole in greedy mode and expectations in sampling."""

    n_rounds: float
    n_drafted: float
    n_accepted: float


def count(taken: Iterable[TraceStep]) -> Counts:
    """Add rounds up."""
    taken = tuple(taken)
    return Counts(
        n_rounds=sum(step.chance for step in taken),
        n_drafted=sum(step.chance * step.drafted for step in taken),
        n_accepted=sum(step.chance * step.accepted for step in taken),
    )


# Drafts end before a doubtful token, no longer behind it, and the drafter reads what was verified again.
_REWRITTEN = 9109
# speculative-simple looks at what is left to predict: not yet in 9445, first seen in the summer of 2026.
_BUDGETED = 10476


@dataclass(frozen=True, kw_only=True)
class TracedRun:
    """A run over a trace, and how its program goes from round to round.

    Read in builds 2699 to 9445 and in the summer of 2026. The plain program is one that drafts nothing. The
    tree program is taken with a single branch.

    Attributes:
        drafting: what drafts, and how much; chains, ``n_min`` and settings of n-grams are not looked at.
        program: whose way of drafting and of counting it is; the tree program knows no p_min.
        n_predict: the tokens asked for.
        build: llama.cpp's build number; None for today's.
        samples_exactly: exact speculative sampling, by a trace's overlaps, instead of greedy drafting.
    """

    drafting: Drafting
    n_predict: int
    program: Program = Program.SERVER
    build: int | None = None
    samples_exactly: bool = False

    @property
    def first(self) -> int:
        """Where the first round begins."""
        return 0 if self.program is Program.SIMPLE else 1  # the prompt's evaluation gives one token to most

    def is_over(self, at: int) -> bool:
        """Whether the run ends; drafting programs stop only past ``n_predict``, the others at it."""
        past = self.program in {Program.SIMPLE, Program.TREE}
        return at > self.n_predict if past else at >= self.n_predict

    def most(self, at: int) -> int:
        """Return the longest draft of a round."""
        n_max, left = self.drafting.n_max, self.n_predict - at - 1
        if self.program is Program.PLAIN:
            return 0
        if self.program is Program.SERVER:
            return max(0, min(n_max, left))
        if self.program is Program.SIMPLE and self._since(_BUDGETED) and left > 0:
            return min(n_max, left)  # where nothing is left, its limit of 0 means none
        return n_max

    @property
    def p_min(self) -> float:
        """The least probability of a drafted token."""
        return 0.0 if self.program is Program.TREE else self.drafting.p_min

    def cut(self, confidences: Sequence[float]) -> tuple[int, int]:
        """Return how many of these proposals are drafted, and how many are looked at."""
        for position, confidence in enumerate(confidences):
            if confidence < self.p_min:
                return position + self.drafts_doubtful, position + 1
        return len(confidences), len(confidences)

    @property
    def drafts_doubtful(self) -> bool:
        """Whether a draft has the token that ends it by its low confidence, too."""
        return not self._since(_REWRITTEN)

    @property
    def absorbs(self) -> bool:
        """Whether the drafter reads each verified batch again."""
        return self.program in {Program.SERVER, Program.SIMPLE} and self._since(_REWRITTEN)

    def _since(self, build: int) -> bool:
        return self.build is None or self.build >= build


def needed(n_predict: int, n_max: int, program: Program) -> int:
    """Return how many tokens a trace must have for a run of ``n_predict`` at γ = ``n_max``."""
    overshoots = program in {Program.SIMPLE, Program.TREE}
    return n_predict + (1 + n_max if overshoots else 0)


def steps(trace: DraftTrace, run: TracedRun) -> tuple[TraceStep, ...]:
    """Return what a greedy run does, round by round.

    What is accepted is exact. So is what is drafted with ``p_min`` 0; above that, what the drafter thinks
    after a token of its own that the target will not take is in no trace: its confidence further along the
    target's text stands in for it. A head's drafts are known from each place on, those of blocks as far as a
    p_min lets them go. ``match`` may stem from sampled text, too: the simple program and the server draft
    greedily and accept what the target samples. What a program accepts beyond an end of generation is not
    counted.

    Args:
        trace: the text, with as many tokens as ``needed`` says unless it ended.
        run: a greedy one; γ = 0 drafts nothing.

    Raises:
        ValueError: the trace is too short to tell, or has no drafts of that size.
    """
    trace = trace.seen_by(run.program)
    at, taken, n_max = run.first, [], run.drafting.n_max
    while not run.is_over(at) and at < len(trace.tokens):
        most = run.most(at)
        confidences = trace.confidences(at, most, n_max)
        drafted, proposals = run.cut(confidences)
        if drafted == len(confidences):
            drafted, proposals = most, most
        accepted = trace.accepted(at, drafted, n_max)
        if trace.ended and at + accepted == len(trace.tokens) and accepted < drafted:
            accepted -= 1  # an end inside a draft counts as the target's own token, and closes the round
        check_reach(trace, at + accepted)
        taken.append(TraceStep(at, 1.0, drafted, accepted, proposals))
        at += accepted + 1
    if not run.is_over(at):
        check_reach(trace, at)
    return tuple(taken)


def expected(trace: DraftTrace, run: TracedRun) -> tuple[TraceStep, ...]:
    """Return every round that can happen under exact sampling, with its chance, by dynamic programming.

    The chance that a round begins at a place is the sum, over all earlier ones, of the chance that those
    begin and end just before it. Chances add up to the expected number of rounds.

    Args:
        trace: a text with its overlaps, as long as ``needed`` says unless it ended.
        run: one that samples.

    Raises:
        ValueError: the trace is too short to tell, or has no overlaps.
    """
    if trace.overlap is None:
        raise ValueError(f"trace {trace.prompt_id} has no overlaps: it is of greedy runs")
    size = len(trace.tokens)
    chances, taken = {run.first: 1.0}, []
    for at in range(run.first, size):
        chance = chances.pop(at, 0.0)
        if run.is_over(at) or not chance:
            continue
        drafted = run.most(at)
        check_reach(trace, at + drafted)
        so_far, accepted = chance, 0.0
        for position in range(at, min(at + drafted, size)):
            overlap = min(trace.overlap[position], 1.0)
            chances[position + 1] = chances.get(position + 1, 0.0) + so_far * (1 - overlap)
            so_far *= overlap
            accepted += so_far / chance
        end = at + drafted + 1
        chances[end] = chances.get(end, 0.0) + so_far
        taken.append(TraceStep(at, chance, drafted, accepted, drafted))
    for at in chances:  # what is left begins behind the trace
        if not run.is_over(at):
            check_reach(trace, at)
    return tuple(taken)


def check_reach(trace: DraftTrace, position: int) -> None:
    """Make sure that a trace tells which token comes at a place.

    Raises:
        ValueError: it is too short.
    """
    if position >= len(trace.tokens) and not trace.ended:
        size = len(trace.tokens)
        raise ValueError(f"trace {trace.prompt_id} has {size} tokens; this run goes beyond them")
