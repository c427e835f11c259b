"""Which prompts several users send, in which order, and how many requests are enough. Pure."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

from ggufspec.domain import Prompt, Traffic

REQUESTS_PER_USER = 5
"""The least number of requests that count, by user: the first one of each precedes the steady window."""


def plan_traffic(prompts: Sequence[Prompt], users: int, *, seed: int, depth: int = 0) -> Traffic:
    """Return the requests of several users.

    Prompts are dealt in an order that the seed fixes, the same for any number of users. Every prompt is dealt
    equally often, so that all numbers of users are measured on the same texts. Later turns of conversations
    are left out, because they contain answers.

    Args:
        prompts: at least one.
        users: who send requests at once.
        seed: fixes the order.
        depth: tokens of other text before each prompt, already part of its text.
    """
    order = random.Random(f"{seed}/deal").sample(prompts, len(prompts))  # noqa: S311  # an order, not a secret
    rounds = -(-REQUESTS_PER_USER * users // len(prompts))
    return Traffic(
        users=users,
        prompts=tuple(replace(prompt, followups=()) for prompt in order),
        n_requests=rounds * len(prompts),
        depth=depth,
    )
