"""What servers count of their drafts, from the text of /metrics in Prometheus' format. Pure."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import replace

import msgspec

from ggufspec.domain import Endpoint, Role, RunSpec, Sample, Status
from ggufspec.engines.server import Parsed

_LINE = re.compile(r"^(?P<name>[a-zA-Z_:][\w:]*)(?:\{(?P<labels>.*)\})?\s+(?P<value>[0-9.eE+]+)(?:\s|$)")
_POSITION = re.compile(r'position="(\d+)"')
_VLLM = "vllm:spec_decode_num_"
_SGLANG = "sglang:"


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

    rounds: float
    drafted: float | None = None
    accepted: float | None = None
    accepted_at: tuple[float, ...] = ()
    generated: float | None = None
    requests: float | None = None


class CounterPair(msgspec.Struct, frozen=True):
    """The counters before and after a run; None where they could not be read."""

    before: ServerCounters | None = None
    after: ServerCounters | None = None


def read_counters(metrics: str) -> ServerCounters | None:
    """Return the counters of drafts in a text; None if there are none that are known by name.

    The names are vLLM's (``vllm:spec_decode_num_drafts`` and others) and SGLang's
    (``sglang:spec_verify_calls_total``). Several engines behind one server are added.
    """
    sums, places = _sums(metrics)
    if f"{_VLLM}drafts" in sums:
        return ServerCounters(
            rounds=sums[f"{_VLLM}drafts"],
            drafted=sums.get(f"{_VLLM}draft_tokens"),
            accepted=sums.get(f"{_VLLM}accepted_tokens"),
            accepted_at=tuple(places.get(place, 0.0) for place in range(max(places, default=-1) + 1)),
            generated=sums.get("vllm:generation_tokens"),
        )
    if f"{_SGLANG}spec_verify_calls" in sums:
        return ServerCounters(
            rounds=sums[f"{_SGLANG}spec_verify_calls"],
            generated=sums.get(f"{_SGLANG}generation_tokens"),
            requests=sums.get(f"{_SGLANG}num_requests"),
        )
    return None


def has_metrics_of(software: str, metrics: str) -> bool:
    """Whether a text has any metric of a server: ``vllm`` or ``sglang``."""
    return any(line.startswith(f"{software}:") for line in metrics.splitlines())


def _sums(metrics: str) -> tuple[dict[str, float], dict[int, float]]:
    """Return the sum of each metric, by its name without ``_total``, and accepted tokens by place."""
    sums: dict[str, float] = defaultdict(float)
    places: dict[int, float] = defaultdict(float)
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
        place = _POSITION.search(match["labels"] or "")
        if name == f"{_VLLM}accepted_tokens_per_pos" and place is not None:
            places[int(place[1])] += value
    return sums, places


def with_counters(parsed: Parsed, spec: RunSpec, counters: CounterPair) -> Parsed:
    """Return what a run with a running server shows, with the acceptance that its counters tell.

    llama-server reports drafts with each answer, so its counters are not used. The counters include requests
    that only kept the others company, so the generated tokens beside them do, too. SGLang counts rounds and
    tokens: each round gives its accepted tokens and one more, and the first token of an answer is that of the
    prompt.

    Args:
        parsed: from the records of all requests.
        spec: with ``servers``.
        counters: before and after the run.
    """
    sample, endpoint = parsed.sample, spec.endpoint
    if spec.role is not Role.DRAFTING or endpoint is None or sample.n_drafted is not None:
        return parsed
    before, after = counters.before, counters.after
    if before is None or after is None or after.rounds < before.rounds:
        return replace(parsed, sample=replace(sample, n_rounds=None))
    counted = _counted(sample, endpoint, before, after)
    if sample.status is Status.OK and not counted.n_rounds:
        reason = "the server's counters show no drafts"
        return Parsed(sample=replace(counted, status=Status.DRAFTING_INACTIVE), remark=reason)
    return replace(parsed, sample=counted)


def _counted(sample: Sample, endpoint: Endpoint, before: ServerCounters, after: ServerCounters) -> Sample:
    rounds = round(after.rounds - before.rounds)
    generated = _difference(before.generated, after.generated)
    drafted, accepted = (
        _difference(before.drafted, after.drafted),
        _difference(before.accepted, after.accepted),
    )
    accepted_at = None
    if after.accepted_at and len(before.accepted_at) in {0, len(after.accepted_at)}:
        earlier = before.accepted_at or (0.0,) * len(after.accepted_at)
        accepted_at = tuple(round(b - a) for a, b in zip(earlier, after.accepted_at, strict=True))
    requests = _difference(before.requests, after.requests)
    if accepted is None and generated is not None and requests is not None and endpoint.draft_size:
        accepted, drafted = max(0, generated - requests - rounds), rounds * endpoint.draft_size
    return replace(
        sample,
        n_rounds=rounds,
        n_drafted=drafted,
        n_accepted=accepted,
        accepted_at=accepted_at,
        gen_tokens=sample.gen_tokens if generated is None else generated,
    )


def _difference(before: float | None, after: float | None) -> int | None:
    return None if before is None or after is None else round(after - before)
