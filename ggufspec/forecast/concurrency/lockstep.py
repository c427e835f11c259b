"""A llama-server with several slots, step by step: all slots draft together, and share the target's batch.

In each step the slots that generate draft together, one token of each in a batch of the drafter. Their tokens
and drafts are one batch of the target, together with the prompts that wait, up to ``-b`` tokens. The drafter
then reads the same batch (tools/server/server-context.cpp and common/speculative.cpp of llama-cpp-python
0.3.36). A slot whose request has ended gets the next one. Pure: seconds come from costs, rounds from traces.

A batch is split into passes through the model of equally many tokens per slot and of consecutive slots, as
each slot has a cache of its own (``split_equal`` in src/llama-batch.cpp of llama-cpp-python 0.3.36).

Passes in which several sequences share a model's weights cost what a cost curve of one sequence says.
A pass reads the weights once for all its tokens, and the context of each sequence for itself. So it costs
what as many tokens of one sequence cost at the shallowest depth that was timed, and more for each sequence by
its own depth: seconds for reading that context, and seconds for each token that attends to it. Both follow
from the timed batches of all sizes. Nothing is timed with several sequences: where that was tried with
llama.cpp 0.3.36 on a processor, passes of up to eight sequences took as long as those of one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import count
from typing import NamedTuple

import numpy as np

from ggufspec import stats
from ggufspec.forecast.costs import CostCurve, CurveKind, Point
from ggufspec.forecast.trace import TraceStep

_STEP = 16  # tokens to which depths are rounded down, so that equal questions are answered once


class SequenceRows(NamedTuple):
    """Tokens of one sequence in a pass, and how many are in its context before."""

    tokens: int
    depth: float


class DepthCosts(NamedTuple):
    """Seconds that a depth adds to those at the shallowest one: for its sequence, and for each token."""

    sequence_s: float
    token_s: float


class ServerCosts:
    """What a server's work costs by a cost curve, of target and drafter or of the target alone.

    Passes that are larger than all that were timed take longer in proportion to their tokens. That holds for
    prompts, whose evaluation is limited by arithmetic.
    """

    def __init__(self, curve: CostCurve) -> None:
        self.curve = curve
        self._deeper = {
            part: _depth_costs(points)
            for part in (CurveKind.VERIFY, CurveKind.ABSORB)
            if (points := curve.by_kind[part])
        }
        self._seconds = cache(self._read)
        self._pass = cache(self._add_pass)
        self._choosing = cache(self._add_choosing)

    def target_s(self, rows: Sequence[SequenceRows]) -> float:
        """Return the seconds in which the target evaluates a pass."""
        return self._pass_s(CurveKind.VERIFY, rows)

    def absorb_s(self, rows: Sequence[SequenceRows]) -> float:
        """Return the seconds in which the drafter reads a verified pass; 0 where it does not."""
        return self._pass_s(CurveKind.ABSORB, rows) if self.curve.absorb else 0.0

    def draft_s(self, depths: Sequence[float]) -> float:
        """Return the seconds in which the drafter proposes one token for each sequence at these depths.

        It evaluates one token of each as a batch. That costs what reading such a batch costs, and for each
        sequence what proposing a token costs more than reading one.

        Raises:
            ValueError: the curve has no batches of the drafter.
        """
        if not depths:
            return 0.0
        if not self.curve.absorb:
            raise ValueError("the drafter's batches were not timed")
        return self._choosing(tuple(map(_rounded, depths)))

    def _add_choosing(self, depths: tuple[float, ...]) -> float:
        choosing_s = sum(
            self._seconds(CurveKind.DRAFT, 1, depth) - self._seconds(CurveKind.ABSORB, 1, depth)
            for depth in depths
        )
        return max(0.0, choosing_s) + self.absorb_s([SequenceRows(1, depth) for depth in depths])

    def _pass_s(self, part: CurveKind, rows: Sequence[SequenceRows]) -> float:
        return self._pass(part, tuple((tokens, _rounded(depth)) for tokens, depth in rows))

    def _add_pass(self, part: CurveKind, rows: tuple[tuple[int, float], ...]) -> float:
        if len(rows) == 1:
            return self._seconds(part, *rows[0])  # as it was timed
        total = self._seconds(part, sum(tokens for tokens, _ in rows), self.curve.depths[0])
        timed = self._deeper[part]
        between = [*zip(*timed.values(), strict=True)]  # seconds of a sequence, and of each token, by depth
        for tokens, depth in rows:
            sequence_s, token_s = (np.interp(depth, [*timed], costs) for costs in between)
            total += float(sequence_s + token_s * tokens)
        return total

    def _read(self, part: CurveKind, tokens: int, depth: float) -> float:
        depth, most = self.curve.nearest_depth(depth), self.curve.largest_batch(part)
        if tokens > most:
            return self.curve.seconds(part, most, depth).value * tokens / most
        return self.curve.seconds(part, tokens, depth).value


def _depth_costs(points: Sequence[Point]) -> Mapping[int, DepthCosts]:
    """Return what each timed depth adds to the shallowest one, by all sizes that were timed at both.

    Differences of single points are mostly noise, so a line over the size of the batch is fitted to them, by
    least squares of relative errors.
    """
    seconds = {(point.depth, point.tokens): point.seconds.value for point in points}
    shallow, *deeper = sorted({point.depth for point in points})
    costs = {shallow: DepthCosts(0.0, 0.0)}
    for depth in deeper:
        sizes = [size for at, size in seconds if at == depth and (shallow, size) in seconds]
        later_s = [seconds[depth, size] for size in sizes]
        more_s = [later - seconds[shallow, size] for size, later in zip(sizes, later_s, strict=True)]
        costs[depth] = DepthCosts(*stats.rising_line(sizes, more_s, errors=later_s))
    return costs


def _rounded(depth: float) -> float:
    return depth - depth % _STEP if depth > _STEP else depth


BATCH = 2048
"""Tokens of a batch, the default of ``-b``."""

UBATCH = 512
"""Tokens of a pass, the default of ``-ub``."""


class SlotRows(NamedTuple):
    """Tokens of one slot in a batch or a pass."""

    slot: int
    tokens: int


def most_rows(users: int, n_max: int) -> int:
    """Return how many tokens a batch has at most, without prompts, if all slots draft ``n_max`` tokens.

    llama-server ends if they are more than ``-b`` allows.
    """
    return users * (n_max + 1)


def split_batch(batch: Sequence[SlotRows], *, ubatch: int = UBATCH) -> Iterator[tuple[SlotRows, ...]]:
    """Yield the passes of a batch.

    Args:
        batch: the tokens of each slot in the order of the batch, each slot once.
        ubatch: tokens of a pass at most (``-ub``).
    """
    left = dict(batch)
    while waiting := [slot for slot, tokens in left.items() if tokens]:
        chosen = waiting[:1]
        for slot in waiting[1:]:
            if slot == chosen[-1] + 1 and len(chosen) < ubatch:
                chosen.append(slot)
        tokens = min(max(1, ubatch // len(chosen)), *(left[slot] for slot in chosen))
        for slot in chosen:
            left[slot] -= tokens
        yield tuple(SlotRows(slot, tokens) for slot in chosen)


@dataclass(frozen=True, kw_only=True)
class TracedRequest:
    """One request: its prompt's tokens, and its rounds; the prompt's evaluation gives the first token."""

    n_prompt: int
    rounds: tuple[TraceStep, ...]


class StepSeconds(NamedTuple):
    """Seconds of a step: of the drafter, of the target's passes, of choosing tokens, and others."""

    draft_s: float
    verify_s: float
    choose_s: float
    rest_s: float

    @property
    def total_s(self) -> float:
        """The seconds of the step."""
        return sum(self)


@dataclass(frozen=True, kw_only=True)
class Served:
    """What a server did for several users.

    Attributes:
        tokens: that all users got in the steady window.
        seconds: of the window.
        steps: of the server in all.
        passes: of the target in all.
        n_rounds: of all users in all.
        n_drafted: tokens in all.
        n_accepted: tokens in all.
        spent: seconds of all steps, by what they were spent on.
    """

    tokens: int
    seconds: float
    steps: int
    passes: int
    n_rounds: int
    n_drafted: int
    n_accepted: int
    spent: StepSeconds

    @property
    def tokens_per_s(self) -> float:
        """Tokens of all users per second."""
        return self.tokens / self.seconds


@dataclass(kw_only=True)
class _SlotState:
    number: int
    number_dealt: int  # of the request
    request: TracedRequest
    unread: int  # tokens of the prompt
    done: int = 0  # rounds

    @property
    def step(self) -> TraceStep | None:
        """The next round; None while the prompt is read."""
        return None if self.unread else self.request.rounds[self.done]

    @property
    def depth(self) -> float:
        """Tokens in the context before the next batch; a round begins with the token before it."""
        step = self.step
        return self.request.n_prompt + (step.at - 1 if step is not None else -self.unread)


def serve(
    requests: Sequence[TracedRequest],
    users: int,
    costs: ServerCosts,
    *,
    n_requests: int,
    drafts: bool = True,
    batch: int = BATCH,
    ubatch: int = UBATCH,
) -> Served:
    """Serve users who each send the next request when the last one was answered.

    The window is that of a measurement: from every user's first answer until the last request that counts.

    Args:
        requests: dealt in this order, over and over; each has a round at least.
        users: slots of the server, one for each user.
        costs: what passes cost.
        n_requests: requests that count, more than there are users.
        drafts: whether a drafter is loaded; without one, rounds draft nothing.
        batch: tokens of a batch (``-b``).
        ubatch: tokens of a pass (``-ub``).

    Raises:
        ValueError: requests or users are too few, or the drafts of all slots do not fit into a batch.
    """
    if users < 1 or n_requests <= users or not all(request.rounds for request in requests):
        raise ValueError("a steady window needs more requests than users, and rounds in each request")
    numbers = count()
    slots = [_deal(requests, number, next(numbers)) for number in range(users)]
    written: list[tuple[float, int]] = []  # when tokens came, and how many
    first_ends: dict[int, float] = {}  # when the first request of each slot ended
    ends: dict[int, float] = {}  # when each request that counts ended
    taken: list[TraceStep] = []  # rounds of all users
    clock, steps, passes, spent = 0.0, 0, 0, StepSeconds(0.0, 0.0, 0.0, 0.0)
    shape: tuple[tuple[int, ...], ...] = ()  # tokens by slot of the last batch's passes
    while len(ends) < n_requests:
        rows = [*_fill(slots, batch)]
        tokens, depths = dict(rows), {slot.number: slot.depth for slot in slots}
        parts = [*split_batch(rows, ubatch=ubatch)]
        last_shape, shape = shape, tuple(tuple(row.tokens for row in part) for part in parts)
        step_s = step_seconds(
            {slot.number: step for slot in slots if (step := slot.step) is not None},
            parts,
            depths,
            costs,
            drafts=drafts,
            resized=last_shape not in {(), shape},
        )
        spent = StepSeconds(*map(sum, zip(spent, step_s, strict=True)))
        clock += step_s.total_s
        steps, passes = steps + 1, passes + len(parts)
        for index, slot in enumerate(slots):
            if (step := slot.step) is not None:
                taken.append(step)
                written.append((clock, 1 + int(step.accepted)))
                slot.done += 1
            else:
                slot.unread -= tokens.get(slot.number, 0)
                if not slot.unread:
                    written.append((clock, 1))
            if slot.done == len(slot.request.rounds):
                first_ends.setdefault(slot.number, clock)
                if slot.number_dealt < n_requests:
                    ends[slot.number_dealt] = clock
                slots[index] = _deal(requests, slot.number, next(numbers))
    start, end = max(first_ends.values()), max(ends.values())
    return Served(
        tokens=sum(number for at, number in written if start < at <= end),
        seconds=end - start,
        steps=steps,
        passes=passes,
        n_rounds=len(taken),
        n_drafted=sum(step.drafted for step in taken),
        n_accepted=sum(int(step.accepted) for step in taken),
        spent=spent,
    )


def _deal(requests: Sequence[TracedRequest], slot: int, number: int) -> _SlotState:
    request = requests[number % len(requests)]
    return _SlotState(number=slot, number_dealt=number, request=request, unread=request.n_prompt)


def _fill(slots: Sequence[_SlotState], batch: int) -> Iterator[SlotRows]:
    """Yield the rows of a batch: first of the slots that generate, then prompts as long as there is room.

    Raises:
        ValueError: what the slots generate does not fit.
    """
    room = batch
    for slot in slots:
        if slot.step is not None:
            rows = 1 + slot.step.drafted
            room -= rows
            if room < 0:
                raise ValueError(
                    f"the drafts of {len(slots)} slots do not fit into a batch of {batch} tokens"
                )
            yield SlotRows(slot.number, rows)
    for slot in slots:
        if slot.unread and room:
            taken = min(slot.unread, room)
            room -= taken
            yield SlotRows(slot.number, taken)


def step_seconds(
    rounds: Mapping[int, TraceStep],
    parts: Sequence[Sequence[SlotRows]],
    depths: Mapping[int, float],
    costs: ServerCosts,
    *,
    drafts: bool,
    resized: bool = False,
) -> StepSeconds:
    """Return what one step of the server costs.

    Args:
        rounds: of the slots that generate.
        parts: the passes of the target's batch.
        depths: tokens in the context of each slot before the batch.
        costs: what passes cost.
        drafts: whether a drafter is loaded.
        resized: whether the batch is of another shape than the one before.
    """
    curve = costs.curve
    choose_s = sum(1 + step.accepted for step in rounds.values()) * curve.choose_s.value
    verify_s = 0.0
    longest = max((step.proposals for step in rounds.values()), default=0)
    draft_s = sum(
        costs.draft_s([depths[slot] + position for slot, step in rounds.items() if step.proposals > position])
        for position in range(longest)
    )
    read: dict[int, int] = {}  # tokens of each slot in earlier passes of this batch
    for part in parts:
        rows = [SequenceRows(tokens, depths[slot] + read.get(slot, 0)) for slot, tokens in part]
        verify_s += costs.target_s(rows)
        if drafts:
            draft_s += costs.absorb_s(rows)
        for slot, tokens in part:
            read[slot] = read.get(slot, 0) + tokens
    overhead_s = curve.overhead_s if drafts else curve.plain_overhead_s
    rest_s = overhead_s.value if rounds else 0.0
    if drafts and resized:
        rest_s += curve.resize_s.value
    return StepSeconds(draft_s, verify_s, choose_s, rest_s)


def equal_round_seconds(
    costs: ServerCosts, *, users: int, n_max: int, depth: float, drafts: bool = True
) -> StepSeconds:
    """Return what a step costs whose slots have as many tokens before it, draft as many and accept none.

    Args:
        costs: what passes cost.
        users: slots, all of which generate.
        n_max: tokens that each drafts; 0 for a token of each without drafting.
        depth: tokens in each context.
        drafts: whether a drafter is loaded.
    """
    parts = [*split_batch([SlotRows(slot, n_max + 1) for slot in range(users)])]
    rounds = dict.fromkeys(range(users), TraceStep(0, 1.0, n_max, 0, n_max))
    return step_seconds(rounds, parts, dict.fromkeys(range(users), depth), costs, drafts=drafts)
