"""The state of a chat: settings, turns with their measurements, their figures, and the next answer's text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from ggufspec.console.commands import ChangeSetting
from ggufspec.domain import Role, Sample, Sampling
from ggufspec.engines.server import AnswerEnd, Span, Stream
from ggufspec.measure import audit
from ggufspec.prompts import Message
from ggufspec.units import counted, format_duration, format_rate

_TOP_K = 40  # llama.cpp's, once the sampler is not greedy


@dataclass(frozen=True, kw_only=True)
class ChatSettings:
    """Settings of the next answer; ``draft_size`` (γ) is kept while drafting is off."""

    drafts: bool
    draft_size: int
    sampling: Sampling
    n_predict: int
    system: str | None = None

    def __str__(self) -> str:
        """Return the text of the status line."""
        drafting = f"drafting γ={self.draft_size}" if self.drafts else "target alone"
        return f"{drafting} · {describe(self.sampling)} · up to {self.n_predict} tokens"


@dataclass(frozen=True, kw_only=True)
class ChatAnswer:
    """One answer, complete or stopped, with its measurements."""

    role: Role
    spans: tuple[Span, ...]  # neighbours differ in ``drafted``
    sample: Sample
    ending: AnswerEnd
    cached_tokens: int
    wall_s: float

    @property
    def text(self) -> str:
        """The generated text."""
        return "".join(span.text for span in self.spans)

    @property
    def context_tokens(self) -> int:
        """Tokens of the context that prompt and answer take."""
        return self.cached_tokens + (self.sample.prompt_tokens or 0) + (self.sample.gen_tokens or 0)


@dataclass(frozen=True, kw_only=True)
class Turn:
    """A prompt and its answer."""

    prompt: str
    answer: ChatAnswer
    settings: ChatSettings


@dataclass(frozen=True, kw_only=True)
class AnswerComparison:
    """Answers of target, drafter and drafting to one prompt, outside the conversation."""

    prompt: str
    answers: tuple[ChatAnswer, ...]
    settings: ChatSettings

    def of(self, role: Role) -> ChatAnswer | None:
        """Return the answer of a role; None without one."""
        return next((answer for answer in self.answers if answer.role is role), None)

    @property
    def speed_up(self) -> float | None:
        """Tokens/s of drafting over tokens/s of the target alone."""
        answers = map(self.of, (Role.DRAFTING, Role.TARGET))
        rates = [answer.sample.decode_tps if answer else None for answer in answers]
        return rates[0] / rates[1] if rates[0] and rates[1] else None

    @property
    def verdict(self) -> str | None:
        """Whether drafting wrote the target's own text, in words; None unless both answered."""
        drafting, target = self.of(Role.DRAFTING), self.of(Role.TARGET)
        if drafting is None or target is None:
            return None
        if not self.settings.sampling.greedy:
            return "sampled: may differ"
        at = audit.compare(drafting.text, target.text)
        return "same as the target's" if at is None else f"differs from character {at + 1} on"


@dataclass(frozen=True)
class Cleared:
    """The conversation was cleared here."""


Entry = Turn | AnswerComparison | Cleared


@dataclass(frozen=True, kw_only=True)
class Conversation:
    """Everything that happened in a chat, oldest first."""

    entries: tuple[Entry, ...] = ()

    def add(self, entry: Entry) -> Conversation:
        """Return the conversation with one more entry."""
        return replace(self, entries=(*self.entries, entry))

    @property
    def turns(self) -> tuple[Turn, ...]:
        """The turns since the conversation was last cleared, which the model reads."""
        cleared = [number for number, entry in enumerate(self.entries) if isinstance(entry, Cleared)]
        since = self.entries[cleared[-1] + 1 if cleared else 0 :]
        return tuple(entry for entry in since if isinstance(entry, Turn))

    @property
    def answers(self) -> Iterator[tuple[ChatSettings, ChatAnswer]]:
        """Every answer with its settings, those of comparisons included."""
        for entry in self.entries:
            if isinstance(entry, Turn):
                yield entry.settings, entry.answer
            elif isinstance(entry, AnswerComparison):
                yield from ((entry.settings, answer) for answer in entry.answers)

    def messages(self, prompt: str) -> list[Message]:
        """Return the conversation with the next prompt, for a chat template."""
        before = [
            message
            for turn in self.turns
            for message in (Message("user", turn.prompt), Message("assistant", turn.answer.text))
        ]
        return [*before, Message("user", prompt)]

    def raw(self, prompt: str) -> str:
        """Return the text so far with the next prompt, for a model without a template.

        An empty prompt lets the model continue where it stopped. After a text that the model had ended, an
        empty line follows; otherwise a space, if there is none.
        """
        text = ""
        for turn in self.turns:
            text = _join(text, turn.prompt) + turn.answer.text
            if turn.answer.ending is AnswerEnd.END_OF_TEXT:
                text = f"{text.rstrip()}\n\n"
        return _join(text, prompt)


def _join(text: str, prompt: str) -> str:
    touching = bool(text and prompt) and not text[-1].isspace() and not prompt[0].isspace()
    return f"{text} {prompt}" if touching else text + prompt


def read_answer(stream: Stream) -> ChatAnswer:
    """Return the answer that a stream has brought so far."""
    spans: list[Span] = []
    for span in filter(lambda span: span.text, stream.spans_so_far):
        if spans and spans[-1].drafted == span.drafted:
            spans[-1] = Span(spans[-1].text + span.text, span.drafted)
        else:
            spans.append(span)
    return ChatAnswer(
        role=stream.spec.role,
        spans=tuple(spans),
        sample=stream.sample,
        ending=stream.ending,
        cached_tokens=stream.cached_tokens,
        wall_s=stream.wall_s,
    )


def apply_change(settings: ChatSettings, change: ChangeSetting) -> ChatSettings:
    """Return the settings after a change, which may only show one of them."""
    value: object = change.value
    if value is None and change.field != "system":
        return settings
    if isinstance(value, Mapping):
        value = _change_sampling(settings.sampling, {**value})
    return replace(settings, **{change.field: value})  # type: ignore[arg-type]  # parse knows each type


def _change_sampling(sampling: Sampling, changes: dict[str, float]) -> Sampling:
    """Change a sampler. Unless it is given, top_k becomes 1 for greedy sampling, else llama.cpp's default."""
    temperature = changes.get("temperature", sampling.temperature)
    if "temperature" in changes and "top_k" not in changes:
        if temperature <= 0:
            changes["top_k"] = 1
        elif sampling.greedy:
            changes["top_k"] = _TOP_K
    return replace(sampling, **changes)  # type: ignore[arg-type]  # parse knows each field's type


def describe(sampling: Sampling) -> str:
    """Return a sampler in a few words."""
    if sampling.greedy:
        return "greedy"
    words = [f"temp {sampling.temperature:g}", f"top_k {sampling.top_k}"]
    words += [f"top_p {sampling.top_p:g}"] if sampling.top_p < 1 else []
    words += [f"min_p {sampling.min_p:g}"] if sampling.min_p > 0 else []
    return " ".join([*words, f"seed {sampling.seed}"])


_ENDED = {
    AnswerEnd.END_OF_TEXT: None,
    AnswerEnd.LENGTH: "length reached",
    AnswerEnd.CONTEXT_FULL: "context full",
    AnswerEnd.STOPPED: "stopped",
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


def figures(answer: ChatAnswer) -> list[str]:
    """Return the measurements of a finished answer."""
    sample = answer.sample
    words = progress(sample)
    if sample.n_draft and not sample.n_drafted:
        words[-1] = "nothing was drafted"
    if sample.ttft_s is not None:
        words.append(f"first in {format_duration(sample.ttft_s)}")
    ended = _ENDED[answer.ending]
    return [*words, *([ended] if ended else [])]
