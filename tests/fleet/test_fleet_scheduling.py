"""Which machine of a fleet measures which block, and what happens to the blocks of lost machines."""

from __future__ import annotations

import itertools
import random
import sys
from collections import Counter
from collections.abc import Sequence

import pytest
import simulate_fleet
from simulate_fleet import Stay, lower_bound, simulate

from ggufspec.choices import Where
from ggufspec.fleet import AttemptEnding, Node, Schedule


def node(number: int, *, machine: str | None = None, hardware: str = "equal") -> Node:
    return Node(id=f"n{number}", machine=machine or f"m{number}", hardware=hardware)


def same(*joined: Node, expected: Sequence[float] = (1.0,)) -> Schedule:
    """A schedule over equal machines, which these nodes have joined."""
    schedule = Schedule(where=Where.SAME, hardware="equal")
    for each in joined:
        schedule.join(each, expected)
    return schedule


def test_the_longest_block_is_measured_first() -> None:
    schedule = same(node(0), expected=[1.0, 3.0, 2.0])
    order = []
    while jobs := schedule.assign():
        order += [job.block for job in jobs]
        schedule.finish("n0")
    assert order == [1, 2, 0]
    assert schedule.is_done


def test_the_second_node_of_a_machine_takes_over_from_a_lost_one() -> None:
    schedule = same(node(0, machine="host"), node(1, machine="host"))
    (job,) = schedule.assign()
    schedule.lose(job.node, "gone")
    (again,) = schedule.assign()
    assert again.node != job.node


def test_a_block_that_ends_its_machine_each_time_is_given_up() -> None:
    stays = [Stay(node=node(number)) for number in range(4)]
    simulation = simulate(same(), stays, lambda _: [5.0, 1.0, 1.0, 1.0], fatal={0}, repair_s=1.0)
    endings = {end.block: end.ending for end in simulation.endings}
    assert endings == {0: AttemptEnding.LOST, **dict.fromkeys((1, 2, 3), AttemptEnding.MEASURED)}
    assert {job.block for job in simulation.measured} == {1, 2, 3}


def test_a_machine_that_ends_no_block_does_not_take_them_all() -> None:
    schedule = same(node(0), node(1), expected=[1.0] * 20)
    while jobs := schedule.assign():
        for job in jobs:
            if job.node == "n0":
                schedule.fail("n0", "the disk is full")
            else:
                schedule.finish("n1")
    assert schedule.is_done
    assert Counter(end.ending for end in schedule.endings) == {AttemptEnding.MEASURED: 20}
    assert "m0" in schedule.refused


def test_blocks_for_which_no_machine_is_left_are_reported() -> None:
    simulation = simulate(same(), [Stay(node=node(0), until_s=1.5)], lambda _: [1.0, 1.0, 1.0])
    assert Counter(end.ending for end in simulation.endings) == {
        AttemptEnding.MEASURED: 1,
        AttemptEnding.UNPLACED: 2,
    }


def test_a_block_that_fails_everywhere_is_reported_with_its_reason() -> None:
    schedule = same(node(0), node(1))
    while jobs := schedule.assign():
        for job in jobs:
            schedule.fail(job.node, "no such file")
    assert schedule.is_still
    assert not schedule.is_done
    schedule.give_up()
    assert [(end.ending, end.reason) for end in schedule.endings] == [
        (AttemptEnding.UNPLACED, "no such file")
    ]


def test_blocks_that_ended_earlier_are_not_measured_again() -> None:
    schedule = Schedule(where=Where.SAME, hardware="equal", ended={"equal": {0, 2}})
    simulation = simulate(schedule, [Stay(node=node(0))], lambda _: [1.0, 1.0, 1.0])
    assert [job.block for job in simulation.measured] == [1]


def test_a_machine_goes_on_with_the_block_that_it_has_begun() -> None:
    schedule = Schedule(where=Where.SAME, hardware="equal", begun={0: "m1", 2: "m9"})
    schedule.join(node(0), [9.0, 1.0, 9.0])
    schedule.join(node(1), [9.0, 1.0, 9.0])
    assert set(schedule.assign()) == {("n0", 2), ("n1", 0)}  # m9 is not there, and 2 is long
    schedule.finish("n1")
    assert schedule.assign() == [("n1", 1)]


def test_a_block_that_a_lost_machine_had_begun_is_measured_by_another() -> None:
    schedule = Schedule(where=Where.SAME, hardware="equal", begun={0: "m0", 1: "m0"})
    schedule.join(node(0), [1.0, 1.0])
    schedule.join(node(1), [1.0, 1.0])
    (job,) = schedule.assign()
    assert job.node == "n0"
    schedule.lose("n0", "gone")
    (job,) = schedule.assign()
    schedule.finish("n1")
    assert {job.block, *(job.block for job in schedule.assign())} == {0, 1}


def test_a_killed_driver_goes_on_with_the_runs_of_each_machine() -> None:
    stored: dict[tuple[str, int], int] = {}
    stays = [Stay(node=node(0)), Stay(node=node(1))]
    expected = [10.0, 8.0, 4.0]
    first = simulate(same(), stays, lambda _: expected, n_runs=10, stored=stored, until_s=4.5)
    assert not first.measured
    assert stored == {("m0", 0): 4, ("m1", 1): 5}
    begun = {block: machine for machine, block in stored}
    again = Schedule(where=Where.SAME, hardware="equal", begun=begun)
    stays = [Stay(node=node(number), from_s=5.0) for number in range(2)]
    second = simulate(again, stays, lambda _: expected, n_runs=10, stored=stored)
    assert [(job.machine, job.block, job.until_s) for job in second.measured] == [
        ("m1", 1, 9.0),  # five runs of 0.8 s were left
        ("m0", 0, 11.0),  # six runs of 1 s
        ("m1", 2, 13.0),
    ]


def test_runs_of_one_machine_do_not_shorten_a_block_on_another() -> None:
    stays = [Stay(node=node(0), until_s=6.0), Stay(node=node(1), from_s=6.0)]
    simulation = simulate(same(), stays, lambda _: [10.0], n_runs=10)
    assert [(job.machine, job.until_s) for job in simulation.measured] == [("m1", 16.0)]


def test_a_refused_machine_gives_its_block_back() -> None:
    schedule = same(node(0))
    assert schedule.assign()
    schedule.refuse("m0", "another llama.cpp")
    assert not schedule.join(node(0), [1.0])
    schedule.lose("n0", "gone")
    schedule.join(node(1), [1.0])
    assert [job.block for job in schedule.assign()] == [0]


@pytest.mark.parametrize("seed", range(20))
def test_every_block_ends_once_whatever_is_lost(seed: int) -> None:
    dice = random.Random(seed)
    expected = [dice.uniform(1, 10) for _ in range(200)]
    stays = [Stay(node=node(0))]
    for number in range(1, 10):
        from_s = dice.uniform(0, 50)
        until_s = dice.choice([float("inf"), from_s + dice.uniform(0, 100)])
        machine = dice.choice([f"m{number}", "m0", "host"])
        stays.append(Stay(node=node(number, machine=machine), from_s=from_s, until_s=until_s))
    fatal = frozenset(dice.sample(range(200), 2))
    simulation = simulate(
        same(), stays, lambda _: expected, notice_s=2.0, fatal=fatal, repair_s=dice.uniform(0, 5)
    )
    assert sorted(end.block for end in simulation.endings) == list(range(200))
    measured = [end.block for end in simulation.endings if end.ending is AttemptEnding.MEASURED]
    assert sorted(measured) == sorted(job.block for job in simulation.measured)
    for machine in {job.machine for job in simulation.measured}:
        times = sorted((job.from_s, job.until_s) for job in simulation.measured if job.machine == machine)
        assert all(end <= begin for (_, end), (begin, _) in itertools.pairwise(times))


def test_the_last_block_ends_soon_after_the_lower_bound() -> None:
    dice = random.Random(5)
    expected = [dice.lognormvariate(4, 0.8) for _ in range(2000)]
    stays = [
        Stay(node=node(number), until_s=dice.choice([float("inf")] * 9 + [900.0])) for number in range(50)
    ]
    simulation = simulate(same(), stays, lambda _: expected)
    assert simulation.makespan_s <= 1.2 * lower_bound(expected, stays)


def test_nothing_is_lost_in_a_simulated_fleet(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The script that simulates 1,000 machines, with fewer."""
    monkeypatch.setattr(sys, "argv", ["simulate_fleet.py", "60", "6000"])
    with pytest.raises(SystemExit) as ended:
        simulate_fleet.main()
    assert ended.value.code is None
    assert capsys.readouterr().out.count("| 5,995 | 5 |") == len(simulate_fleet.SCENARIOS) - 1


def test_the_lower_bound_counts_machines_while_they_are_there() -> None:
    stays = [Stay(node=node(0)), Stay(node=node(1), from_s=2.0, until_s=4.0)]
    assert lower_bound([3.0, 3.0, 4.0], stays) == pytest.approx(8.0)
    assert lower_bound([9.0, 1.0], stays) == pytest.approx(9.0)
