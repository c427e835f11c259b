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
_LLAMA = "llamacpp:tokens_predicted"


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


class CounterPair(msgspec.Struct, frozen=True):
    """The counters before and after a run; None where they could not be read."""

    before: ServerCounters | None = None
    after: ServerCounters | None = None


def read_counters(metrics: str) -> ServerCounters | None:
    """Return the counters in a text; None if there are none that are known by name.

    The names of drafts are vLLM's (``vllm:spec_decode_num_drafts`` and others) and SGLang's
    (``sglang:spec_verify_calls_total``). Several engines behind one server are added.
    """
    sums, places = _sums(metrics)
    if "vllm:generation_tokens" in sums:
        return ServerCounters(
            rounds=sums.get(f"{_VLLM}drafts"),
            drafted=sums.get(f"{_VLLM}draft_tokens"),
            accepted=sums.get(f"{_VLLM}accepted_tokens"),
            accepted_at=tuple(places.get(place, 0.0) for place in range(max(places, default=-1) + 1)),
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


def with_counters(parsed: Parsed, spec: RunSpec, counters: CounterPair, *, received: float = 0) -> Parsed:
    """Return what a run with a running server shows, with the acceptance that its counters tell.

    llama-server reports drafts with each answer, so its counters are not used. The counters include requests
    that only kept the others company, so the generated tokens beside them do, too. SGLang counts rounds and
    tokens: each round gives its accepted tokens and one more, and the first token of an answer is that of the
    prompt.

    Args:
        parsed: from the records of all requests.
        spec: with ``servers``.
        counters: before and after the run.
        received: tokens of all answers of the run, those included that were cut off.
    """
    parsed = replace(parsed, sample=_with_others(parsed.sample, counters, received))
    sample, endpoint = parsed.sample, spec.endpoint
    if spec.role is not Role.DRAFTING or endpoint is None or sample.n_drafted is not None:
        return parsed
    before, after = counters.before, counters.after
    rounds = None if before is None or after is None else _difference(before.rounds, after.rounds)
    if before is None or after is None or rounds is None:
        return replace(parsed, sample=replace(sample, n_rounds=None))
    counted = _counted(sample, endpoint, before, after, rounds)
    if sample.status is Status.OK and not counted.n_rounds:
        reason = "the server's counters show no drafts"
        return Parsed(sample=replace(counted, status=Status.DRAFTING_INACTIVE), remark=reason)
    return replace(parsed, sample=counted)


def _with_others(sample: Sample, counters: CounterPair, received: float) -> Sample:
    """Return the sample with the share of tokens that the server generated for other clients."""
    before, after = counters.before, counters.after
    generated = None
    if before is not None and after is not None:
        generated = _difference(before.generated, after.generated)
    if sample.traffic is None or not generated or not received:
        return sample
    share = max(0.0, 1 - received / generated)
    return replace(sample, traffic=replace(sample.traffic, others_share=share))


def _counted(
    sample: Sample, endpoint: Endpoint, before: ServerCounters, after: ServerCounters, rounds: int
) -> Sample:
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
    """Return what was counted meanwhile; None if it was not counted, or the server was started anew."""
    return None if before is None or after is None or after < before else round(after - before)
