from __future__ import annotations

import numpy as np

from ggufspec.analysis import arms, review
from ggufspec.domain import Role
from ggufspec.results import ResultSet
from tests.support import values


def _bench(*, noise: float, between: float, prompts: int = 8, repeats: int = 3) -> ResultSet:
    random = np.random.default_rng(7)
    gains = 1.5 * np.exp(random.normal(0, between, prompts))
    runs = []
    for repeat in range(repeats):
        for number, gain in enumerate(gains):
            prompt, jitter = f"p{number}", np.exp(random.normal(0, noise, 2))
            runs.append(values.run(Role.TARGET, prompt=prompt, repeat=repeat, tps=float(50 * jitter[0])))
            runs.append(
                values.run(
                    Role.DRAFTING, prompt=prompt, repeat=repeat, tps=float(50 * gain * jitter[1]), draft=3
                )
            )
    return values.bench(*runs)


def _improvable(bench: ResultSet, wished: float) -> bool:
    groups = arms.group(bench)
    return review.improvable(groups, [arm.spec for arm in groups], wished)


def test_precise_speedups_want_nothing() -> None:
    groups = arms.group(_bench(noise=0.001, between=0.0))
    assert review.wanting(groups, 0.02) == {}


def test_noise_can_be_repeated_away() -> None:
    bench = _bench(noise=0.05, between=0.0)
    (needed,) = review.wanting(arms.group(bench), 0.01).values()
    assert needed.repeats > 3
    assert _improvable(bench, 0.01)


def test_differences_between_prompts_cannot() -> None:
    bench = _bench(noise=0.001, between=0.2)
    (needed,) = review.wanting(arms.group(bench), 0.02).values()
    assert needed.repeats is None
    assert needed.prompts > 8
    assert not _improvable(bench, 0.02)
