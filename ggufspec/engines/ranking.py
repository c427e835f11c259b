"""The likeliest next tokens after a text, as the target itself sees them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from ggufspec.domain import RunSpec
from ggufspec.llama.install import Install

_LIKELIEST = 200


class Candidate(NamedTuple):
    """A token, the bytes it writes, and its log-probability in nats."""

    token: int | None  # None where a build names no ids
    piece: bytes
    logprob: float


Rank = Callable[[str, Sequence[int]], tuple[Candidate, ...]]
"""Returns the likeliest tokens after a text and further tokens, the likeliest first."""


@contextmanager
def ranker(load: RunSpec, install: Install, *, timeout_s: float | None = None) -> Iterator[Rank]:
    """Load one model in a server and give a function that asks it.

    Raises:
        Failure: the model does not load, or the server dies or is too slow while it is asked.
    """
    from ggufspec.engines.launch import start  # its HTTP client would slow every start

    server = start(load, install, timeout_s=timeout_s)
    try:
        yield lambda text, ids: candidates(
            server.post("/completion", question(text, ids), timeout_s=timeout_s)
        )
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


def candidates(answer: Mapping[str, Any]) -> tuple[Candidate, ...]:
    """Return what a server ranks for the first token of its answer; empty where it ranks nothing."""
    ranked: Sequence[Mapping[str, Any]] = answer.get("completion_probabilities") or ({},)
    first = ranked[0]
    found = [*map(_candidate, first.get("top_logprobs") or first.get("probs") or ())]
    return tuple(sorted(filter(None, found), key=lambda one: -one.logprob))


def _candidate(ranked: Mapping[str, Any]) -> Candidate | None:
    """Read one entry; builds before December 2024 give probabilities and no ids."""
    logprob = ranked.get("logprob")
    if logprob is None and (prob := ranked.get("prob")):
        logprob = math.log(prob)
    if logprob is None:
        return None
    piece = bytes(ranked["bytes"]) if "bytes" in ranked else str(ranked.get("tok_str", "")).encode()
    return Candidate(ranked.get("id"), piece, float(logprob))
