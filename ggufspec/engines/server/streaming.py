"""Answers that arrive token by token: the text, which of it was drafted, and the figures so far."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple

from ggufspec.domain import Program, RequestOutcome, RunSpec, Sample, Status
from ggufspec.engines.server.engine import LoadedServer, ServerEngine, distract_drafter, erase_slot
from ggufspec.engines.server.response import body
from ggufspec.llama.server import AnswerEvent, AnswerText, RequestError, Server, Timings, decode, event_text


class AnswerEnd(StrEnum):
    """Why an answer ended."""

    END_OF_TEXT = "end of text"  # the model generated an end of generation
    LENGTH = "length"
    CONTEXT_FULL = "context full"
    STOPPED = "stopped"  # by the caller


class Span(NamedTuple):
    """A piece of text; ``drafted`` if all its tokens are accepted drafts."""

    text: str
    drafted: bool


@dataclass(kw_only=True)
class DraftMarker:
    """Derives from the counts in each event whether its tokens were accepted drafts.

    Counts increase before the first token of a round is sent. A round sends its accepted tokens first, then
    one of the target's own. A token outside a round is the target's own (update_slots in llama.cpp's server).
    A token that ends inside a character is sent with the next one, which the count of tokens shows: such an
    event is marked only if all of its tokens are certainly accepted drafts. Servers that count a complete
    round before they send any token (still in b9102) do not show that; after such a character their marks may
    be late until the round ends.
    """

    counts_ahead: bool
    _n: int = 0
    _accepted: int = 0
    _due: int = 0  # minimum number of accepted tokens of the round still to come
    _left: int = 1  # minimum number of tokens of the round still to come; the first token is not in a round

    def mark(self, n: int, accepted: int) -> bool:
        """Return whether all tokens of the next event are accepted drafts.

        Args:
            n: tokens generated so far.
            accepted: drafted tokens accepted so far.
        """
        covered = 1 if self.counts_ahead else max(1, n - self._n)
        opened = accepted - self._accepted
        self._n, self._accepted = n, accepted
        drafted = covered <= self._due
        if opened > 0:
            drafted = covered == 1  # an earlier token may be of a round that accepted none
            covered -= 0 if self.counts_ahead else self._left
            self._due, self._left = opened, opened + 1
        self._due = max(0, self._due - covered)
        self._left = max(0, self._left - covered)
        return drafted


@dataclass(kw_only=True)
class Stream:
    """One answer: iterate over ``spans()`` once; read the other fields at any time, also after stopping.

    ``sample`` has the figures so far; ``cached_tokens`` is the number of prompt tokens that the server had
    cached.
    """

    spec: RunSpec
    sample: Sample
    spans_so_far: list[Span] = field(default_factory=list)
    ending: AnswerEnd = AnswerEnd.STOPPED
    cached_tokens: int = 0
    wall_s: float = 0.0
    _server: Server
    _request: Mapping[str, Any]
    _marker: DraftMarker
    _timeout_s: float | None
    _text: AnswerText = field(default_factory=AnswerText)

    def spans(self) -> Generator[Span, None, None]:
        """Send the request and yield the answer. Close this generator to stop the server early.

        Raises:
            Failure: the server died, refused the request, sent nothing for longer than the engine's time
                limit, or sent something that cannot be decoded.
        """
        ended = False
        with closing(self._server.stream_lines(self._request, timeout_s=self._timeout_s)) as arriving:
            for self.wall_s, line in arriving:
                text = event_text(line)
                if text is not None:
                    event = decode(text, AnswerEvent)
                    ended = ended or event.stop or event.finish_reason is not None
                    yield self._take(event)
        if not ended:
            raise self._server.failure(RequestError(RequestOutcome.CUT_OFF, "the answer has no end"))

    def _take(self, event: AnswerEvent) -> Span:
        if event.failure is not None:
            raise event.failure
        if event.timings is not None:
            self.cached_tokens = event.timings.cache_n or 0
            self.sample = _sample(event.timings, self.spec, ttft_s=self.sample.ttft_s or self.wall_s)
        if event.stop or event.finish_reason is not None:
            self.ending = _ending(event)
            prompt_tokens = event.tokens_evaluated or 0  # cached or not; old builds report nothing else
            self.cached_tokens = max(self.cached_tokens, prompt_tokens - (self.sample.prompt_tokens or 0))
            drafted = False
        else:
            drafted = self._marker.mark(event.figures.predicted_n or 0, event.draft.accepted)
        span = Span(self._text.add(event) + (self._text.end() if event.finish_reason else ""), drafted)
        self.spans_so_far.append(span)
        return span


@dataclass(kw_only=True)
class StreamingEngine(ServerEngine):
    """The engine ``server`` with answers that can be read while they arrive."""

    def needs_load(self, spec: RunSpec) -> bool:
        """Whether a server must be loaded first, as far as is known before."""
        return not self._pool.holds(self.load_key(spec))

    def load(self, spec: RunSpec) -> None:
        """Load the models for a run, unless they are loaded.

        Raises:
            Failure: the server did not load, or loaded the drafter and does not use it.
        """
        self._ready(spec)

    def stream(self, spec: RunSpec, *, cold: bool = False) -> Stream:
        """Return the answer to a specification's prompt; the request is sent when ``spans`` is iterated.

        Args:
            spec: the prompt and the models.
            cold: evaluate the complete prompt, as every measurement does; otherwise only tokens that are not
                cached.

        Raises:
            Failure: see ``load``.
        """
        loaded = self._ready(spec)
        capabilities = loaded.capabilities
        if cold and spec.drafting and capabilities.remembers:
            distract_drafter(loaded.server, spec.drafting, timeout_s=self.timeout_s)
        if cold and capabilities.caches_to_draft:
            erase_slot(loaded.server)
        loaded.runs += 1
        return Stream(
            spec=spec,
            sample=Sample(status=Status.SUMMARY_LOST, program=Program.SERVER),
            _server=loaded.server,
            _request=body(
                spec, per_request=capabilities.per_request, caches=capabilities.caches_to_draft or not cold
            ),
            _marker=DraftMarker(counts_ahead=capabilities.per_request),
            _timeout_s=self.timeout_s,
        )

    def _ready(self, spec: RunSpec) -> LoadedServer:
        loaded = self._loaded(spec)
        loaded.require_drafts(spec)
        return loaded


def _sample(timings: Timings, spec: RunSpec, *, ttft_s: float) -> Sample:
    n, accepted = timings.predicted_n or 0, timings.draft_n_accepted or 0
    size = spec.drafting.n_max if spec.drafting else None
    return Sample(
        status=Status.OK,
        program=Program.SERVER,
        prompt_tokens=timings.prompt_n or 0,
        prompt_tps=timings.prompt_per_second,
        gen_tokens=n,
        gen_s=(timings.predicted_ms or 0.0) / 1000,
        n_draft=size,
        n_drafted=(timings.draft_n or 0) if size else None,
        n_accepted=accepted if size else None,
        n_rounds=max(0, n - 1 - accepted),
        ttft_s=ttft_s,
    )


def _ending(final: AnswerEvent) -> AnswerEnd:
    if final.truncated:
        return AnswerEnd.CONTEXT_FULL
    ended = final.stop_type == "eos" or final.stopped_eos or final.finish_reason in {"stop", "tool_calls"}
    return AnswerEnd.END_OF_TEXT if ended else AnswerEnd.LENGTH
