"""Which prompts several users send, in which order, and how many requests are enough. Pure."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace

from ggufspec.domain import Prompt, ServiceLevel, Traffic

REQUESTS_PER_USER = 5
"""The least number of requests that count, by user: the first one of each precedes the steady window."""


LEAST_ARRIVALS = 20
"""The least number of requests that count where they arrive at a rate."""


def plan_traffic(
    prompts: Sequence[Prompt],
    users: int,
    *,
    seed: int,
    depth: int = 0,
    rate: float | None = None,
    service_level: ServiceLevel | None = None,
) -> Traffic:
    """Return the requests of several users.

    Prompts are dealt in an order that the seed fixes, the same for any number of users. Every prompt is dealt
    equally often, so that all numbers of users are measured on the same texts. Later turns of conversations
    are left out, because they contain answers.

    Args:
        prompts: at least one.
        users: who send requests at once.
        seed: fixes the order.
        depth: tokens of other text before each prompt, already part of its text.
        rate: requests that arrive in a second; None for users who wait for their answers.
        service_level: which requests count as good.
    """
    order = random.Random(f"{seed}/deal").sample(prompts, len(prompts))  # noqa: S311  # an order, not a secret
    return Traffic(
        users=users,
        prompts=tuple(replace(prompt, followups=()) for prompt in order),
        n_requests=count_requests(len(prompts), users, least=0 if rate is None else LEAST_ARRIVALS),
        depth=depth,
        rate=rate,
        service_level=service_level,
    )


def count_requests(prompts: int, users: int, *, least: int = 0) -> int:
    """Return how many requests count: the least number with which every prompt is dealt equally often.

    Args:
        prompts: how many there are.
        users: who send requests at once.
        least: requests, if that is more than each user needs.
    """
    return -(-max(REQUESTS_PER_USER * users, least) // prompts) * prompts


def plan_replay(
    prompts: Sequence[Prompt],
    users: int,
    *,
    arrivals: Sequence[float],
    answer_tokens: Sequence[int],
    service_level: ServiceLevel | None = None,
) -> Traffic:
    """Return recorded requests, each of which is sent once, when it arrived.

    Args:
        prompts: by their arrival.
        users: slots of the server, or how many requests it is expected to answer at once.
        arrivals: seconds from the first request to each.
        answer_tokens: the most tokens of each answer.
        service_level: which requests count as good.
    """
    return Traffic(
        users=users,
        prompts=tuple(prompts),
        n_requests=len(prompts),
        service_level=service_level,
        arrivals=tuple(arrivals),
        answer_tokens=tuple(answer_tokens),
    )


def arrival_times(rate: float, *, seed: int) -> Iterator[float]:
    """Yield, without end, when requests arrive: seconds of a Poisson process that the seed fixes.

    Args:
        rate: mean number of requests in a second.
        seed: fixes the times, for all arms alike.
    """
    chance, at_s = random.Random(f"{seed}/arrivals"), 0.0  # noqa: S311  # times, not secrets
    while True:
        yield at_s
        at_s += chance.expovariate(rate)
