"""Benches of several users: speeds, times to the first token, and goodput, from the stored requests.

Each repeat loads an arm anew, and serves a number of requests. Loads differ by chance in speed, and in the
time to the first token, which is log-normal with a standard deviation of 0.5.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from scipy import special

from ggufspec.analysis import Arm, arms
from ggufspec.domain import Prompt, RequestOutcome, ServiceLevel, Traffic, TrafficSample, UserRequest
from interval_paths import stored
from interval_paths.paths import Outcome, Path, judge, judge_row
from interval_paths.stored import TOKENS, SimulatedArm

USERS = 4
_P95 = 1.644854  # quantile of the normal distribution
_FIRST_S = 0.2  # the median time to the first token
_FIRST_SD = 0.5
_TOKEN_SD = 0.03  # of a request's time between tokens
_RATE = 2.0  # requests/s, where they arrive by themselves


@dataclass(frozen=True, kw_only=True)
class Design:
    """Loads, requests in each of them, and the standard deviation of a logarithm between loads.

    ``late`` is how long the first token may take, over its median: a service level.
    """

    loads: int
    requests: int
    load: float
    truth: float = 1.0
    late: float | None = None

    @property
    def beyond(self) -> int:
        """Requests beyond the 95th percentile."""
        return round(self.loads * self.requests * 0.05)


def simulate(design: Design, judge_arm: Callable[[Arm, Design], Outcome], seed: int) -> Outcome:
    """Return what one figure of the arm that drafts says."""
    random = np.random.default_rng(seed)
    traffic = Traffic(
        users=USERS,
        prompts=(Prompt(id="a", text="a"),),
        n_requests=design.requests,
        rate=None if design.late is None else _RATE,
        service_level=None if design.late is None else ServiceLevel(ttft_s=_FIRST_S * design.late),
    )
    drift = random.normal(0, 0.02, design.loads)
    simulated = []
    for number, spec in enumerate((stored.target_alone(), stored.drafting())):
        speeds = random.normal(0, design.load, design.loads) + drift + number * math.log(design.truth)
        simulated.append(
            SimulatedArm(
                spec=replace(spec, traffic=traffic),
                tps=200 * np.exp(speeds + random.normal(0, 0.005, design.loads))[None, :],
                loads=np.arange(design.loads)[None, :] + 100 * number,
                samples={
                    (0, load): {"traffic": _serve(design, speed, random)} for load, speed in enumerate(speeds)
                },
                prompts=["traffic"],
            )
        )
    return judge_arm(arms.group(stored.bench(simulated))[1], design)


def _serve(design: Design, speed: float, random: np.random.Generator) -> TrafficSample:
    """Return the requests of a load; times differ between loads by as much as speeds."""
    first = _FIRST_S * np.exp(random.normal(0, design.load) + random.normal(0, _FIRST_SD, design.requests))
    each = np.exp(random.normal(0, _TOKEN_SD, design.requests) - speed) * USERS / 200
    requests = (
        UserRequest(0, RequestOutcome.OK, True, TOKENS, *times)
        for times in zip(first.tolist(), each.tolist(), strict=True)
    )
    return TrafficSample(requests=tuple(requests), window_tokens=TOKENS)


def judge_speedup(arm: Arm, design: Design) -> Outcome:
    """Return what the speed-up of all users together says."""
    return judge_row(arm.judgement, math.log(design.truth))


def judge_user_gain(arm: Arm, design: Design) -> Outcome:
    """Return what the speed-up of each user says."""
    assert arm.user_gain is not None
    return judge(arm.user_gain.ratio, None, math.log(design.truth))


def judge_user_rate(arm: Arm, design: Design) -> Outcome:
    """Return what the tokens/s of each user say."""
    harmonic = _TOKEN_SD**2 / 2  # a mean of times between tokens is larger than their median
    return judge(arm.user_rate, None, math.log(200 / USERS * design.truth) - harmonic)


def judge_first_token(arm: Arm, design: Design) -> Outcome:
    """Return what the 95th percentile of the time to the first token says."""
    assert arm.traffic is not None
    truth = math.log(_FIRST_S) + _P95 * math.hypot(_FIRST_SD, design.load)
    return judge(arm.traffic.ttft_s[95], None, truth)


def judge_goodput(arm: Arm, design: Design) -> Outcome:
    """Return what the goodput says."""
    assert arm.traffic is not None
    assert design.late is not None
    good = float(special.ndtr(math.log(design.late) / math.hypot(_FIRST_SD, design.load)))
    return judge(arm.traffic.goodput, None, math.log(_RATE * good))


_SPEEDS = [
    Design(loads=loads, requests=20, load=load, truth=truth)
    for loads in (3, 5, 8)
    for load in (0.01, 0.03)
    for truth in (1.0, 1.05)
]
_TIMES = [
    Design(loads=loads, requests=requests, load=load)
    for loads, requests in ((3, 70), (3, 140), (3, 400), (5, 60), (5, 240), (10, 120))
    for load in (0.02, 0.1)
]
_GOOD = [
    Design(loads=loads, requests=60, load=load, late=late)
    for loads in (3, 5, 10)
    for load in (0.02, 0.1)
    for late in (1.0, 3.0)
]


def _speed_path(design: Design, what: str, judge_arm: Callable[[Arm, Design], Outcome]) -> Path:
    return Path(
        name=(f"{what}, {design.loads} loads, differing by {design.load:.0%}, true {design.truth:g}"),
        simulate=partial(simulate, design, judge_arm),
        least_found=0.9 if judge_arm is judge_speedup and _is_power(design) else None,
    )


def _is_power(design: Design) -> bool:
    """Whether a bench is to find its difference: five loads of a usual spread."""
    return (design.loads, design.load, design.truth) == (5, 0.01, 1.05)


PATHS = (
    *(_speed_path(design, "speed-up", judge_speedup) for design in _SPEEDS),
    *(
        _speed_path(design, what, judge_arm)
        for what, judge_arm in (("gain per user", judge_user_gain), ("tokens/s per user", judge_user_rate))
        for design in _SPEEDS
        if design.truth == 1.0
    ),
    *(
        Path(
            name=(f"p95 of {design.loads} loads, {design.beyond} beyond, differing by {design.load:.0%}"),
            simulate=partial(simulate, design, judge_first_token),
        )
        for design in _TIMES
    ),
    *(
        Path(
            name=(
                f"goodput over {design.loads} loads of {design.requests} requests, differing by "
                f"{design.load:.0%}, limit {design.late:g} × the median"
            ),
            simulate=partial(simulate, design, judge_goodput),
        )
        for design in _GOOD
    ),
)
