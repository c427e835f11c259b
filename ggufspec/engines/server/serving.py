"""Start llama-server once by the command that users are given, and ask it for a short and a long answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import msgspec

from ggufspec.domain import Launch, RunSpec, ServedRequest, Serving, Status
from ggufspec.engines.failures import Failure
from ggufspec.engines.server.capabilities import slot_drafts
from ggufspec.engines.server.events import Count, Timings
from ggufspec.engines.server.launch import Server, find_free_port, start_printed
from ggufspec.llama.command import commands
from ggufspec.llama.install import Install

_PORT = 8080  # llama-server's own
_ANSWER = 16  # tokens
_SHORT = "Once upon a time"
_SPARE = 2  # tokens beside prompt, answer and a draft: one of the target's own, and a BOS


def serve_once(
    spec: RunSpec,
    install: Install,
    serving: Serving,
    *,
    text: str,
    most_tokens: int | None = None,
    timeout_s: float | None = None,
) -> Launch:
    """Start a server for a configuration as users will, and return what it answered, or why it cannot serve.

    The long request fills the context of a slot, its answer included.

    Args:
        spec: the configuration; its context is that of all slots together.
        install: the llama.cpp whose server it is.
        serving: what it is meant to serve.
        text: repeated, the prompt of the long request.
        most_tokens: of that prompt, where more would take too long; None for no limit.
        timeout_s: time limit for the load, and for each request.

    Raises:
        NoInstallError: the install has no server.
        GgufspecError: the server lacks a flag.
    """
    try:
        port = find_free_port(_PORT)
    except Failure as failure:
        argv = commands.serving_argv(spec, install, slots=serving.slots, port=_PORT)
        return Launch(argv=argv, failure=failure.reason)
    argv = commands.serving_argv(spec, install, slots=serving.slots, port=port)
    try:
        server = start_printed(argv, port=port, timeout_s=timeout_s)
    except Failure as failure:
        return Launch(argv=argv, failure=failure.reason)
    slot_context: int | None = None
    answers: list[ServedRequest] = []
    reason: str | None = None
    try:
        slot_context = _slot_context(server)
        if slot_context is not None and slot_context < serving.context:
            reason = f"a slot has a context of {slot_context} tokens, not {serving.context}"
        elif spec.drafting is not None and slot_drafts(server) is False:
            reason = "the server does not draft"
        else:
            answers.append(_ask(server, _SHORT))
            answers.append(_ask(server, _long_prompt(server, spec, serving, text, most_tokens)))
    except Failure as failure:
        reason = failure.reason
    finally:
        ended = server.death()
        server.close()
    return Launch(
        argv=argv,
        load_s=server.load_ms / 1000,
        slot_context=slot_context,
        requests=tuple(answers),
        failure=reason if reason is not None or ended is None else ended.reason,
    )


class _Settings(msgspec.Struct):
    n_ctx: Count | None = None


class _Properties(msgspec.Struct):
    default_generation_settings: _Settings | None = None


class _Tokens(msgspec.Struct):
    tokens: list[int]


class _Answer(msgspec.Struct):
    timings: Timings
    tokens_evaluated: Count | None = None
    truncated: bool = False


T = TypeVar("T")


def _slot_context(server: Server) -> int | None:
    """Return the context of a slot, in tokens; None where the server does not say."""
    properties = server.get("/props")
    if properties is None:
        return None
    settings = _decoded(properties.content, _Properties).default_generation_settings
    return None if settings is None else settings.n_ctx


def _long_prompt(
    server: Server, spec: RunSpec, serving: Serving, text: str, most_tokens: int | None
) -> list[int]:
    """Return the tokens of a prompt that leaves room for an answer and a draft, and for no more."""
    tokens = _decoded(server.post("/tokenize", {"content": text}), _Tokens).tokens
    if not tokens:
        raise Failure(Status.FAILED, "the server makes no tokens of the prompt")
    draft = spec.drafting.n_max if spec.drafting is not None else 0
    length = max(1, serving.context - _ANSWER - draft - _SPARE)
    length = length if most_tokens is None else min(length, max(1, most_tokens))
    return (tokens * -(-length // len(tokens)))[:length]


def _ask(server: Server, prompt: str | Sequence[int]) -> ServedRequest:
    """Return what a request took.

    Raises:
        Failure: it was refused, not answered in time, or its prompt was cut.
    """
    request = {"prompt": prompt, "n_predict": _ANSWER, "temperature": 0.0, "top_k": 1, "stream": False}
    answer = _decoded(
        server.post("/completion", request | {"cache_prompt": False, "ignore_eos": True}), _Answer
    )
    timings = answer.timings
    count, ms = timings.predicted_n or 0, timings.predicted_ms
    if answer.truncated or count < 1:
        size = "a short" if isinstance(prompt, str) else f"a {len(prompt)}-token"
        raise Failure(Status.PROMPT_TOO_LONG, f"{size} prompt was cut or not answered")
    return ServedRequest(
        prompt_tokens=answer.tokens_evaluated or max(0, timings.prompt_n or 0),
        answer_tokens=count,
        tokens_per_s=(count - 1) * 1000 / ms if ms and count > 1 else None,
    )


def _decoded(content: bytes, expected: type[T]) -> T:
    """Return a server's answer.

    Raises:
        Failure: it is not of the expected form.
    """
    try:
        return msgspec.json.decode(content, type=expected)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise Failure(Status.FAILED, f"the server sent something else than an answer: {error}") from error
