"""The target's likeliest next tokens after a text."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated, Any, NamedTuple

import msgspec

from ggufspec.domain import RunSpec
from ggufspec.llama.install import Install
from ggufspec.llama.server import answers

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
    from ggufspec.llama.server import start  # its HTTP client is slow to import

    server = start(load, install, timeout_s=timeout_s)
    try:
        yield lambda text, ids: candidates(server.post("/completion", question(text, ids)))
    finally:
        server.close()


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
    places = answers.decode(answer, _RankingReply).completion_probabilities
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
