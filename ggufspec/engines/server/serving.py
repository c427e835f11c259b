"""Start llama-server beside a measurement: once by the command that users are given, or to rank next tokens.

As users will start it, it is asked for a short and a long answer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from itertools import islice
from types import MappingProxyType
from typing import Annotated, Any, NamedTuple

import msgspec

from ggufspec.domain import Failure, Launch, RunSpec, ServedRequest, Serving, Status
from ggufspec.engines.server.engine import greedy_request, slot_drafts
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
    start,
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
    request = greedy_request(prompt, _ANSWER, caches=False) | dict(fields)
    answer = decode(server.post("/completion", request), AnswerEvent)
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


_LIKELIEST = 200


class TokenCandidate(NamedTuple):
    """A token, its bytes, and its log-probability in nats."""

    token: int | None  # None if the build reports no ids
    piece: bytes
    logprob: float


Rank = Callable[[str, Sequence[int]], tuple[TokenCandidate, ...]]
"""Returns the likeliest tokens after a text and further tokens, in descending order."""


@contextmanager
def ranker(load: RunSpec, install: Install, *, timeout_s: float | None = None) -> Iterator[Rank]:
    """Load one model in a server and yield a function that ranks next tokens.

    Raises:
        Failure: the model does not load, or the server dies or exceeds the time limit.
    """
    with closing(start(load, install, timeout_s=timeout_s)) as server:
        yield lambda text, ids: candidates(server.post("/completion", question(text, ids)))


def question(text: str, ids: Sequence[int]) -> dict[str, Any]:
    """Return the request for one place; servers of every era accept a list of a text and token ids.

    At temperature 0 servers of all eras rank by the model's own distribution. Older ones first truncate it to
    the requested number of tokens: all log-probabilities are then too large by the same amount, and only
    their differences are exact.
    """
    return {
        "prompt": [text, *ids] if ids else text,
        "n_predict": 1,
        "n_probs": _LIKELIEST,
        "temperature": 0.0,
        "cache_prompt": True,
        "stream": False,
    }


class _Ranked(msgspec.Struct):
    """A token and its probability; builds before December 2024 report no ids and no logarithms."""

    id: int | None = None
    piece: tuple[Annotated[int, msgspec.Meta(ge=0, le=255)], ...] | None = msgspec.field(
        name="bytes", default=None
    )
    logprob: float | None = None
    tok_str: str = ""
    prob: float | None = None


class _Place(msgspec.Struct):
    top_logprobs: tuple[_Ranked, ...] = ()
    probs: tuple[_Ranked, ...] = ()


class _RankingReply(msgspec.Struct):
    completion_probabilities: tuple[_Place, ...] = ()


def candidates(answer: bytes) -> tuple[TokenCandidate, ...]:
    """Return the candidates for the first token of an answer (JSON); empty if there are none.

    Raises:
        Failure: the answer cannot be read.
    """
    places = decode(answer, _RankingReply).completion_probabilities
    first = places[0] if places else _Place()
    ranked = map(_candidate, first.top_logprobs or first.probs)
    return tuple(sorted(filter(None, ranked), key=lambda candidate: -candidate.logprob))


def _candidate(ranked: _Ranked) -> TokenCandidate | None:
    logprob = ranked.logprob
    if logprob is None and ranked.prob is not None and ranked.prob > 0:
        logprob = math.log(ranked.prob)
    if logprob is None:
        return None
    piece = ranked.tok_str.encode() if ranked.piece is None else bytes(ranked.piece)
    return TokenCandidate(ranked.id, piece, logprob)
