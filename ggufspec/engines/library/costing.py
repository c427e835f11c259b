"""The cost of evaluations: rounds of every size, timed in the order in which runs mix them.

Only time inside llama.cpp counts, including its sampler. Forecasts are for its own programs, which run no
Python between evaluations.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from functools import partial
from itertools import cycle, islice

from ggufspec.domain import Status
from ggufspec.engines.failures import Failure
from ggufspec.engines.library.heads import BlockHead, ChainedHead, Drafter, Head, States, read, read_block
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
    tokens = [*islice(cycle(target.vocabulary.tokens(run.text)), deepest)]
    for model in (target, *drafters):
        model.use_threads(run.threads)
        model.clear()
    before = {
        place: drafter.first_state()
        for place, drafter in enumerate(drafters)
        if isinstance(drafter, ChainedHead)
    }
    target.use_sampling(run.sampling)
    order = random.Random(_SEED)  # noqa: S311  # not for secrets
    timings: list[Timing] = []
    filled = 0
    for depth in sorted(run.depths):
        target.evaluate(tokens[filled:depth], filled)
        for place, drafter in enumerate(drafters):
            if isinstance(drafter, Model):
                drafter.evaluate(tokens[filled:depth], filled)
            else:
                target.forget(filled)
                with drafter.attached():
                    if isinstance(drafter, ChainedHead):
                        before[place] = read(target, drafter, tokens[filled:depth], filled, before[place])
                    else:
                        read_block(target, drafter, tokens[filled:depth], filled)
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
            for place, drafter in enumerate(drafters):
                match drafter:
                    case Model():
                        time_round = partial(_time_round, target, drafter, place)
                    case ChainedHead():
                        time_round = partial(_time_chained, target, drafter, place, before[place])
                    case BlockHead():
                        time_round = partial(_time_block, target, drafter, place)
                with drafter.attached() if isinstance(drafter, Head) else nullcontext():
                    if isinstance(drafter, Head):
                        time_round(tokens, depth, 1)  # the target makes room for its states
                    timings += _time_rounds(time_round, place, tokens, depth, batches)
    target.use_sampling(None)
    return Curve(timings=tuple(timings))


def _time_rounds(
    time_round: Callable[[Sequence[int], int, int], tuple[Timing, ...]],
    place: int,
    tokens: Sequence[int],
    depth: int,
    batches: Sequence[int],
) -> Iterator[Timing]:
    for size in batches:
        first, *others = (time_round(tokens, depth, size) for _ in range(1 + _IN_A_ROW))
        yield from (timing for parts in others for timing in parts)
        batches_s = sum(timing.seconds for timing in first if timing.part in _BATCHES)
        yield Timing(RoundPart.RESIZE, place, size, depth, batches_s)


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
    """Time a round whose target batch has ``size`` tokens, then roll it back."""
    target_s, drafter_s = target.busy_s, drafter.busy_s
    for at in range(depth, depth + _steps(size)):
        drafter.step(tokens[at], at)
        drafter.choose(0)
    drafter.forget(depth)
    drafted_s = drafter.busy_s
    chosen_s = _verify(target, tokens, depth, size)
    drafter.evaluate(tokens[depth : depth + size], depth, outputs=1)
    target.forget(depth)
    drafter.forget(depth)
    return _round_timings(
        place,
        size,
        depth,
        draft_s=drafted_s - drafter_s,
        absorb_s=drafter.busy_s - drafted_s,
        verify_s=target.busy_s - target_s - chosen_s,
        choose_s=chosen_s,
    )


def _time_chained(
    target: Model,
    head: ChainedHead,
    place: int,
    before: States,
    tokens: Sequence[int],
    depth: int,
    size: int,
) -> tuple[Timing, ...]:
    """Time a round with a head, as ``_time_round`` does; ``before`` is the state of the token before it.

    The head reads the states of all verified tokens, then enters those that its draft did not leave there.
    """
    target_s, head_s = target.busy_s, head.busy_s
    state = before
    for at in range(depth, depth + _steps(size)):
        _, state = head.step(tokens[at], at, state)
        head.choose()
    first = depth + 1 if head.first_kept else depth
    head.forget(first)
    drafted_s = head.busy_s
    chosen_s = _verify(target, tokens, depth, size)
    states = [before, *head.states(size)]
    head.absorb(tokens[first : depth + size], first, states[first - depth : size])
    target.forget(depth)
    head.forget(depth)
    return _round_timings(
        place,
        size,
        depth,
        draft_s=drafted_s - head_s,
        absorb_s=head.busy_s - drafted_s,
        verify_s=target.busy_s - target_s - chosen_s,
        choose_s=chosen_s,
    )


def _time_block(
    target: Model, head: BlockHead, place: int, tokens: Sequence[int], depth: int, size: int
) -> tuple[Timing, ...]:
    """Time a round with a head that drafts a block, as ``_time_round`` does."""
    target_s, head_s = target.busy_s, head.busy_s
    drafted = min(_steps(size), head.longest)
    head.draft(tokens[depth], depth, drafted)
    head.choose_all(drafted)
    head.forget(depth)
    drafted_s = head.busy_s
    chosen_s = _verify(target, tokens, depth, size)
    head.absorb(head.features(size), depth)
    target.forget(depth)
    head.forget(depth)
    return _round_timings(
        place,
        size,
        depth,
        draft_s=drafted_s - head_s,
        absorb_s=head.busy_s - drafted_s,
        verify_s=target.busy_s - target_s - chosen_s,
        choose_s=chosen_s,
    )


def _steps(size: int) -> int:
    """Return how many tokens are drafted before a batch: at least one, which a batch of one token drops."""
    return max(1, size - 1)


def _round_timings(
    place: int, size: int, depth: int, *, draft_s: float, absorb_s: float, verify_s: float, choose_s: float
) -> tuple[Timing, ...]:
    return (
        Timing(RoundPart.DRAFT, place, _steps(size), depth, draft_s),
        Timing(RoundPart.ABSORB, place, size, depth, absorb_s),
        Timing(RoundPart.VERIFY, place, size, depth, verify_s),
        Timing(RoundPart.CHOOSE, place, size, depth, choose_s),
    )


def _verify(target: Model, tokens: Sequence[int], depth: int, size: int) -> float:
    """Evaluate a batch, and choose a token at each of its outputs; return the seconds of the choices."""
    target.evaluate(tokens[depth : depth + size], depth, outputs=size)
    target.wait()
    evaluated_s = target.busy_s
    for place in range(size):
        target.choose(place)
    return target.busy_s - evaluated_s
