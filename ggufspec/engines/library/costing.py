"""The cost of evaluations: rounds of every size, timed in the order in which runs mix them.

Only time inside llama.cpp counts, including its sampler. Forecasts are for its own programs, which run no
Python between evaluations.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import partial
from itertools import cycle, islice

from ggufspec.domain import Failure, Status
from ggufspec.engines.library.heads import BlockHead, ChainedHead, Drafter, LoadedHead
from ggufspec.engines.library.messages import Curve, CurveRun, RoundPart, Timing
from ggufspec.engines.library.model import Model

_SEED = 1  # of the order in which a curve's batches are timed
_IN_A_ROW = 2  # samples of a batch
_SETTLING = 6  # tokens of the target alone after rounds, until the processor's caches hold what fits of it
_BATCHES = {RoundPart.VERIFY, RoundPart.ABSORB}  # whose graphs depend on the draft's length


def curve(target: Model, drafters: Sequence[Drafter], run: CurveRun) -> Curve:
    """Time rounds and the target alone, with repeats interleaved and batches in random order.

    Each batch is evaluated once before it is timed: in a run, rounds of the same size follow each other, and
    the library reuses the graph of the previous one. The first one is RESIZE. The target alone has more time
    to settle after rounds: no drafter takes the processor's caches from it then.

    Raises:
        Failure: the deepest round does not fit into the context.
    """
    deepest = max(run.depths) + max(run.batches) + 1
    if deepest > target.n_context:
        reason = f"rounds at a depth of {max(run.depths)} tokens do not fit into {target.n_context}"
        raise Failure(Status.PROMPT_TOO_LONG, reason)
    tokens = [*islice(cycle(target.vocabulary.tokens(run.prompt)), deepest)]
    for model in (target, *drafters):
        model.use_threads(run.threads)
        model.clear()
    target.use_sampling(run.sampling)
    order = random.Random(_SEED)  # noqa: S311  # not for secrets
    timings: list[Timing] = []
    filled = 0
    for depth in sorted(run.depths):
        target.evaluate(tokens[filled:depth], filled)
        for drafter in drafters:
            with drafter.attached():
                drafter.read(tokens[filled:depth], filled)
            drafter.wait()
        target.wait()
        filled = depth
        for _ in range(run.repeats):
            batches = order.sample(run.batches, len(run.batches))
            before_timing = _SETTLING if drafters else 1
            for size in batches if not drafters else (1,):
                passes = [_time_target(target, tokens, depth, size) for _ in range(before_timing + _IN_A_ROW)]
                timed = passes[before_timing:]
                timings += (timing for parts in timed for timing in parts)
                if not drafters:  # drafts from the text, too, differ in length
                    timings.append(passes[0][0]._replace(part=RoundPart.RESIZE))
            for position, drafter in enumerate(drafters):
                time_round = partial(_time_round, target, drafter, position, tokens, depth)
                with drafter.attached():
                    if isinstance(drafter, LoadedHead):
                        time_round(1)  # the target makes room for its states
                    for size in batches:
                        first, *others = (time_round(size) for _ in range(1 + _IN_A_ROW))
                        timings += (timing for parts in others for timing in parts)
                        batches_s = sum(timing.seconds for timing in first if timing.part in _BATCHES)
                        timings.append(Timing(RoundPart.RESIZE, position, size, depth, batches_s))
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
    target: Model, drafter: Drafter, position: int, tokens: Sequence[int], depth: int, size: int
) -> tuple[Timing, ...]:
    """Time a round whose target batch has ``size`` tokens, then roll it back."""
    target_s, drafter_s = target.busy_s, drafter.busy_s
    _draft(drafter, tokens, depth, size)
    drafted_s = drafter.busy_s
    chosen_s = _verify(target, tokens, depth, size)
    _absorb(drafter, tokens, depth, size)
    target.forget(depth)
    drafter.forget(depth)
    return (
        Timing(RoundPart.DRAFT, position, _steps(size), depth, drafted_s - drafter_s),
        Timing(RoundPart.ABSORB, position, size, depth, drafter.busy_s - drafted_s),
        Timing(RoundPart.VERIFY, position, size, depth, target.busy_s - target_s - chosen_s),
        Timing(RoundPart.CHOOSE, position, size, depth, chosen_s),
    )


def _draft(drafter: Drafter, tokens: Sequence[int], depth: int, size: int) -> None:
    """Let a drafter evaluate and choose the draft before a batch of this size."""
    places = range(depth, depth + _steps(size))
    match drafter:
        case BlockHead():
            drafted = min(len(places), drafter.longest)
            drafter.draft(tokens[depth], depth, drafted)
            drafter.choose_all(drafted)
            drafter.forget(depth)
        case ChainedHead():
            state = drafter.state
            for at in places:
                _, state = drafter.step(tokens[at], at, state)
                drafter.choose()
            drafter.forget(depth + drafter.kept)
        case Model():
            for at in places:
                drafter.step(tokens[at], at)
                drafter.choose()
            drafter.forget(depth)


def _absorb(drafter: Drafter, tokens: Sequence[int], depth: int, size: int) -> None:
    """Let a drafter read the verified batch.

    A model and a head that drafts token by token read its tokens again, the head with the states of all of
    them, and without the entry that its draft left valid. A head that drafts a block reads the states alone.
    """
    match drafter:
        case BlockHead():
            drafter.absorb(drafter.features(size), depth)
        case ChainedHead():
            kept, states = drafter.kept, [drafter.state, *drafter.states(size)]
            drafter.absorb(tokens[depth + kept : depth + size], depth + kept, states[kept:size])
        case Model():
            drafter.evaluate(tokens[depth : depth + size], depth, outputs=1)


def _steps(size: int) -> int:
    """Return how many tokens are drafted before a batch: at least one, which a batch of one token drops."""
    return max(1, size - 1)


def _verify(target: Model, tokens: Sequence[int], depth: int, size: int) -> float:
    """Evaluate a batch, and choose a token at each of its outputs; return the seconds of the choices."""
    target.evaluate(tokens[depth : depth + size], depth, outputs=size)
    target.wait()
    evaluated_s = target.busy_s
    for position in range(size):
        target.choose(position)
    return target.busy_s - evaluated_s
