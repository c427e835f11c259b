"""What evaluations cost: rounds of every size, timed as runs mix them."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from itertools import cycle, islice
from time import perf_counter

from ggufspec.domain import Drafting, Status
from ggufspec.engines.ending import Failure
from ggufspec.engines.library.decoding import play
from ggufspec.engines.library.drafting import Greedy, likeliest
from ggufspec.engines.library.messages import Curve, CurveRun, Part, Timing
from ggufspec.engines.library.model import Model

_SEED = 1  # of the order in which a curve's batches are timed
_IN_A_ROW = 2  # samples of a batch
_NOTHING = Drafting(n_max=1, p_min=2.0)  # the drafter looks and drafts nothing: a round of one token


def curve(target: Model, drafters: Sequence[Model], run: CurveRun) -> Curve:
    """Time rounds and the target alone, repeats interleaved, batches in changing order.

    Each batch is evaluated once more before it is timed: in a run, rounds of the same size follow each other,
    and the library uses the last one's graph again.

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
                timings += timed
            for place, drafter in enumerate(drafters):
                for size in batches:
                    last = tokens[depth]
                    rounds = (_round(target, drafter, place, last, depth, size) for _ in range(1 + _IN_A_ROW))
                    _, *kept = map(tuple, rounds)
                    timings += (timing for parts in kept for timing in parts)
    return Curve(timings=tuple(timings))


def _alone(target: Model, tokens: Sequence[int], depth: int, size: int) -> Timing:
    begun = perf_counter()
    target.evaluate(tokens[depth : depth + size], depth, outputs=size)
    for row in target.rows(size):
        likeliest(row)
    seconds = perf_counter() - begun
    target.forget(depth)
    return Timing(Part.VERIFY, None, size, depth, seconds)


def _round(target: Model, drafter: Model, place: int, last: int, depth: int, size: int) -> Iterator[Timing]:
    """Play a round whose target batch has ``size`` tokens, and take it back."""
    drafting = Drafting(n_max=size - 1) if size > 1 else _NOTHING
    begun = perf_counter()
    one = play(target, drafter, Greedy(), last, depth, drafting.n_max, drafting)
    target.forget(depth)
    drafter.forget(depth)
    whole_s = perf_counter() - begun
    target_s = one.evaluate_s + one.choose_s
    drafter_s = one.propose_s + one.absorb_s
    yield Timing(Part.DRAFT, place, drafting.n_max, depth, one.propose_s)
    yield Timing(Part.ABSORB, place, size, depth, one.absorb_s)
    yield Timing(Part.VERIFY, place, size, depth, target_s)
    yield Timing(Part.ROUND, place, size, depth, whole_s - target_s - drafter_s)
