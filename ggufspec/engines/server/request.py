"""Requests to a llama-server, and the raw record of its answers: JSONL with arrival times."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from typing import Any, TextIO

from ggufspec.domain import Failure, RunSpec, Status
from ggufspec.llama.server import Server, event_text


def body(spec: RunSpec, *, per_request: bool, may_draft: bool, caches: bool) -> dict[str, Any]:
    """Return the request that measures a specification; samplers it does not name keep their defaults.

    Args:
        spec: what to measure.
        per_request: whether this server takes the draft size from the request.
        may_draft: whether it has a drafter loaded.
        caches: whether to enable the prompt cache; otherwise each prompt is evaluated completely.
    """
    request: dict[str, Any] = {
        "prompt": spec.prompt.text,
        "n_predict": spec.n_predict,
        "temperature": spec.sampling.temperature,
        "top_k": spec.sampling.top_k,
        "top_p": spec.sampling.top_p,
        "min_p": spec.sampling.min_p,
        "seed": _seed(spec),
        "stream": True,
        "cache_prompt": caches,
        "return_tokens": True,
        "timings_per_token": True,
        "ignore_eos": False,
    }
    if not (may_draft and per_request):
        return request
    if spec.drafting is None:
        return request | {"speculative.n_max": 0}
    return request | {
        "speculative.n_max": spec.drafting.n_max,
        "speculative.n_min": spec.drafting.n_min,
        "speculative.p_min": spec.drafting.p_min,
    }


def _seed(spec: RunSpec) -> int:
    """Return the seed; with synthetic acceptance, a different one for each prompt.

    Then repeats of a prompt accept the same tokens, while many prompts approach the requested rates.
    """
    if spec.drafting is None or spec.drafting.synthetic is None:
        return spec.sampling.seed
    return zlib.crc32(spec.prompt.text.encode(), spec.sampling.seed) >> 1  # the largest value means "random"


def send(server: Server, request: Mapping[str, Any], out: TextIO, *, timeout_s: float | None = None) -> None:
    """Request a completion and write each event of its stream to ``out`` as it arrives.

    Every line is ``{"at_s": seconds since the request was sent, "chunk": the event}``.

    Raises:
        Failure: the server died, refused the request, or took longer than ``timeout_s`` in total.
    """
    for at_s, line in server.stream_lines(request, timeout_s=timeout_s):
        _write(out, at_s, line)
        if timeout_s is not None and at_s > timeout_s:
            raise Failure(Status.TIMED_OUT, f"killed after {at_s:.0f} s")


def _write(out: TextIO, at_s: float, line: str) -> None:
    event = event_text(line)
    if event is not None and event.startswith("{"):
        out.write(f'{{"at_s": {at_s:.6f}, "chunk": {event}}}\n')
    elif line:
        note(out, at_s=at_s, line=line)


def note(out: TextIO, **fields: object) -> None:
    """Write a line of ggufspec's own to the raw record."""
    out.write(json.dumps(fields) + "\n")
