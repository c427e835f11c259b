"""What servers count of their drafts, from the text of /metrics in Prometheus' format. Pure."""

from __future__ import annotations

import re
from collections import defaultdict

import msgspec

_LINE = re.compile(r"^(?P<name>[a-zA-Z_:][\w:]*)(?:\{(?P<labels>.*)\})?\s+(?P<value>[0-9.eE+]+)(?:\s|$)")
_POSITION = re.compile(r'position="(\d+)"')
_VLLM = "vllm:spec_decode_num_"
_SGLANG = "sglang:"
_LLAMA = "llamacpp:tokens_predicted"
_PER_POSITION = "spec_decode_num_accepted_tokens_per_pos"  # llama.cpp took vLLM's name


class ServerCounters(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Counts since the server's start, of all its clients. What it does not count is None.

    Attributes:
        rounds: drafts that were verified.
        drafted: tokens in them.
        accepted: those of them that were accepted.
        accepted_at: how often a draft's first, second, … token was accepted.
        generated: tokens of all answers.
        requests: that were answered.
    """

    rounds: float | None = None
    drafted: float | None = None
    accepted: float | None = None
    accepted_at: tuple[float, ...] = ()
    generated: float | None = None
    requests: float | None = None


def read_counters(metrics: str) -> ServerCounters | None:
    """Return the counters in a text; None if there are none that are known by name.

    The names of drafts are vLLM's (``vllm:spec_decode_num_drafts`` and others) and SGLang's
    (``sglang:spec_verify_calls_total``). Several engines behind one server are added.
    """
    sums, positions = _sums(metrics)
    if "vllm:generation_tokens" in sums:
        return ServerCounters(
            rounds=sums.get(f"{_VLLM}drafts"),
            drafted=sums.get(f"{_VLLM}draft_tokens"),
            accepted=sums.get(f"{_VLLM}accepted_tokens"),
            accepted_at=tuple(
                positions.get(position, 0.0) for position in range(max(positions, default=-1) + 1)
            ),
            generated=sums["vllm:generation_tokens"],
        )
    if f"{_SGLANG}generation_tokens" in sums:
        return ServerCounters(
            rounds=sums.get(f"{_SGLANG}spec_verify_calls"),
            generated=sums[f"{_SGLANG}generation_tokens"],
            requests=sums.get(f"{_SGLANG}num_requests"),
        )
    if _LLAMA in sums:
        return ServerCounters(generated=sums[_LLAMA])
    return None


def read_start(metrics: str) -> str | None:
    """Return when the server was started, as Prometheus' clients say it; None if they do not.

    The text is compared and never computed with: it is what differs from one start to the next.
    """
    lines = (_LINE.match(line) for line in metrics.splitlines())
    starts = {match["value"] for match in lines if match and match["name"] == "process_start_time_seconds"}
    return ",".join(sorted(starts)) or None


def read_accepted_at(metrics: str) -> list[int] | None:
    """Return how often each position of a draft was accepted since the start; None if it is not counted."""
    if "spec_decode_num_drafts" not in metrics:
        return None
    _, counts = _sums(metrics)
    positions = range(len(counts))
    return [round(counts[position]) for position in positions] if counts.keys() == {*positions} else None


def _sums(metrics: str) -> tuple[dict[str, float], dict[int, float]]:
    """Return the sum of each metric, by its name without ``_total``, and accepted tokens by position."""
    sums: dict[str, float] = defaultdict(float)
    positions: dict[int, float] = defaultdict(float)
    for line in metrics.splitlines():
        match = _LINE.match(line)
        if match is None:
            continue
        try:
            value = float(match["value"])
        except ValueError:
            continue
        name = match["name"].removesuffix("_total")
        sums[name] += value
        position = _POSITION.search(match["labels"] or "")
        if name.endswith(_PER_POSITION) and position is not None:
            positions[int(position[1])] += value
    return sums, positions
