"""Benches of several users at several depths, with speeds that a test decides."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace

from ggufspec import results
from ggufspec.domain import (
    Prompt,
    RequestOutcome,
    Role,
    RunResult,
    Status,
    Traffic,
    TrafficSample,
    UserRequest,
)
from ggufspec.results import ResultSet
from tests.support import values

Gain = Callable[[int, int, int], float]
"""Users, depth and draft size -> the speed-up."""

SIZES = (2, 8)


def bench(
    places: Iterable[tuple[int, int]],
    gain: Gain,
    *,
    repeats: int = 3,
    repeats_of: Mapping[tuple[int, int], int] | None = None,
    noise: float = 1e-7,
    failing: tuple[int, int] | None = None,
    wall_s: float = 2.5,
    sizes: Iterable[int] = SIZES,
) -> ResultSet:
    """A bench of these users and depths; 100 tokens accepted of 100 rounds and 75 % of the drafts.

    The target alone serves one user with 100 tokens/s and eight with 400, in rounds of 10 and 20 ms.

    Args:
        places: users and depths that were measured.
        gain: the speed-up of each draft size.
        repeats: of each arm.
        repeats_of: likewise, of some places.
        noise: how far the logarithm of a speed-up is off, in turn below and above; equal speed-ups have no
            interval.
        failing: a place whose runs failed.
        wall_s: of each run.
        sizes: the draft sizes.
    """
    runs = [
        replace(run, wall_s=wall_s)
        for place in places
        for run in _runs(
            place, gain, (repeats_of or {}).get(place, repeats), noise, sizes, fails=place == failing
        )
    ]
    return values.bench(*runs)


def crossover() -> ResultSet:
    """A crossover of four numbers of users at two depths; drafting pays for up to four users.

    Two users are forecast.
    """
    gains = {1: 1.8, 4: 1.3, 8: 0.7}
    places = [(users, depth) for users in gains for depth in (0, 4096)]
    stored = bench(places, lambda users, depth, draft: gains[users])
    results.write_crossover_axes(results.CrossoverAxes(users=(1, 2, 4, 8), depths=(0, 4096)), stored.folder)
    return stored


def _runs(
    place: tuple[int, int], gain: Gain, repeats: int, noise: float, sizes: Iterable[int], *, fails: bool
) -> Iterator[RunResult]:
    users, depth = place
    rate = users / (0.010 + 0.010 * (users - 1) / 7)
    for repeat in range(repeats):
        yield _run(users, depth, rate, None, repeat, fails=fails)
        for size in sizes:
            off = math.exp(noise * (-1) ** repeat)
            yield _run(users, depth, rate * gain(users, depth, size) * off, size, repeat, fails=fails)


def _run(users: int, depth: int, rate: float, draft: int | None, repeat: int, *, fails: bool) -> RunResult:
    made = values.run(
        Role.DRAFTING if draft else Role.TARGET,
        prompt="traffic",
        draft=draft,
        repeat=repeat,
        status=Status.FAILED if fails else Status.OK,
    )
    request = UserRequest(0, RequestOutcome.OK, True, 101, 0.1, 1 / rate)
    sample = TrafficSample(requests=(request,) * 20 * users, window_tokens=round(1e7))
    traffic = Traffic(users=users, prompts=(Prompt(id="a", text="a"),), n_requests=5 * users, depth=depth)
    if not fails:
        rounds = 100 if draft else None
        made = replace(
            made, sample=replace(made.sample, gen_s=1e7 / rate, n_rounds=rounds, traffic=sample, text=None)
        )
    return replace(
        made,
        engine="server",
        spec=replace(made.spec, traffic=traffic, prompt=Prompt(id="traffic", text="")),
        load=repeat * 1000 + users * 10 + (draft or 0),
    )
