"""A llama-server with several slots, step by step: all slots draft together, and share the target's batch.

In each step the slots that generate draft together, one token of each in a batch of the drafter. Their
tokens and drafts are one batch of the target, together with the prompts that wait, up to ``-b`` tokens. The
drafter then reads the same batch (tools/server/server-context.cpp and common/speculative.cpp of
llama-cpp-python 0.3.36). A slot whose request has ended gets the next one. Pure: seconds come from costs,
rounds from traces.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count

from ggufspec.forecast.concurrency.pass_costs import SequenceRows, ServerCosts
from ggufspec.forecast.concurrency.passes import BATCH, UBATCH, SlotRows, split_batch
from ggufspec.forecast.trace import TraceStep


@dataclass(frozen=True, kw_only=True)
class TracedRequest:
    """One request: its prompt's tokens, and its rounds; the prompt's evaluation gives the first token."""

    n_prompt: int
    rounds: tuple[TraceStep, ...]


@dataclass(frozen=True, kw_only=True)
class Served:
    """What a server did for several users.

    Attributes:
        tokens: that all users got in the steady window.
        seconds: of the window.
        steps: of the server in all.
        passes: of the target in all.
        n_drafted: tokens in all.
        n_accepted: tokens in all.
    """

    tokens: int
    seconds: float
    steps: int
    passes: int
    n_drafted: int
    n_accepted: int

    @property
    def tokens_per_s(self) -> float:
        """Tokens of all users per second."""
        return self.tokens / self.seconds


@dataclass(kw_only=True)
class _Slot:
    number: int
    request: int  # its number, as dealt
    n_prompt: int
    rounds: Sequence[TraceStep]
    unread: int  # tokens of the prompt
    done: int = 0  # rounds

    @property
    def step(self) -> TraceStep | None:
        """The next round; None while the prompt is read."""
        return None if self.unread else self.rounds[self.done]

    @property
    def depth(self) -> float:
        """Tokens in the context before the next batch; a round begins with the token before it."""
        step = self.step
        return self.n_prompt - self.unread if step is None else self.n_prompt + step.at - 1


@dataclass(kw_only=True)
class _Record:
    """What is seen from outside: when tokens came and requests ended."""

    written: list[tuple[float, int]] = field(default_factory=list)
    first_end: dict[int, float] = field(default_factory=dict)  # by slot
    ends: dict[int, float] = field(default_factory=dict)  # by request


def serve(
    requests: Sequence[TracedRequest],
    users: int,
    costs: ServerCosts,
    *,
    n_requests: int,
    drafts: bool = True,
    batch: int = BATCH,
    ubatch: int = UBATCH,
    unified: bool = False,
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
        unified: whether all slots share one cache (``-kvu``).

    Raises:
        ValueError: requests or users are too few, or the drafts of all slots do not fit into a batch.
    """
    if users < 1 or n_requests <= users or not all(request.rounds for request in requests):
        raise ValueError("a steady window needs more requests than users, and rounds in each request")
    numbers = count()
    slots = [_deal(requests, number, next(numbers)) for number in range(users)]
    record, clock = _Record(), 0.0
    steps = passes = n_drafted = n_accepted = 0
    shape: tuple[tuple[int, ...], ...] = ()  # tokens by slot of the last batch's passes
    while len(record.ends) < n_requests:
        rows = [*_fill(slots, batch)]
        depths = {slot.number: slot.depth for slot in slots}
        parts = split_batch(rows, ubatch=ubatch, unified=unified)
        last_shape, shape = shape, tuple(tuple(row.tokens for row in part) for part in parts)
        clock += _step_s(slots, parts, depths, costs, drafts=drafts, resized=last_shape not in {(), shape})
        steps, passes = steps + 1, passes + len(parts)
        for place, slot in enumerate(slots):
            taken = next((row.tokens for row in rows if row.slot == slot.number), 0)
            step = slot.step
            if step is not None:
                record.written.append((clock, 1 + int(step.accepted)))
                n_drafted, n_accepted = n_drafted + step.drafted, n_accepted + int(step.accepted)
                slot.done += 1
            elif taken:
                slot.unread -= taken
                if not slot.unread:
                    record.written.append((clock, 1))
            if slot.done == len(slot.rounds):
                record.first_end.setdefault(slot.number, clock)
                if slot.request < n_requests:
                    record.ends[slot.request] = clock
                slots[place] = _deal(requests, slot.number, next(numbers))
    start, end = max(record.first_end.values()), max(record.ends.values())
    return Served(
        tokens=sum(tokens for at, tokens in record.written if start < at <= end),
        seconds=end - start,
        steps=steps,
        passes=passes,
        n_drafted=n_drafted,
        n_accepted=n_accepted,
    )


def _deal(requests: Sequence[TracedRequest], slot: int, number: int) -> _Slot:
    request = requests[number % len(requests)]
    return _Slot(
        number=slot,
        request=number,
        n_prompt=request.n_prompt,
        rounds=request.rounds,
        unread=request.n_prompt,
    )


def _fill(slots: Sequence[_Slot], batch: int) -> Iterator[SlotRows]:
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


def _step_s(
    slots: Sequence[_Slot],
    parts: Sequence[Sequence[SlotRows]],
    depths: dict[int, float],
    costs: ServerCosts,
    *,
    drafts: bool,
    resized: bool,
) -> float:
    """Return the seconds of a step of the server."""
    curve = costs.curve
    rounds = [(slot.number, step) for slot in slots if (step := slot.step) is not None]
    chosen = sum(1 + step.accepted for _, step in rounds)
    seconds = chosen * curve.choose_s.value
    longest = max((step.proposals for _, step in rounds), default=0)
    for place in range(longest):
        seconds += costs.draft_s([depths[slot] + place for slot, step in rounds if step.proposals > place])
    read: dict[int, int] = {}  # tokens of each slot in earlier passes of this batch
    for part in parts:
        rows = [SequenceRows(tokens, depths[slot] + read.get(slot, 0)) for slot, tokens in part]
        seconds += costs.target_s(rows)
        if drafts:
            seconds += costs.absorb_s(rows)
        for slot, tokens in part:
            read[slot] = read.get(slot, 0) + tokens
    if not drafts:
        return seconds + (curve.plain_overhead_s.value if rounds else 0.0)
    besides_s = curve.overhead_s.value if longest else 0.0
    return seconds + besides_s + (curve.resize_s.value if resized else 0.0)
