"""What several users saw: speed of each, time to the first token, time between tokens, failed requests."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ggufspec import stats
from ggufspec.domain import RequestOutcome, ServiceLevel, Traffic, TrafficSample, UserRequest
from ggufspec.results import Runs, number_loads

PERCENTILES = (50, 95, 99)


@dataclass(frozen=True, kw_only=True)
class TrafficFigures:
    """The requests of all runs of an arm that count.

    Attributes:
        runs: loads of the models under traffic.
        requests: in all runs, those outside the steady windows included.
        failed: how many of them failed, by outcome.
        steady: how many were sent in the steady windows and answered.
        ttft_s: percentile -> time to the first token in s, of requests sent in the steady windows. A
            percentile with fewer than ten requests beyond it is left out.
        token_s: the same of the mean time between a request's tokens.
        prompt_tps: prompt tokens over the seconds of their evaluation, while other users are served.
        burst_share: share of tokens that arrived together with the token before them, 0 to 1.
        goodput: requests/s that kept the service level, over loads; None without one.
        saturated: in how many runs requests arrived faster than they were answered.
        client_share: see ``TrafficSample``; the highest of all runs.
    """

    runs: int
    requests: int
    failed: Mapping[RequestOutcome, int]
    steady: int
    ttft_s: Mapping[int, stats.Estimate]
    token_s: Mapping[int, stats.Estimate]
    prompt_tps: float | None
    burst_share: float | None
    client_share: float | None
    goodput: stats.Estimate | None
    saturated: int


def summarize_traffic(runs: Runs) -> TrafficFigures | None:
    """Return what users saw in all runs of an arm; None if they had no traffic.

    Args:
        runs: of one arm, failed ones included.
    """
    numbered = zip(runs.column("traffic"), number_loads(runs).tolist(), strict=True)
    answered = [(traffic, load) for traffic, load in numbered if traffic is not None]
    samples: list[TrafficSample] = [traffic for traffic, _ in answered]
    if not samples:
        return None
    by_load: dict[object, list[TrafficSample]] = {}
    for index, (traffic, load) in enumerate(answered):
        unrecorded = math.isnan(load)
        by_load.setdefault(("run", index) if unrecorded else load, []).append(traffic)
    loads = list(by_load.values())
    requests = [request for sample in samples for request in sample.requests]
    outcomes = Counter(request.outcome for request in requests)
    outcomes.pop(RequestOutcome.OK, None)
    return TrafficFigures(
        runs=len(samples),
        requests=len(requests),
        failed=outcomes,
        steady=len(_steady(samples)),
        ttft_s=_percentiles(
            [[answered_request.ttft_s for answered_request in _steady(load)] for load in loads]
        ),
        token_s=_percentiles(
            [[answered_request.token_s for answered_request in _steady(load)] for load in loads]
        ),
        prompt_tps=_mean(runs.column("prompt_tps")),
        burst_share=_mean([sample.burst_share for sample in samples]),
        client_share=max((s.client_share for s in samples if s.client_share is not None), default=None),
        goodput=_goodput(runs.specs[0].traffic, loads),
        saturated=sum(sample.is_saturated is True for sample in samples),
    )


def uncertain_percentiles(figures: TrafficFigures) -> dict[int, int]:
    """Return the percentiles that few slow requests decide, with how many lie beyond each."""
    beyond = {percent: round(figures.steady * (100 - percent) / 100) for percent in figures.ttft_s}
    return {percent: count for percent, count in beyond.items() if count < stats.FEW_BEYOND}


def user_rate(sample: TrafficSample) -> float | None:
    """Return the tokens/s that a user saw between the first and the last token of an answer.

    All answers of requests sent in the steady window count by their tokens: the tokens after the first over
    the seconds between the first and the last.
    """
    timed = [(request.tokens - 1, request.token_s) for request in _steady([sample]) if request.token_s]
    seconds = sum(gaps * token_s for gaps, token_s in timed)
    return sum(gaps for gaps, _ in timed) / seconds if seconds else None


def is_good(request: UserRequest, level: ServiceLevel) -> bool:
    """Whether a request was answered within the limits; an answer of one token has no time between tokens."""
    if request.outcome is not RequestOutcome.OK or request.ttft_s is None:
        return False
    has_begun = level.ttft_s is None or request.ttft_s <= level.ttft_s
    return has_begun and (level.token_s is None or (request.token_s or 0.0) <= level.token_s)


def _goodput(traffic: Traffic | None, loads: Sequence[Sequence[TrafficSample]]) -> stats.Estimate | None:
    """Return the rate of arrivals times the share of good requests among those behind the first ones."""
    rate = None if traffic is None else traffic.mean_rate
    if traffic is None or rate is None or traffic.service_level is None:
        return None
    good, totals = {}, {}
    for number, samples in enumerate(loads):
        steady = [request for sample in samples for request in sample.requests if request.is_steady]
        good[str(number)] = rate * sum(is_good(request, traffic.service_level) for request in steady)
        totals[str(number)] = float(len(steady))
    return stats.ratio_of_sums(good, totals, highest=rate)


def _steady(samples: Sequence[TrafficSample]) -> list[UserRequest]:
    """Return the answered requests of the steady windows of some runs."""
    requests = (request for sample in samples for request in sample.requests)
    return [sent for sent in requests if sent.is_steady and sent.outcome is RequestOutcome.OK]


def _percentiles(values: list[list[float | None]]) -> dict[int, stats.Estimate]:
    measured = [[value for value in load if value is not None] for load in values]
    estimates = {percent: stats.percentile_over_loads(measured, percent) for percent in PERCENTILES}
    return {percent: estimate for percent, estimate in estimates.items() if estimate is not None}


def _mean(shares: list[float | None]) -> float | None:
    reported = [share for share in shares if share is not None]
    return sum(reported) / len(reported) if reported else None
