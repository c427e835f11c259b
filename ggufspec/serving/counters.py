"""A run with a server that runs already, with the acceptance that its counters tell. Pure."""

from __future__ import annotations

from dataclasses import replace

import msgspec

from ggufspec.domain import Endpoint, Role, RunSpec, Sample, Status
from ggufspec.engines.server import Parsed
from ggufspec.llama.server import ServerCounters


class CounterPair(msgspec.Struct, frozen=True):
    """The counters before and after a run; None where they could not be read."""

    before: ServerCounters | None = None
    after: ServerCounters | None = None


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
