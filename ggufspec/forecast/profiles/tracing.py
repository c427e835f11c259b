"""What the target writes for every prompt, and every drafter's look at it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ggufspec.domain import ModelFile, Program, Prompt, RunSpec
from ggufspec.engines.library import messages
from ggufspec.forecast.trace import DraftTrace

if TYPE_CHECKING:
    from ggufspec.engines import InprocessEngine


@dataclass(frozen=True, kw_only=True)
class TracedTexts:
    """One prompt's traces: of each drafter in the order given, and of what drafts from the text alone.

    ``target_trace`` has no drafter's view: its match bits are all False. ``written_s`` is the time of writing
    the text, ``look_s`` the times of the drafters' passes over it, ``other_s`` that of all of it for another
    text of the same prompt, see ``DraftTrace.other``.
    """

    prompt: Prompt
    text: str
    target_trace: DraftTrace
    by_drafter: tuple[DraftTrace, ...]
    written_s: float
    look_s: tuple[float, ...]
    other_s: float = 0.0

    @property
    def category(self) -> str | None:
        """The prompt's category, if it has one."""
        return self.prompt.category


def traces(
    engine: InprocessEngine,
    spec: RunSpec,
    prompts: Sequence[Prompt],
    drafters: Sequence[ModelFile],
    *,
    writing: tuple[int, int] | None = None,
    limits: messages.DraftLimits = messages.DEFAULT_LIMITS,
    program: Program = Program.SIMPLE,
    twice: bool = False,
) -> Iterator[TracedTexts]:
    """Yield the traces of each prompt as soon as they are there.

    Args:
        engine: has the models loaded, or loads them.
        spec: a plain run of the target, whose ``n_predict`` is as long as ``trace.needed`` says.
        prompts: what to continue.
        drafters: whose look is wanted: draft models, and heads as ``HeadFile``.
        writing: place and draft size of the drafter that speeds up the writing of greedy texts; None without.
        limits: the draft sizes and values of p_min for which heads draft.
        program: in whose batches prompts are evaluated: near-ties of the text fall as they do there.
        twice: whether to trace a greedy text with near-ties a second time, as larger batches write it.

    Raises:
        Failure: a model does not load, a drafter is refused, or the library fails.
    """
    for prompt in prompts:
        reply = engine.trace(
            replace(spec, prompt=prompt),
            drafters,
            writing=writing,
            limits=limits,
            program=program,
            twice=twice,
        )
        yield _traced(prompt, reply)


def _traced(prompt: Prompt, reply: messages.RecordedTrace) -> TracedTexts:
    written = reply.written
    target_trace = DraftTrace(
        prompt_id=prompt.id,
        category=prompt.category,
        tokens=written.tokens,
        match=(False,) * len(written.tokens),
        confidence=(0.0,) * len(written.tokens),
        n_prompt=len(reply.prompt),
        prompt_tokens=reply.prompt,
        ended=written.ended,
        text_leads=written.leads,
        text_spread=written.spread,
    )
    traced = TracedTexts(
        prompt=prompt,
        text=written.text,
        target_trace=target_trace,
        by_drafter=tuple(_with_look(target_trace, look) for look in reply.drafters),
        written_s=written.seconds,
        look_s=tuple(look.seconds for look in reply.drafters),
    )
    if reply.other is None:
        return traced
    other = _traced(prompt, reply.other)
    return replace(
        traced,
        target_trace=replace(target_trace, other=other.target_trace),
        by_drafter=tuple(
            replace(trace, other=of_other)
            for trace, of_other in zip(traced.by_drafter, other.by_drafter, strict=True)
        ),
        other_s=other.written_s + sum(other.look_s),
    )


def _with_look(target_trace: DraftTrace, look: messages.DrafterTrace) -> DraftTrace:
    return replace(
        target_trace,
        match=look.matches,
        confidence=look.confidences,
        overlap=look.overlaps,
        drafts=look.drafts,
        blocks=look.blocks,
        leads=look.leads,
        spread=look.spread,
        served_drafts=look.served_drafts,
    )
