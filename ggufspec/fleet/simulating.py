"""A simulated fleet: its machines join, measure and are lost, by the schedule of a real one.

The plan of a fleet is a simulation in which nothing is lost.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Collection, Iterable, MutableMapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Literal, NamedTuple

from ggufspec.fleet.scheduling import BlockEnd, Job, Node, Schedule


@dataclass(frozen=True, kw_only=True)
class Stay:
    """A node, from when it joins until it is lost, in seconds from the start."""

    node: Node
    from_s: float = 0.0
    until_s: float = math.inf


class MeasuredBlock(NamedTuple):
    """A block that a machine measured to its end."""

    machine: str
    block: int
    from_s: float
    until_s: float


@dataclass(frozen=True, kw_only=True)
class Simulation:
    """What happened: each block that was measured to its end, and how each block ended."""

    measured: tuple[MeasuredBlock, ...]
    endings: tuple[BlockEnd, ...]

    @property
    def makespan_s(self) -> float:
        """Seconds from the start to the end of the last block that was measured."""
        return max((job.until_s for job in self.measured), default=0.0)


class _SimulatedAttempt(NamedTuple):
    """A block that a node measures; ``until_s`` is when it ends, or ends its node."""

    block: int
    from_s: float
    until_s: float
    run_s: float  # seconds of each of its runs


Happening = Literal["joins", "is lost", "has measured"]


class _SimulatedEvent(NamedTuple):
    """What happens next; ``number`` orders what happens at one time."""

    time_s: float
    number: int
    happening: Happening
    stay: Stay
    job: Job | None = None


def simulate(
    schedule: Schedule,
    stays: Iterable[Stay],
    expected_s: Callable[[Node], Sequence[float]],
    *,
    duration_s: Callable[[Node, int], float] | None = None,
    n_runs: int = 1,
    stored: MutableMapping[tuple[str, int], int] | None = None,
    notice_s: float = 0.0,
    fatal: Collection[int] = (),
    repair_s: float = 0.0,
    until_s: float = math.inf,
) -> Simulation:
    """Run a schedule to its end.

    Args:
        schedule: new, or resumed; it is used up.
        stays: when which node takes part.
        expected_s: what each block takes on a node, as the schedule is told.
        duration_s: what a block really takes; None for what is expected.
        n_runs: of each block, all equally long. A machine stores each as it ends, and does not repeat it.
        stored: machine and block -> runs that the machine stored of blocks that it did not finish. It is
            updated, so that the next simulation can go on where this one ends.
        notice_s: how long it takes until a loss is noticed.
        fatal: blocks that end their node half-way, each time.
        repair_s: how long such a node's machine is away.
        until_s: when the driver ends; runs that are measured then are lost with it.
    """
    numbers = count()
    events: list[_SimulatedEvent] = []
    here: dict[str, Stay] = {}
    begun: dict[str, _SimulatedAttempt] = {}
    measured: list[MeasuredBlock] = []
    stored = {} if stored is None else stored

    def expect(time_s: float, happening: Happening, stay: Stay, job: Job | None = None) -> None:
        heapq.heappush(events, _SimulatedEvent(time_s, next(numbers), happening, stay, job))

    def begin(job: Job, now_s: float) -> None:
        stay = here[job.node]
        length_s = (
            expected_s(stay.node)[job.block] if duration_s is None else duration_s(stay.node, job.block)
        )
        left_s = length_s * (1 - stored.get((stay.node.machine, job.block), 0) / n_runs)
        is_fatal = job.block in fatal
        end_s = now_s + (left_s / 2 if is_fatal else left_s)
        begun[job.node] = _SimulatedAttempt(job.block, now_s, end_s, length_s / n_runs)
        if end_s > stay.until_s:
            return
        if not is_fatal:
            expect(end_s, "has measured", stay, job)
            return
        expect(end_s + notice_s, "is lost", stay)
        back_s = end_s + max(repair_s, notice_s)
        if back_s < stay.until_s:
            node = replace(stay.node, id=f"{stay.node.id}+")
            expect(back_s, "joins", replace(stay, node=node, from_s=back_s))

    def keep_runs(node: Node, end_s: float) -> None:
        attempt = begun.pop(node.id, None)
        if attempt is not None:
            n_new = int((min(end_s, attempt.until_s) - attempt.from_s) / attempt.run_s)
            if n_new:
                key = node.machine, attempt.block
                stored[key] = stored.get(key, 0) + n_new

    for stay in stays:
        expect(stay.from_s, "joins", stay)
    while events and events[0].time_s <= until_s:
        now_s, _, happening, stay, job = heapq.heappop(events)
        node = stay.node
        match happening:
            case "joins" if schedule.join(node, expected_s(node)):
                here[node.id] = stay
                if math.isfinite(stay.until_s):
                    expect(stay.until_s + notice_s, "is lost", stay)
            case "is lost" if here.pop(node.id, None) is not None:
                keep_runs(node, stay.until_s)
                schedule.lose(node.id, "the node was lost")
            case "has measured":
                assert job is not None
                measured.append(MeasuredBlock(node.machine, job.block, begun.pop(node.id).from_s, now_s))
                schedule.finish(node.id)
        if events and events[0].time_s == now_s:
            continue  # for example, all machines join
        for new in schedule.assign():
            begin(new, now_s)
    for stay in here.values():
        keep_runs(stay.node, min(stay.until_s, until_s))
    if not events:
        schedule.give_up()
    return Simulation(measured=tuple(measured), endings=tuple(schedule.endings))


def lower_bound(lengths_s: Iterable[float], stays: Iterable[Stay]) -> float:
    """Return the seconds that no schedule can fall below: the work over the machines, or the longest block.

    Args:
        lengths_s: of each block that is measured.
        stays: of the machines, one node each; a machine works at most while it is there.
    """
    lengths_s = tuple(lengths_s)
    changes = sorted(
        change
        for stay in stays
        for change in ((stay.from_s, 1), *(((stay.until_s, -1),) if math.isfinite(stay.until_s) else ()))
    )
    left_s, now_s, machines = math.fsum(lengths_s), 0.0, 0
    for time_s, change in changes:
        if machines * (time_s - now_s) >= left_s:
            break
        left_s -= machines * (time_s - now_s)
        now_s, machines = time_s, machines + change
    share_s = left_s / machines if machines else math.inf if left_s else 0.0
    return max(now_s + share_s, max(lengths_s, default=0.0))
