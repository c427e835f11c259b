"""Benches of several machines as one fleet: what is joined, what is refused, and what is printed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ggufspec import fleet, paths, results
from ggufspec.choices import Where
from ggufspec.domain import Machine, Prompt, RunResult
from ggufspec.errors import ResultsError
from ggufspec.fleet import AttemptEnding, BlockEnded, MachineRefused
from ggufspec.fleet.journal import create_fleet, reopen_fleet
from ggufspec.results import ResultSet
from tests.support import damage, shell, values
from tests.support.values import BUILD, MACHINE, META

OTHER = replace(MACHINE, hostname="other", cpu="Another Processor")


def made(
    name: str,
    machine: Machine = MACHINE,
    *,
    change: Callable[[RunResult], RunResult] = lambda one: one,
    engine: str = "binary",
    version: str | None = BUILD.version,
) -> ResultSet:
    """Return a stored bench of two prompts, two repeats, the target alone and drafting."""
    stored = results.create(
        replace(META, engine=engine, build=replace(BUILD, version=version), machine=machine), name
    )
    for one in map(change, values.grid({None: 40.0, 3: 60.0}, prompts=2, repeats=2)):
        stored = results.append(stored, one)
        (stored.folder / "logs" / f"{one.log}.err").write_text(f"log of {name}")
    results.close(stored)
    return stored


def test_merged_benches_keep_their_runs_logs_and_machines() -> None:
    first, second = made("a"), made("b", OTHER)
    stored = fleet.merge(["a", str(second.folder)], name="both")
    benches = fleet.read_benches(fleet.read_fleet("both"))
    assert [bench.meta.machine.hostname for bench in benches.values()] == ["box", "other"]
    for original, copy in zip((first, second), benches.values(), strict=True):
        assert list(copy.runs) == list(original.runs)
        assert {file.name for file in (copy.folder / "logs").iterdir()} == {
            file.name for file in (original.folder / "logs").iterdir()
        }
    assert {event.bench for event in stored.machines.values()} == {
        bench.meta.id for bench in benches.values()
    }
    assert set(results.ids()) == {"a", "b", *(bench.meta.id for bench in benches.values())}


def changed(**changes: Any) -> Callable[[RunResult], RunResult]:
    return lambda one: replace(one, spec=replace(one.spec, **changes))


def with_target(content: str | None) -> Callable[[RunResult], RunResult]:
    def change(one: RunResult) -> RunResult:
        target = replace(one.spec.pair.target, content=content)
        return changed(pair=replace(one.spec.pair, target=target))(one)

    return change


@pytest.mark.parametrize(
    ("second", "message"),
    [
        (lambda: made("b"), "same machine"),
        (
            lambda: made("b", OTHER, change=changed(prompt=Prompt(id="p0", text="Another text"))),
            "different texts of the prompt p0",
        ),
        (lambda: made("b", OTHER, change=changed(n_predict=64)), "answer lengths"),
        (lambda: made("b", OTHER, change=with_target("c" * 64)), "different files called target.gguf"),
        (lambda: made("b", OTHER, change=with_target(None)), "does not say what target.gguf holds"),
        (lambda: made("b", OTHER, engine="server"), "different engines"),
        (lambda: made("b", OTHER, version="0.4.0"), "different versions of llama.cpp"),
        (lambda: damage.cut_end(made("b", OTHER).folder), "b is damaged"),
    ],
)
def test_what_may_not_be_joined_is_refused(second: Callable[[], object], message: str) -> None:
    made("a")
    second()
    with pytest.raises(ResultsError, match=message):
        fleet.merge(["a", "b"], name="both")
    assert set(results.ids()) == {"a", "b"}
    assert not fleet.list_fleets()


def test_a_fleet_has_two_machines_or_more() -> None:
    made("a")
    with pytest.raises(ResultsError, match="two machines or more"):
        fleet.merge(["a"])


def test_a_merge_that_fails_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    made("a")
    taken = made("b", OTHER)
    blocked = paths.runs_dir() / f"both.{fleet.identify_machine(taken.meta.machine)}"
    blocked.mkdir()
    with pytest.raises(ResultsError, match="already exists"):
        fleet.merge(["a", "b"], name="both")
    assert set(results.ids()) == {"a", "b"}
    assert not fleet.list_fleets()
    assert blocked.is_dir()


def test_the_table_has_a_row_for_each_arm_of_each_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    made("a")
    made("b", OTHER)
    result = shell.done("fleet", "merge", "a", "b", "--name", "both", "-o", "md")
    lines = [line for line in result.stdout.splitlines() if line.startswith("|")]
    machines = [line.split("|")[1].strip() for line in lines[2:]]
    assert [machine.rpartition("-")[0] for machine in machines] == ["box", "box", "other", "other"]
    assert "speed-up" in lines[0]
    monkeypatch.setenv("GGUFSPEC_OUTPUT", "csv")  # settings are defaults of subcommands, too
    again = shell.done("fleet", "show")
    assert again.stdout.splitlines()[0].startswith("machine,")
    assert len(again.stdout.splitlines()) == 5


def test_two_fleets_are_compared_machine_by_machine() -> None:
    for fleet_name in ("monday", "tuesday"):
        made(f"{fleet_name}-a")
        made(f"{fleet_name}-b", OTHER)
        fleet.merge([f"{fleet_name}-a", f"{fleet_name}-b"], name=fleet_name)
    words = ["compare", "--per", "machine", "monday", "tuesday"]
    result = shell.done(*words, "-o", "md")
    heads = [line for line in result.stdout.splitlines() if line.startswith(("box-", "other-"))]
    assert len(heads) == 2
    table = shell.done(*words, "-o", "csv")
    machines = {line.split(",")[0].rpartition("-")[0] for line in table.stdout.splitlines()[1:]}
    assert machines == {"box", "other"}


def test_names_of_fleets_and_machines_are_checked() -> None:
    with pytest.raises(ResultsError, match="'nightly'"):
        fleet.read_fleet("nightly")
    longest = "n" * 50
    create_fleet(longest, command=(), where=Where.EACH).close()
    results.check_name(f"{longest}.{fleet.identify_machine(replace(MACHINE, hostname='h' * 99))}")
    with pytest.raises(ResultsError, match="51 characters"):
        create_fleet("n" * 51, command=(), where=Where.EACH)
    one = fleet.identify_machine(MACHINE)
    assert one == fleet.identify_machine(replace(MACHINE, system="Linux 7.0", memory_bytes=(24 << 30) - 4096))
    assert one != fleet.identify_machine(replace(MACHINE, hostname="box2"))
    assert one != fleet.identify_machine(replace(MACHINE, gpus=("CUDA0: H100",)))
    results.check_name(fleet.identify_machine(replace(MACHINE, hostname="ä b/" * 30)))


def end(block: int, ending: AttemptEnding, machine: str | None = None) -> BlockEnded:
    return BlockEnded(
        pool="equal", block=block, key=f"key{block}", ending=ending, machine=machine, reason="why"
    )


def test_events_survive_a_kill_at_any_byte() -> None:
    journal = create_fleet("nightly", command=(), where=Where.SAME)
    journal.append(end(0, AttemptEnding.MEASURED, "m0"))
    file = journal.stored.folder / "events.jsonl"
    begun = file.stat().st_size
    journal.append(end(1, AttemptEnding.MEASURED, "m1"))
    journal.close()
    content = file.read_bytes()
    for size in range(begun, len(content)):
        file.write_bytes(content[:size])
        again = reopen_fleet("nightly")
        assert again.stored.measured == {"equal": {"key0"}}
        again.append(end(2, AttemptEnding.MEASURED, "m2"))
        again.close()
        assert fleet.read_fleet("nightly").measured == {"equal": {"key0", "key2"}}


def test_damage_before_the_last_event_is_an_error() -> None:
    journal = create_fleet("nightly", command=(), where=Where.SAME)
    for block in range(3):
        journal.append(end(block, AttemptEnding.MEASURED, "m0"))
    journal.close()
    file = journal.stored.folder / "events.jsonl"
    content = bytearray(file.read_bytes())
    content[20] ^= 1
    file.write_bytes(content)
    with pytest.raises(ResultsError, match=r"line 1 of events\.jsonl is damaged"):
        fleet.read_fleet("nightly")


def test_two_drivers_do_not_go_on_with_one_fleet() -> None:
    journal = create_fleet("nightly", command=(), where=Where.EACH)
    with pytest.raises(ResultsError, match="already being written"):
        reopen_fleet("nightly")
    journal.close()
    reopen_fleet("nightly").close()


def test_the_last_ending_of_a_block_counts() -> None:
    journal = create_fleet("nightly", command=(), where=Where.SAME)
    refusal = MachineRefused(machine="m9", hostname="old", reason="another llama.cpp")
    journal.append(end(0, AttemptEnding.LOST, "m0"), end(1, AttemptEnding.UNPLACED), refusal)
    journal.append(end(0, AttemptEnding.MEASURED, "m1"))
    journal.close()
    assert list(fleet.describe_unmeasured(fleet.read_fleet("nightly"))) == [
        "old took no part: another llama.cpp.",
        "1 block not measured: why.",
    ]


def test_a_block_counts_on_the_machine_that_measured_it(tmp_path: Path) -> None:
    first, second = made("nightly.m0"), made("nightly.m1", OTHER)
    journal = create_fleet("nightly", command=(), where=Where.SAME)
    journal.append(
        *(
            fleet.MachineJoined(machine=machine, hostname=machine, bench=bench.meta.id)
            for machine, bench in (("m0", first), ("m1", second))
        ),
        BlockEnded(
            pool="equal",
            block=0,
            key=fleet.block_key(first.runs[0].spec),
            ending=AttemptEnding.MEASURED,
            machine="m1",
        ),
    )
    journal.close()
    benches = fleet.read_benches(fleet.read_fleet("nightly"))
    assert len(benches["m0"].runs) == 0
    assert len(benches["m1"].runs) == len(second.runs)
