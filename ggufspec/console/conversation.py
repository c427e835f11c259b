"""The state of a console: settings, what was said and measured, and the text that the model reads next."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from ggufspec.console.commands import Command, Draft, Gamma, Length, Sampler, System
from ggufspec.domain import Role, Sample, Sampling
from ggufspec.engines.server import Ending, Span, Stream
from ggufspec.measure import audit
from ggufspec.prompts import Message

_TOP_K = 40  # llama.cpp's, once the sampler is not greedy


@dataclass(frozen=True, kw_only=True)
class ChatSettings:
    """What the next answer is made with; ``draft_size`` (γ) is kept while drafting is off."""

    drafts: bool
    draft_size: int
    sampling: Sampling
    n_predict: int
    system: str | None = None

    def __str__(self) -> str:
        """Return them as the status line shows them."""
        drafting = f"drafting γ={self.draft_size}" if self.drafts else "target alone"
        return f"{drafting} · {describe(self.sampling)} · up to {self.n_predict} tokens"


@dataclass(frozen=True, kw_only=True)
class Answer:
    """One answer, whole or stopped, with its figures."""

    role: Role
    spans: tuple[Span, ...]  # neighbours differ in ``drafted``
    sample: Sample
    ending: Ending
    cached_tokens: int
    wall_s: float

    @property
    def text(self) -> str:
        """What was written."""
        return "".join(span.text for span in self.spans)

    @property
    def context_tokens(self) -> int:
        """How much of the context prompt and answer take."""
        return self.cached_tokens + (self.sample.prompt_tokens or 0) + (self.sample.gen_tokens or 0)


@dataclass(frozen=True, kw_only=True)
class Turn:
    """What was said, and the answer to it."""

    said: str
    answer: Answer
    settings: ChatSettings


@dataclass(frozen=True, kw_only=True)
class AnswerComparison:
    """Answers of target, drafter and both together to the same prompt, apart from the conversation."""

    prompt: str
    answers: tuple[Answer, ...]
    settings: ChatSettings

    def of(self, role: Role) -> Answer | None:
        """Return one of the answers, if it was given."""
        return next((answer for answer in self.answers if answer.role is role), None)

    @property
    def speed_up(self) -> float | None:
        """Tokens/s of drafting over those of the target alone."""
        rates = [
            each.sample.decode_tps if each else None for each in map(self.of, (Role.DRAFTING, Role.TARGET))
        ]
        return rates[0] / rates[1] if rates[0] and rates[1] else None

    @property
    def verdict(self) -> str | None:
        """Say whether drafting wrote the target's own text; None without both."""
        drafting, target = self.of(Role.DRAFTING), self.of(Role.TARGET)
        if drafting is None or target is None:
            return None
        if not self.settings.sampling.greedy:
            return "sampled: may differ"
        at = audit.compare(drafting.text, target.text)
        return "the target's own" if at is None else f"differs from character {at + 1} on"


@dataclass(frozen=True)
class Cleared:
    """Here the conversation began anew."""


Entry = Turn | AnswerComparison | Cleared


@dataclass(frozen=True, kw_only=True)
class Conversation:
    """Everything that happened in a console, oldest first."""

    entries: tuple[Entry, ...] = ()

    def add(self, entry: Entry) -> Conversation:
        """Return it with one more entry."""
        return replace(self, entries=(*self.entries, entry))

    @property
    def turns(self) -> tuple[Turn, ...]:
        """What the model still knows: the turns since the conversation last began anew."""
        cleared = [place for place, entry in enumerate(self.entries) if isinstance(entry, Cleared)]
        since = self.entries[cleared[-1] + 1 if cleared else 0 :]
        return tuple(entry for entry in since if isinstance(entry, Turn))

    @property
    def answers(self) -> Iterator[tuple[ChatSettings, Answer]]:
        """All that was measured, comparisons included."""
        for entry in self.entries:
            if isinstance(entry, Turn):
                yield entry.settings, entry.answer
            elif isinstance(entry, AnswerComparison):
                yield from ((entry.settings, answer) for answer in entry.answers)

    def messages(self, said: str) -> list[Message]:
        """Return the conversation up to what is said now, for a chat template."""
        before = [
            message
            for turn in self.turns
            for message in (Message("user", turn.said), Message("assistant", turn.answer.text))
        ]
        return [*before, Message("user", said)]

    def raw(self, said: str) -> str:
        """Return the text so far and what is added to it, for a model without a template.

        Nothing said lets the model go on where it stopped. A text that had come to its end is followed by an
        empty line, any other by a blank where there is none.
        """
        text = ""
        for turn in self.turns:
            text = _join(text, turn.said) + turn.answer.text
            if turn.answer.ending is Ending.END_OF_TEXT:
                text = f"{text.rstrip()}\n\n"
        return _join(text, said)


def _join(text: str, said: str) -> str:
    touching = bool(text and said) and not text[-1].isspace() and not said[0].isspace()
    return f"{text} {said}" if touching else text + said


def answered(stream: Stream) -> Answer:
    """Return an answer as far as it has come."""
    spans: list[Span] = []
    for span in filter(lambda span: span.text, stream.spans_so_far):
        if spans and spans[-1].drafted == span.drafted:
            spans[-1] = Span(spans[-1].text + span.text, span.drafted)
        else:
            spans.append(span)
    return Answer(
        role=stream.spec.role,
        spans=tuple(spans),
        sample=stream.sample,
        ending=stream.ending,
        cached_tokens=stream.cached_tokens,
        wall_s=stream.wall_s,
    )


def changed(settings: ChatSettings, command: Command) -> ChatSettings:
    """Return the settings that a command leaves; the same ones where it changes none."""
    match command:
        case Draft(on=bool() as on):
            return replace(settings, drafts=on)
        case Gamma(size=int() as size):
            return replace(settings, draft_size=size)
        case Length(tokens=int() as tokens):
            return replace(settings, n_predict=tokens)
        case System(text=text):
            return replace(settings, system=text)
        case Sampler(changes=changes):
            return replace(settings, sampling=_sampled(settings.sampling, dict(changes)))
        case _:
            return settings


def _sampled(sampling: Sampling, changes: dict[str, float]) -> Sampling:
    """Change a sampler; unless said otherwise, top_k becomes what a greedy or another one has by default."""
    temperature = changes.get("temperature", sampling.temperature)
    if "temperature" in changes and "top_k" not in changes:
        if temperature <= 0:
            changes["top_k"] = 1
        elif sampling.greedy:
            changes["top_k"] = _TOP_K
    whole = {name: int(changes[name]) for name in ("top_k", "seed") if name in changes}
    return replace(sampling, **changes | whole)  # type: ignore[arg-type]  # parse knows each field's type


def describe(sampling: Sampling) -> str:
    """Return a sampler in a few words."""
    if sampling.greedy:
        return "greedy"
    words = [f"temp {sampling.temperature:g}", f"top_k {sampling.top_k}"]
    words += [f"top_p {sampling.top_p:g}"] if sampling.top_p < 1 else []
    words += [f"min_p {sampling.min_p:g}"] if sampling.min_p > 0 else []
    return " ".join([*words, f"seed {sampling.seed}"])
