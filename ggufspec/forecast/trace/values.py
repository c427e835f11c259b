"""Trace: what both models say of one text; Step and Counts: what a run over it comes to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from ggufspec.domain import Program
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
