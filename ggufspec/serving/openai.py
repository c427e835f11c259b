"""Requests and streamed answers in OpenAI's format: /v1/completions and /v1/chat/completions. Pure."""

from __future__ import annotations

from typing import Any

import msgspec

from ggufspec.domain import Prompt, RequestOutcome, RunSpec
from ggufspec.engines import Failure, failures
from ggufspec.engines.server import Timings
from ggufspec.serving.client import END, Reply

COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"
NO_COUNTS = "the server does not report how many tokens it generated (usage), and an event may hold several"


class _Delta(msgspec.Struct, frozen=True):
    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None  # the same in newer servers

    @property
    def text(self) -> str:
        return (self.reasoning_content or self.reasoning or "") + (self.content or "")


class _Choice(msgspec.Struct, frozen=True):
    text: str | None = None
    delta: _Delta | None = None
    finish_reason: str | None = None


class _Usage(msgspec.Struct, frozen=True):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None


class _Chunk(msgspec.Struct, frozen=True):
    """One event of a stream. Only llama-server sends ``timings``."""

    choices: tuple[_Choice, ...] = ()
    usage: _Usage | None = None
    timings: Timings | None = None
    error: Any = None
    object: str | None = None
    message: Any = None
    code: Any = None

    @property
    def failure(self) -> Failure | None:
        """The error that the server reports within its answer, if any."""
        if self.error is not None:
            error = self.error if isinstance(self.error, dict) else {"message": self.error}
            return failures.refused(error.get("code"), error.get("message"))
        return failures.refused(self.code, self.message) if self.object == "error" else None


_decoder = msgspec.json.Decoder(_Chunk)


def path_of(spec: RunSpec) -> str:
    """Return the path of a run's requests."""
    return CHAT if spec.servers is not None and spec.servers.chat else COMPLETIONS


def make_body(spec: RunSpec, prompt: Prompt) -> dict[str, Any]:
    """Return the request for an answer to a prompt.

    Samplers that are off are left out, because some servers refuse names beyond OpenAI's own. Only
    llama-server is asked not to use its prompt cache; the others have no such field.

    Args:
        spec: with ``servers``.
        prompt: a message to the server's chat template, or a text to continue.
    """
    endpoint, servers, sampling = spec.endpoint, spec.servers, spec.sampling
    assert endpoint is not None
    assert servers is not None
    body: dict[str, Any] = {
        "model": endpoint.model,
        "max_tokens": spec.n_predict,
        "temperature": 0.0 if sampling.greedy else sampling.temperature,
        "seed": sampling.seed,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    if servers.chat:
        system = [] if servers.system is None else [("system", servers.system)]
        messages = prompt.messages or (*system, ("user", prompt.text))
        body["messages"] = [{"role": role, "content": content} for role, content in messages]
    else:
        body["prompt"] = prompt.text
    if not sampling.greedy:
        limits = {"top_k": sampling.top_k, "min_p": sampling.min_p}
        body |= {name: value for name, value in limits.items() if value > 0}
        body |= {"top_p": sampling.top_p} if sampling.top_p < 1 else {}
    if endpoint.is_llama_server:
        body["cache_prompt"] = False
    return body


def take_chunk(data: str, arrived_at: float, reply: Reply) -> bool:
    """Add an event to a reply; return whether more may follow.

    A chunk with several tokens is one arrival. The number of all tokens comes last.
    """
    if data == END:
        return False
    try:
        chunk = _decoder.decode(data)
    except (msgspec.MsgspecError, RecursionError) as error:
        reply.fail(RequestOutcome.UNREADABLE, f"the server's answer cannot be read: {error}")
        return False
    failure = chunk.failure
    if failure is not None:
        reply.fail(RequestOutcome.SERVER_ERROR, failure.reason)
        return False
    for choice in chunk.choices:
        text = choice.delta.text if choice.delta is not None else choice.text or ""
        if text:
            reply.texts.append(text)
            reply.arrivals.append(arrived_at)
        if choice.finish_reason is not None:
            reply.outcome = RequestOutcome.OK
    if chunk.timings is not None:
        reply.timings = chunk.timings
    elif chunk.usage is not None and (reply.timings is None or reply.timings.predicted_ms is None):
        usage = chunk.usage
        reply.timings = Timings(prompt_n=usage.prompt_tokens, predicted_n=usage.completion_tokens)
    return True
