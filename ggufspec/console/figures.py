"""The measurements of answers for people: a line for each answer, a row for each role and γ."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ggufspec.console.conversation import Answer, Conversation
from ggufspec.domain import Role, Sample
from ggufspec.engines.server import Ending
from ggufspec.units import counted, format_duration, format_rate

_ENDED = {
    Ending.END_OF_TEXT: None,
    Ending.LENGTH: "length reached",
    Ending.CONTEXT_FULL: "context full",
    Ending.STOPPED: "stopped",
}


def progress(sample: Sample) -> list[str]:
    """Return the measurements of an answer that is still being generated."""
    words = [counted(sample.gen_tokens or 0, "token")]
    if sample.decode_tps is not None:
        words.append(f"{format_rate(sample.decode_tps)} tokens/s")
    if sample.accept_rate is not None:
        words.append(f"{sample.accept_rate:.0%} of {sample.n_drafted} drafted accepted")
    elif sample.n_draft:
        words.append("nothing drafted yet")
    return words


def figures(answer: Answer) -> list[str]:
    """Return the measurements of a finished answer."""
    sample = answer.sample
    words = progress(sample)
    if sample.n_draft and not sample.n_drafted:
        words[-1] = "nothing was drafted"
    if sample.ttft_s is not None:
        words.append(f"first in {format_duration(sample.ttft_s)}")
    ended = _ENDED[answer.ending]
    return [*words, *([ended] if ended else [])]


@dataclass(frozen=True, kw_only=True)
class Total:
    """All answers with one role and γ; rates are ratios of sums."""

    role: Role
    draft_size: int | None
    answers: int
    tokens: int
    tps: float | None
    accept_rate: float | None
    tokens_per_round: float | None


def totals(conversation: Conversation) -> Iterator[Total]:
    """Yield the totals of each role and draft size."""
    samples_by_arm: dict[tuple[Role, int | None], list[Sample]] = {}
    for _, answer in conversation.answers:
        samples_by_arm.setdefault((answer.role, answer.sample.n_draft), []).append(answer.sample)
    for (role, size), samples in samples_by_arm.items():
        decoded = sum(sample.decoded or 0 for sample in samples)
        seconds = sum(sample.gen_s or 0.0 for sample in samples)
        drafted = sum(sample.n_drafted or 0 for sample in samples)
        accepted = sum(sample.n_accepted or 0 for sample in samples)
        rounds = sum(sample.n_rounds or 0 for sample in samples)
        yield Total(
            role=role,
            draft_size=size,
            answers=len(samples),
            tokens=sum(sample.gen_tokens or 0 for sample in samples),
            tps=decoded / seconds if seconds > 0 and decoded > 0 else None,
            accept_rate=accepted / drafted if drafted else None,
            tokens_per_round=decoded / rounds if rounds and size else None,
        )
