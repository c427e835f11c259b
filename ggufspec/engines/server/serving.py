"""Start llama-server once by the command that users are given, and ask it for a short and a long answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from types import MappingProxyType

from ggufspec.domain import Failure, Launch, RunSpec, ServedRequest, Serving, Status
from ggufspec.engines.server.engine import slot_drafts
from ggufspec.engines.server.response import NO_DRAFTS
from ggufspec.llama.command import commands
from ggufspec.llama.install import Install
from ggufspec.llama.server import (
    AnswerEvent,
    PortTakenError,
    Server,
    decode,
    find_free_ports,
    read_properties,
    read_tokens,
    start_printed,
)

_PORT = 8080  # llama-server's own
_ATTEMPTS = 3  # to get a port
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
    argv, server = start_served(
        lambda port: commands.serving_argv(spec, install, slots=serving.slots, port=port), timeout_s=timeout_s
    )
    if isinstance(server, Failure):
        return Launch(argv=argv, failure=server.reason)
    slot_context: int | None = None
    answers: list[ServedRequest] = []
    switches: bool | None = None
    reason: str | None = None
    try:
        slot_context = read_properties(server.get("/props")).slot_context
        if slot_context is not None and slot_context < serving.context:
            reason = f"a slot has a context of {slot_context} tokens, not {serving.context}"
        elif spec.drafting is not None and slot_drafts(server) is False:
            reason = "the server does not draft"
        else:
            short, drafted = _ask(server, _SHORT)
            # b4164 to b9108 take the draft size from each request; newer builds ignore it without a word
            switches = not _ask(server, _SHORT, NO_DRAFTS)[1] if drafted else None
            answers += short, _ask(server, _long_prompt(server, spec, serving, text, most_tokens))[0]
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
        switches=switches,
        failure=reason if reason is not None or ended is None else ended.reason,
    )


def start_served(
    command: Callable[[int], tuple[str, ...]], *, timeout_s: float | None = None
) -> tuple[tuple[str, ...], Server | Failure]:
    """Start a server by its command for a port that is free.

    Returns:
        The command, and the server, or why it does not serve.
    """
    for port in islice(find_free_ports(_PORT), _ATTEMPTS):
        argv = command(port)
        try:
            return argv, start_printed(argv, port=port, timeout_s=timeout_s)
        except PortTakenError:  # since it was found free
            continue
        except Failure as failure:
            return argv, failure
    return command(_PORT), Failure(Status.FAILED, f"no port from {_PORT} on is free")


def _long_prompt(
    server: Server, spec: RunSpec, serving: Serving, text: str, most_tokens: int | None
) -> list[int]:
    """Return the tokens of a prompt that leaves room for an answer and a draft, and for no more."""
    tokens = read_tokens(server.post("/tokenize", {"content": text}))
    if not tokens:
        raise Failure(Status.FAILED, "the server makes no tokens of the prompt")
    draft = spec.drafting.n_max if spec.drafting is not None else 0
    length = max(1, serving.context - _ANSWER - draft - _SPARE)
    length = length if most_tokens is None else min(length, max(1, most_tokens))
    return (tokens * -(-length // len(tokens)))[:length]


def _ask(
    server: Server, prompt: str | Sequence[int], fields: Mapping[str, int] = MappingProxyType({})
) -> tuple[ServedRequest, int]:
    """Return what a request with further fields took, and how many tokens were drafted for it.

    Raises:
        Failure: it was refused, not answered in time, or its prompt was cut.
    """
    request = {"prompt": prompt, "n_predict": _ANSWER, "temperature": 0.0, "top_k": 1, "stream": False}
    answer = decode(
        server.post("/completion", request | {"cache_prompt": False, "ignore_eos": True, **fields}),
        AnswerEvent,
    )
    timings = answer.figures
    count, ms = timings.predicted_n or 0, timings.predicted_ms
    if answer.truncated or count < 1:
        size = "a short" if isinstance(prompt, str) else f"a {len(prompt)}-token"
        raise Failure(Status.PROMPT_TOO_LONG, f"{size} prompt was cut or not answered")
    served = ServedRequest(
        prompt_tokens=answer.tokens_evaluated or max(0, timings.prompt_n or 0),
        answer_tokens=count,
        tokens_per_s=(count - 1) * 1000 / ms if ms and count > 1 else None,
    )
    return served, timings.draft_n or 0
