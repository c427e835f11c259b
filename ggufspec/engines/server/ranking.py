"""The likeliest next tokens after a text, as the target itself sees them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated, Any, NamedTuple

import msgspec

from ggufspec.domain import RunSpec
from ggufspec.engines.server.events import unreadable
from ggufspec.llama.install import Install

_LIKELIEST = 200


class TokenCandidate(NamedTuple):
    """A token, the bytes it writes, and its log-probability in nats."""

    token: int | None  # None where a build names no ids
    piece: bytes
    logprob: float


Rank = Callable[[str, Sequence[int]], tuple[TokenCandidate, ...]]
"""Returns the likeliest tokens after a text and further tokens, the likeliest first."""


@contextmanager
def ranker(load: RunSpec, install: Install, *, timeout_s: float | None = None) -> Iterator[Rank]:
    """Load one model in a server and give a function that asks it.

    Raises:
        Failure: the model does not load, or the server dies or is too slow while it is asked.
    """
    from ggufspec.engines.server.launch import start  # its HTTP client would slow every start

    server = start(load, install, timeout_s=timeout_s)
    try:
        yield lambda text, ids: candidates(server.post("/completion", question(text, ids)))
    finally:
        server.close()


def question(text: str, ids: Sequence[int]) -> dict[str, Any]:
    """Return the request for one place; a text and tokens in one list are understood in every era.

    At temperature 0 servers of all eras rank by the model's own distribution, older ones after they have cut
    it to as many tokens as are asked for: log-probabilities are then all too large by the same amount, which
    their differences do not show.
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
    """A token and how likely it is; builds before December 2024 give probabilities and no ids."""

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


class _Answer(msgspec.Struct):
    completion_probabilities: tuple[_Place, ...] = ()


def candidates(answer: bytes) -> tuple[TokenCandidate, ...]:
    """Return what a server ranks for the first token of its answer, in JSON; empty where it ranks nothing.

    Raises:
        Failure: the answer cannot be read.
    """
    try:
        places = msgspec.json.decode(answer, type=_Answer).completion_probabilities
    except (msgspec.MsgspecError, RecursionError) as error:
        raise unreadable(error) from error
    first = places[0] if places else _Place()
    ranked = map(_candidate, first.top_logprobs or first.probs)
    return tuple(sorted(filter(None, ranked), key=lambda one: -one.logprob))


def _candidate(ranked: _Ranked) -> TokenCandidate | None:
    logprob = ranked.logprob
    if logprob is None and ranked.prob is not None and ranked.prob > 0:
        logprob = math.log(ranked.prob)
    if logprob is None:
        return None
    piece = ranked.tok_str.encode() if ranked.piece is None else bytes(ranked.piece)
    return TokenCandidate(ranked.id, piece, logprob)
