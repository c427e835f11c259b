"""Several users: the 95th percentile of the time to the first token.

Times are log-normal with a standard deviation of 0.5, as far as a server's are from their median, and loads
differ by chance.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial

import numpy as np

from ggufspec import stats
from interval_paths.paths import Outcome, Path, judge

_RUN_SD = 0.5
_P95 = 1.644854  # quantile of the normal distribution


@dataclass(frozen=True, kw_only=True)
class Users:
    """Loads of a server, requests in each of them, and the standard deviation of a log time between loads."""

    loads: int
    requests: int
    load: float

    @property
    def beyond(self) -> int:
        """Requests beyond the 95th percentile."""
        return round(self.loads * self.requests * 0.05)


def simulate(users: Users, seed: int) -> Outcome:
    """Return what the interval of the 95th percentile says."""
    random = np.random.default_rng(seed)
    times = [
        np.exp(random.normal(0, users.load) + random.normal(0, _RUN_SD, users.requests))
        for _ in range(users.loads)
    ]
    return judge(stats.percentile_over_loads(times, 95), None, _P95 * math.hypot(_RUN_SD, users.load))


_DESIGNS = [
    Users(loads=loads, requests=requests, load=load)
    for loads, requests in ((3, 70), (3, 140), (3, 400), (5, 60), (5, 240), (10, 120))
    for load in (0.02, 0.1)
]

PATHS = tuple(
    Path(
        name=(
            f"p95 over {users.loads} loads, {users.beyond} requests beyond, loads differ by {users.load:.0%}"
        ),
        simulate=partial(simulate, users),
    )
    for users in _DESIGNS
)
