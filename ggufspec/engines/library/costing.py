"""What evaluations cost: rounds of every size, timed as runs mix them.

Only what llama.cpp itself takes is counted, choosing a token with its own sampler included: forecasts are of
its programs, which have no interpreter between evaluations.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import cycle, islice

from ggufspec.domain import Status
from ggufspec.engines.failures import Failure
from ggufspec.engines.library.messages import Curve, CurveRun, Part, Timing
from ggufspec.engines.library.model import Model

_SEED = 1  # of the order in which a curve's batches are timed
_IN_A_ROW = 2  # samples of a batch
_BATCHES = {Part.VERIFY, Part.ABSORB}  # whose graphs depend on the draft's length


def curve(target: Model, drafters: Sequence[Model], run: CurveRun) -> Curve:
    """Time rounds and the target alone, repeats interleaved, batches in changing order.

    Each batch is evaluated once before it is timed: in a run, rounds of the same size follow each other, and
    the library uses the last one's graph again. That first round is RESIZE.

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
    order = random.Random(_SEED)  # noqa: S311  # an order, no secret
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
                _, *timed = (_alone(target, tokens, depth, size) for _ in range(1 + _IN_A_ROW))
                timings += (timing for parts in timed for timing in parts)
            for place, drafter in enumerate(drafters):
                for size in batches:
                    first, *others = (
                        _round(target, drafter, place, tokens, depth, size) for _ in range(1 + _IN_A_ROW)
                    )
                    timings += (timing for parts in others for timing in parts)
                    batches_s = sum(timing.seconds for timing in first if timing.part in _BATCHES)
                    timings.append(Timing(Part.RESIZE, place, size, depth, batches_s))
    target.use_sampling(None)
    return Curve(timings=tuple(timings))


def _alone(target: Model, tokens: Sequence[int], depth: int, size: int) -> tuple[Timing, ...]:
    begun_s = target.busy_s
    chosen_s = _verify(target, tokens, depth, size)
    target.forget(depth)
    return (
        Timing(Part.VERIFY, None, size, depth, target.busy_s - begun_s - chosen_s),
        Timing(Part.CHOOSE, None, size, depth, chosen_s),
    )


def _round(
    target: Model, drafter: Model, place: int, tokens: Sequence[int], depth: int, size: int
) -> tuple[Timing, ...]:
    """Play a round whose target batch has ``size`` tokens, as programs do, and take it back.

    With one token, the drafter looks and drafts nothing.
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
        Timing(Part.DRAFT, place, steps, depth, drafted_s - drafter_s),
        Timing(Part.ABSORB, place, size, depth, drafter.busy_s - drafted_s),
        Timing(Part.VERIFY, place, size, depth, target.busy_s - target_s - chosen_s),
        Timing(Part.CHOOSE, place, size, depth, chosen_s),
    )


def _verify(target: Model, tokens: Sequence[int], depth: int, size: int) -> float:
    """Evaluate a batch, and choose a token at each of its outputs; return the seconds of the choices."""
    target.evaluate(tokens[depth : depth + size], depth, outputs=size)
    target.wait()
    evaluated_s = target.busy_s
    for place in range(size):
        target.choose(place)
    return target.busy_s - evaluated_s
