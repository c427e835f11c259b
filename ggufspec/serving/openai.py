"""Requests and streamed answers in OpenAI's format: /v1/completions and /v1/chat/completions. Pure."""

from __future__ import annotations

from typing import Any

from ggufspec.domain import Prompt, RequestOutcome, RunSpec
from ggufspec.llama.server import END, Timings, read_openai_event
from ggufspec.serving.client import UserReply, raise_reported

COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"
NO_COUNTS = "the server does not report how many tokens it generated (usage), and an event may hold several"


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


def take_openai_event(reply: UserReply, data: str, arrived_at: float) -> bool:
    """Add an event to a reply, see ``Take``.

    An event with several tokens is one arrival. The number of all tokens comes last.
    """
    if data == END:
        return False
    event = read_openai_event(data)
    raise_reported(event.failure)
    for choice in event.choices:
        text = choice.delta.text if choice.delta is not None else choice.text or ""
        if text:
            reply.texts.append(text)
            reply.arrivals.append(arrived_at)
        if choice.finish_reason is not None:
            reply.outcome = RequestOutcome.OK
    if event.timings is not None:
        reply.timings = event.timings
    elif event.usage is not None and (reply.timings is None or reply.timings.predicted_ms is None):
        usage = event.usage
        reply.timings = Timings(prompt_n=usage.prompt_tokens, predicted_n=usage.completion_tokens)
    return True
