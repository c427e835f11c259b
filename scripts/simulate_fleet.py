"""Simulate the schedule of a large fleet, whose machines are lost, come back and join late.

    python scripts/simulate_fleet.py [MACHINES] [BLOCKS]

1,000 machines and 100,000 blocks by default; needs neither Ray nor llama.cpp. The schedule is the code that a
real fleet runs (`ggufspec.fleet.Schedule`). Fails if a block is neither measured nor reported, if one is
measured twice, or if the last block ends later than 1.2 times the lower bound: all work over all machines
that are there, or the longest block. No schedule can end before that, even if it knew every loss beforehand.
Work that is lost with a machine or a driver is not in the bound.

The median block takes two minutes and has 24 runs. Blocks differ (standard deviation of the logarithm: 0.8),
and each differs from what the schedule expects (0.3). A loss is noticed after 30 s. A killed driver is
started again after a minute; as in a real fleet, each machine then goes on behind the last run that it
stored. Five blocks end their machine each time; after three attempts they are reported as lost.
"""

from __future__ import annotations

import argparse
import heapq
import math
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, MutableMapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Literal, NamedTuple

from ggufspec.choices import Where
from ggufspec.fleet import AttemptEnding, BlockEnd, Job, MeasuredBlock, Node, Schedule

MACHINES, BLOCKS = 1000, 100_000
MOST_OVER_BOUND = 1.2
SEED = 21
HARDWARE = "equal"
MEDIAN_S, SPREAD, SURPRISE = 120.0, 0.8, 0.3
N_RUNS = 24
NOTICE_S, REPAIR_S, RESTART_S = 30.0, 600.0, 60.0
FATAL = 5


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """A fleet: the shares of machines that are lost, that come back or join late, and kills of the driver."""

    name: str
    lost: float = 0.0
    back: float = 0.0
    late: float = 0.0
    two_nodes: float = 0.0
    kills: int = 0
    fatal: int = 0


SCENARIOS = (
    Scenario(name="nothing happens"),
    Scenario(
        name="a tenth is lost, a tenth comes back, a tenth is late", lost=0.1, back=0.1, late=0.1, fatal=FATAL
    ),
    Scenario(name="half is lost", lost=0.5, fatal=FATAL),
    Scenario(name="the same, two nodes on a fifth", lost=0.1, back=0.1, late=0.1, two_nodes=0.2, fatal=FATAL),
    Scenario(
        name="the same, the driver killed three times", lost=0.1, back=0.1, late=0.1, kills=3, fatal=FATAL
    ),
)


@dataclass(frozen=True, kw_only=True)
class Stay:
    """A node, from when it joins until it is lost, in seconds from the start."""

    node: Node
    from_s: float = 0.0
    until_s: float = math.inf


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


def make_stays(scenario: Scenario, machines: int, length_s: float, dice: random.Random) -> list[Stay]:
    """Return when each node is there; ``length_s`` is about how long the work takes."""
    stays: list[Stay] = []
    for number in range(machines):
        fate, moment_s = dice.random(), dice.uniform(0, length_s)
        node = Node(id=f"n{number}", machine=f"m{number}", hardware=HARDWARE)
        again = Node(id=f"n{number}b", machine=node.machine, hardware=HARDWARE)
        if fate < scenario.lost:
            stays.append(Stay(node=node, until_s=moment_s))
        elif fate < scenario.lost + scenario.back:
            stays += [Stay(node=node, until_s=moment_s), Stay(node=again, from_s=moment_s + REPAIR_S)]
        elif fate < scenario.lost + scenario.back + scenario.late:
            stays.append(Stay(node=node, from_s=moment_s / 2))
        else:
            stays.append(Stay(node=node))
            if dice.random() < scenario.two_nodes:
                stays.append(Stay(node=again))
    return stays


def run(scenario: Scenario, machines: int, blocks: int) -> tuple[list[Simulation], float]:
    """Return the simulations between kills of the driver, and the lower bound in seconds."""
    dice = random.Random(f"{SEED}/{scenario.name}")
    expected_s = [dice.lognormvariate(0, SPREAD) * MEDIAN_S for _ in range(blocks)]
    length_s = [expected * dice.lognormvariate(0, SURPRISE) for expected in expected_s]
    total_s = sum(length_s) / machines
    stays = make_stays(scenario, machines, total_s, dice)
    fatal = frozenset(dice.sample(range(blocks), scenario.fatal))
    ends = [total_s * kill / (scenario.kills + 1) for kill in range(1, scenario.kills + 1)]
    parts: list[Simulation] = []
    ended: set[int] = set()
    stored: dict[tuple[str, int], int] = {}
    begun_s = 0.0
    for until_s in (*ends, float("inf")):
        schedule = Schedule(
            where=Where.SAME,
            hardware=HARDWARE,
            ended={HARDWARE: frozenset(ended)},
            begun={block: machine for machine, block in stored if block not in ended},
        )
        left = [
            Stay(node=stay.node, from_s=max(stay.from_s, begun_s), until_s=stay.until_s)
            for stay in stays
            if stay.until_s > begun_s
        ]
        parts.append(
            simulate(
                schedule,
                left,
                lambda _: expected_s,
                duration_s=lambda _, block: length_s[block],
                n_runs=N_RUNS,
                stored=stored,
                notice_s=NOTICE_S,
                fatal=fatal,
                repair_s=REPAIR_S,
                until_s=until_s,
            )
        )
        ended |= {end.block for end in parts[-1].endings}
        begun_s = until_s + RESTART_S
    first_nodes = {stay.node.machine: stay for stay in reversed(stays)}
    alone = [
        stay
        for stay in stays
        if scenario.two_nodes == 0 or stay is first_nodes[stay.node.machine] or stay.from_s
    ]
    return parts, lower_bound((length_s[block] for block in range(blocks) if block not in fatal), alone)


def main() -> None:
    """Print one row for each scenario."""
    asked = _arguments()
    machines, blocks = asked.machines, asked.blocks
    print(f"{machines:,} machines, {blocks:,} blocks\n")
    print("| fleet | measured | lost | last block, h | lower bound, h | ratio | processor time, s |")
    print("|---|---:|---:|---:|---:|---:|---:|")
    failures: list[str] = []
    for scenario in SCENARIOS:
        started = time.process_time()
        parts, bound_s = run(scenario, machines, blocks)
        seconds = time.process_time() - started
        makespan_s = max(part.makespan_s for part in parts)
        measured = Counter(job.block for part in parts for job in part.measured)
        endings = Counter(end.ending for part in parts for end in part.endings)
        ratio = makespan_s / bound_s
        print(
            f"| {scenario.name} | {len(measured):,} | {endings[AttemptEnding.LOST]} "
            f"| {makespan_s / 3600:.2f} | {bound_s / 3600:.2f} | {ratio:.3f} | {seconds:.1f} |",
            flush=True,
        )
        if ratio > MOST_OVER_BOUND:
            failures.append(f"{scenario.name}: {ratio:.3f} times the lower bound")
        if max(measured.values()) > 1 or len(measured) + endings[AttemptEnding.LOST] != blocks:
            failures.append(f"{scenario.name}: {len(measured)} measured of {blocks}, {dict(endings)}")
    sys.exit("\n".join(failures) or None)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("machines", nargs="?", type=int, default=MACHINES, help="by default 1,000")
    parser.add_argument("blocks", nargs="?", type=int, default=BLOCKS, help="by default 100,000")
    return parser.parse_args()


if __name__ == "__main__":
    main()
