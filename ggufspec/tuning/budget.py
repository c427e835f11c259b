"""How much can be looked at in a given time? A slow target gets shorter and fewer texts, said aloud."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ggufspec.domain import Prompt

FINALISTS = 6  # configurations that are measured beside the target alone
_FEWEST_FINALISTS = 2
_SHORTEST = 48  # tokens; below that the ends of texts weigh too much
_FEWEST_PROMPTS = 4
_REPEATS = 2  # measured at least
_ASSUMED_SPEEDUP = 1.3  # of a finalist, before anything is known
_COSTS_SHARE = 0.15  # of the time, for the cost curve


@dataclass(frozen=True, kw_only=True)
class Budget:
    """What the time allows: prompts, tokens of each, finalists, and seconds for the cost curves."""

    prompts: int
    n_predict: int
    finalists: int
    costs_s: float


def allow(*, time_s: float | None, token_s: float, run_s: float, prompts: int, n_predict: int) -> Budget:
    """Return what fits into a time: first texts get shorter, then there are fewer, then fewer finalists.

    Every prompt is written once for its trace, and measured with the target alone and each finalist.

    Args:
        time_s: seconds for everything; None for any number.
        token_s: seconds of the target alone per token.
        run_s: seconds that a measured run takes besides, such as loading.
        prompts: how many were asked for.
        n_predict: tokens of each that were asked for.
    """
    if time_s is None:
        return Budget(prompts=prompts, n_predict=n_predict, finalists=FINALISTS, costs_s=float("inf"))
    left_s = time_s * (1 - _COSTS_SHARE)

    def seconds(prompts: int, n_predict: int, finalists: int) -> float:
        writing = 1 + _REPEATS * (1 + finalists / _ASSUMED_SPEEDUP)
        return prompts * (n_predict * token_s * writing + run_s * _REPEATS * (1 + finalists))

    shortest, fewest = min(_SHORTEST, n_predict), min(_FEWEST_PROMPTS, prompts)
    tries = [
        *((prompts, size, FINALISTS) for size in range(n_predict, shortest - 1, -1)),
        *((number, shortest, FINALISTS) for number in range(prompts - 1, fewest - 1, -1)),
        *((fewest, shortest, number) for number in range(FINALISTS - 1, _FEWEST_FINALISTS - 1, -1)),
    ]
    chosen = next((each for each in tries if seconds(*each) <= left_s), (fewest, shortest, _FEWEST_FINALISTS))
    return Budget(prompts=chosen[0], n_predict=chosen[1], finalists=chosen[2], costs_s=time_s * _COSTS_SHARE)


def spread(prompts: Sequence[Prompt], number: int) -> tuple[Prompt, ...]:
    """Return so many prompts in their order, every category in turn giving one."""
    by_category: dict[str | None, list[Prompt]] = {}
    for prompt in prompts:
        by_category.setdefault(prompt.category, []).append(prompt)
    chosen: set[str] = set()
    while len(chosen) < min(number, len(prompts)):
        for waiting in by_category.values():
            if waiting and len(chosen) < number:
                chosen.add(waiting.pop(0).id)
    return tuple(prompt for prompt in prompts if prompt.id in chosen)
