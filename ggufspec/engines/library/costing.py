"""The cost of evaluations: rounds of every size, timed in the order in which runs mix them.

Only time inside llama.cpp counts, including its sampler. Forecasts are for its own programs, which run no
Python between evaluations.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import cycle, islice

from ggufspec.domain import Status
from ggufspec.engines.failures import Failure
from ggufspec.engines.library.messages import Curve, CurveRun, RoundPart, Timing
from ggufspec.engines.library.model import Model

_SEED = 1  # of the order in which a curve's batches are timed
_IN_A_ROW = 2  # samples of a batch
_BATCHES = {RoundPart.VERIFY, RoundPart.ABSORB}  # whose graphs depend on the draft's length


def curve(target: Model, drafters: Sequence[Model], run: CurveRun) -> Curve:
    """Time rounds and the target alone, with repeats interleaved and batches in random order.

    Each batch is evaluated once before it is timed: in a run, rounds of the same size follow each other, and
    the library reuses the graph of the previous one. The first one is RESIZE.

    Raises:
        Failure: the deepest round does not fit into the context.
    """
    deepest = max(run.depths) + max(run.batches) + 1
    if deepest > target.n_context:
        reason = f"rounds at a depth of {max(run.depths)} tokens do not fit into {target.n_context}"
        raise Failure(Status.PROMPT_TOO_LONG, reason)
    tokens = [*islice(cycle(target.vocabulary.tokens(run.text)), deepest)]
    models = (target, *drafters)
    for model in models:
        model.use_threads(run.threads)
        model.clear()
    target.use_sampling(run.sampling)
    order = random.Random(_SEED)  # noqa: S311  # not for secrets
    timings: list[Timing] = []
    filled = 0
    for depth in sorted(run.depths):
        for model in models:
            model.evaluate(tokens[filled:depth], filled)
            model.wait()
        filled = depth
        for _ in range(run.repeats):
            batches = order.sample(run.batches, len(run.batches))
            for size in batches if not drafters else (1,):
                _, *timed = (_time_target(target, tokens, depth, size) for _ in range(1 + _IN_A_ROW))
                timings += (timing for parts in timed for timing in parts)
            for place, drafter in enumerate(drafters):
                for size in batches:
                    first, *others = (
                        _time_round(target, drafter, place, tokens, depth, size) for _ in range(1 + _IN_A_ROW)
                    )
                    timings += (timing for parts in others for timing in parts)
                    batches_s = sum(timing.seconds for timing in first if timing.part in _BATCHES)
                    timings.append(Timing(RoundPart.RESIZE, place, size, depth, batches_s))
    target.use_sampling(None)
    return Curve(timings=tuple(timings))


def _time_target(target: Model, tokens: Sequence[int], depth: int, size: int) -> tuple[Timing, ...]:
    begun_s = target.busy_s
    chosen_s = _verify(target, tokens, depth, size)
    target.forget(depth)
    return (
        Timing(RoundPart.VERIFY, None, size, depth, target.busy_s - begun_s - chosen_s),
        Timing(RoundPart.CHOOSE, None, size, depth, chosen_s),
    )


def _time_round(
    target: Model, drafter: Model, place: int, tokens: Sequence[int], depth: int, size: int
) -> tuple[Timing, ...]:
    """Time a round whose target batch has ``size`` tokens, then roll it back.

    With one token, the drafter evaluates it and drafts nothing.
    """
    steps = max(1, size - 1)
    target_s, drafter_s = target.busy_s, drafter.busy_s
    for at in range(depth, depth + steps):
        drafter.step(tokens[at], at)
        drafter.choose(0)
    drafter.forget(depth)
    drafted_s = drafter.busy_s
    chosen_s = _verify(target, tokens, depth, size)
    drafter.evaluate(tokens[depth : depth + size], depth, outputs=1)
    target.forget(depth)
    drafter.forget(depth)
    return (
        Timing(RoundPart.DRAFT, place, steps, depth, drafted_s - drafter_s),
        Timing(RoundPart.ABSORB, place, size, depth, drafter.busy_s - drafted_s),
        Timing(RoundPart.VERIFY, place, size, depth, target.busy_s - target_s - chosen_s),
        Timing(RoundPart.CHOOSE, place, size, depth, chosen_s),
    )


def _verify(target: Model, tokens: Sequence[int], depth: int, size: int) -> float:
    """Evaluate a batch, and choose a token at each of its outputs; return the seconds of the choices."""
    target.evaluate(tokens[depth : depth + size], depth, outputs=size)
    target.wait()
    evaluated_s = target.busy_s
    for place in range(size):
        target.choose(place)
    return target.busy_s - evaluated_s
