"""A fleet from the first node to the last block: lost nodes, a killed driver, machines that do not fit."""

from __future__ import annotations

import functools
import os
import pickle
import shutil
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from ggufspec import fleet, machine, paths, results, tuning
from ggufspec.analysis import warnings
from ggufspec.analysis.warnings import MeasurementWarning
from ggufspec.choices import Where
from ggufspec.domain import Machine, Role, RunResult, RunSpec, Sample
from ggufspec.errors import GgufspecError, InconclusiveError, ResultsError
from ggufspec.fleet import AttemptEnding, Drive, benching, make_order, tune_nodes
from ggufspec.fleet.benching import Bencher, list_software
from ggufspec.fleet.orders import BlockMeasured, OrderFailure, Preparation, unpack_texts
from ggufspec.measure import api
from ggufspec.options import FleetSweepOptions, FleetTuneOptions, TuneOptions
from ggufspec.results import CellKey, Configuration, ResultSet
from tests.support import shell, values
from tests.support.fleets import N_BLOCKS, FakeCluster, FakeNode, drive, order
from tests.support.scripted import INSTALL, Scripted, sample

Clusters = Callable[..., FakeCluster]


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Clusters:
    """Make a cluster of nodes, or of nodes on hosts of these names."""

    def make(*nodes: FakeNode | str) -> FakeCluster:
        made = (FakeNode(host=node) if isinstance(node, str) else node for node in nodes)
        named = {f"node{number}": node for number, node in enumerate(made)}
        return FakeCluster(root=tmp_path / "hosts", monkeypatch=monkeypatch, nodes=named)

    return make


def stored() -> dict[str, ResultSet]:
    return fleet.read_benches(fleet.read_fleet("nightly"))


def cells(*benches: ResultSet) -> Counter[CellKey]:
    """Return how often each cell counts, without warm-ups and anchors."""
    return Counter(
        results.cell(spec, repeat)
        for bench in benches
        for spec, repeat in zip(bench.current.specs, bench.current.column("repeat"), strict=True)
    )


@functools.cache  # the same in every test, and as many runs as of a fleet
def local_cells() -> Counter[CellKey]:
    """Return the cells of the same plan on one machine."""
    session = FakeNode(host="local").session
    *_, bench = api.record(session, api.begin(session, command=(), name="local"))
    return cells(bench)


@pytest.mark.parametrize("joins_after", [0, 20])
def test_each_cell_is_measured_as_by_a_local_sweep(cluster: Clusters, joins_after: int) -> None:
    machines = cluster("a", "b", "c")
    machines.later["node1"] = joins_after
    drive(machines)
    benches = stored()
    assert len(benches) == 3
    assert all(len(bench.runs) and bench.is_complete for bench in benches.values())
    assert cells(*benches.values()) == local_cells()


def test_runs_come_with_their_logs_and_judgements(cluster: Clusters, tmp_path: Path) -> None:
    drive(cluster("a"))
    (bench,) = stored().values()
    (folder,) = (tmp_path / "hosts" / "a" / "runs").iterdir()
    original = results.load(folder)
    assert list(bench.runs) == list(original.runs)
    for run in bench.runs:
        assert (bench.folder / "logs" / f"{run.log}.err").read_text() == "a log\n"


@pytest.mark.parametrize("lost_after", [4, 6, 8, 10, 12])  # within a block, at each of its arms
def test_lost_blocks_count_once(cluster: Clusters, lost_after: int) -> None:
    machines = cluster("a", FakeNode(host="b", lost_after=lost_after))
    progress = drive(machines)
    assert any("b: lost: the node died" in line for lines in progress for line in lines)
    benches = stored()
    assert cells(*benches.values()) == local_cells()
    (lost,) = [event for event in fleet.read_fleet("nightly").events if isinstance(event, fleet.NodeLost)]
    assert (lost.hostname, lost.reason) == ("b", "the node died")
    raw = [results.load(event.bench) for event in fleet.read_fleet("nightly").machines.values()]
    assert sum(len(bench.runs) for bench in raw) > sum(len(bench.runs) for bench in benches.values())


@pytest.mark.parametrize("lost_after", [7, 9, 12])
def test_mostly_measured_arms_count(
    cluster: Clusters, monkeypatch: pytest.MonkeyPatch, lost_after: int
) -> None:
    """A disturbed run is measured again, so the lost node may have more runs of fewer cells."""
    slow = sample(values.spec(Role.DRAFTER), tps=10.0)

    def flag(run: RunResult, **_: object) -> tuple[MeasurementWarning, ...]:
        return (MeasurementWarning.BUSY_MACHINE,) if run.sample.gen_s == slow.gen_s else ()

    def answer(spec: RunSpec) -> Sample:
        return slow if spec.role is Role.DRAFTER else sample(spec)

    monkeypatch.setattr(warnings, "of_run", flag)
    busy = FakeNode(host="a", engine=Scripted(answer=answer), lost_after=lost_after)
    drive(cluster(busy, "b"))
    assert cells(*stored().values()) == local_cells()


def test_a_killed_driver_repeats_no_run(cluster: Clusters) -> None:
    nodes = [FakeNode(host="a"), FakeNode(host="b")]
    machines = cluster(*nodes)
    running = Drive(cluster=machines, order=order(), where=Where.SAME).run()
    for _ in running:
        if sum(len(bench.runs) for bench in stored().values()) >= 25:
            break
    running.close()
    machines.kill_all()
    again = [FakeNode(host=node.host, engine=node.engine) for node in nodes]
    drive(cluster(*again), resumes=True)
    benches = stored()
    assert cells(*benches.values()) == local_cells()
    counted = [run for bench in benches.values() for run in bench.runs if not (run.warmup or run.anchor)]
    seen = Counter(spec for node in nodes for spec in node.engine.seen)
    for run in counted:
        anchors_and_warmups = sum(
            other.spec == run.spec and (other.warmup or other.anchor)
            for bench in benches.values()
            for other in bench.runs
        )
        repeats = sum(other.spec == run.spec for other in counted)
        assert seen[run.spec] <= repeats + anchors_and_warmups + 1  # warm-ups of a block that goes on


@pytest.mark.parametrize("host", ["a", "b"])
def test_a_driver_goes_on_with_another_machine_or_one_that_lost_its_runs(
    cluster: Clusters, tmp_path: Path, host: str
) -> None:
    *_, last = drive(cluster(FakeNode(host="a", lost_after=40)))
    assert any("no machine is left" in line for line in last)
    endings = fleet.read_fleet("nightly").endings.values()
    assert AttemptEnding.UNPLACED in {end.ending for end in endings}
    shutil.rmtree(tmp_path / "hosts" / "a")
    progress = drive(cluster(host), resumes=True)
    assert any("is sent again" in line for lines in progress for line in lines) is (host == "a")
    assert cells(*stored().values()) == local_cells()
    unmeasured = fleet.describe_unmeasured(fleet.read_fleet("nightly"))
    assert not [line for line in unmeasured if "not measured" in line]


def test_a_fleet_has_no_runs_of_an_earlier_one(cluster: Clusters) -> None:
    drive(cluster("a"))
    shutil.rmtree(os.environ["GGUFSPEC_DATA"])  # the driver's; the machine has kept its copy
    again = FakeNode(host="a")
    drive(cluster(again))
    (bench,) = stored().values()
    assert len(again.engine.seen) == len(bench.runs)


def test_each_machine_measures_everything(cluster: Clusters) -> None:
    machines = cluster("a", FakeNode(host="b", hardware="Another Processor"))
    drive(machines, Where.EACH)
    benches = stored()
    assert [cells(bench) for bench in benches.values()] == [local_cells()] * 2


def test_nodes_of_one_host_share_a_bench(cluster: Clusters) -> None:
    machines = cluster("a", "a")
    driving = Drive(cluster=machines, order=order(), where=Where.SAME, patience_s=0.0)
    assert max(len(driving._scheduled.running) for _ in driving.run() if driving._schedule) == 1
    (bench,) = stored().values()
    assert cells(bench) == local_cells()


@pytest.mark.parametrize(
    ("odd", "reason"),
    [
        (FakeNode(host="odd", install=replace(INSTALL, version="0.4.0")), "it has llama.cpp 0.4.0"),
        (FakeNode(host="odd", hardware="Another Processor"), "its hardware is not that of the others"),
        (FakeNode(host="odd", n_blocks=2), "it would choose other settings than the others"),
        (FakeNode(host="odd", software={"ggufspec": "0.0.1"}), "and the driver has 0.0.1"),
    ],
)
def test_a_machine_that_would_measure_something_else_is_refused(
    cluster: Clusters, odd: FakeNode, reason: str
) -> None:
    machines = cluster("a", replace(odd), "b")
    drive(machines)
    (refusal,) = fleet.read_fleet("nightly").refused.values()
    assert refusal.hostname == "odd"
    assert reason in refusal.reason
    assert cells(*stored().values()) == local_cells()


def test_a_fleet_is_resumed_as_it_was_begun(cluster: Clusters) -> None:
    drive(cluster("a"))
    with pytest.raises(ResultsError, match="--where same"):
        drive(cluster("a"), Where.EACH, resumes=True)
    with pytest.raises(ResultsError, match="its hardware is not that of the others"):
        drive(cluster(FakeNode(host="b", hardware="Other")), resumes=True)


def test_no_token_travels_unless_it_is_shared() -> None:
    asked = FleetSweepOptions(token="hf_secret")
    assert make_order("nightly", asked).request.token is None
    assert make_order("nightly", asked.replace(share_token=True)).request.token == "hf_secret"


@pytest.mark.parametrize(
    ("asked", "named"),
    [
        (FleetSweepOptions(url="http://x"), "--url"),
        (FleetSweepOptions(tuned="big"), "--tuned"),
        (FleetSweepOptions(rpc="a:50052,b:50052"), "--rpc"),
        (FleetSweepOptions(rpc=("none", "a:50052")), "--rpc"),
        (FleetSweepOptions(rpc=("a:50052",)), "--rpc"),
    ],
)
def test_what_machines_of_a_fleet_cannot_use_is_refused(asked: FleetSweepOptions, named: str) -> None:
    with pytest.raises(GgufspecError) as error:
        make_order("nightly", asked)
    assert named in str(error.value.hint)


def test_paths_are_absolute_for_machines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "target.gguf").touch()
    asked = FleetSweepOptions(
        target=("target.gguf", "user/repo:Q4_K_M"), draft_model=Path("drafter.gguf"), llama=Path("bin")
    )
    sent = make_order("nightly", asked).request
    assert sent.target == (tmp_path / "target.gguf", "user/repo:Q4_K_M")
    assert sent.draft_model == (tmp_path / "drafter.gguf",)
    assert sent.llamas == (tmp_path / "bin",)


def test_files_of_prompts_travel(tmp_path: Path) -> None:
    (tmp_path / "story.txt").write_text("Once upon a time")
    sent = make_order("nightly", FleetSweepOptions(prompt_file=(tmp_path / "story.txt",)))
    (tmp_path / "story.txt").unlink()
    (path,) = unpack_texts(sent, tmp_path / "there").prompt_file
    assert (path.name, path.read_text()) == ("story.txt", "Once upon a time")


def test_two_nodes_of_one_host_never_measure_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nodes of two drivers: no schedule knows both."""
    running: list[RunSpec] = []
    most_at_once = 0

    def answer(spec: RunSpec) -> Sample:
        nonlocal most_at_once
        running.append(spec)
        most_at_once = max(most_at_once, len(running))
        time.sleep(0.02)
        running.pop()
        return sample(spec)

    def measure(name: str) -> BlockMeasured:
        node = Bencher(
            order=pickle.dumps(order(name)),
            software=list_software(),
            moves_data=False,
            lock=tmp_path / "lock",
        )
        (prepared,) = node.prepare()
        assert isinstance(prepared, Preparation)
        both_are_ready.wait()
        *_, last = node.measure(0, 0, None)
        assert isinstance(last, BlockMeasured)
        return last

    monkeypatch.setattr(machine, "snapshot", lambda _=(): FakeNode(host="a").machine)
    monkeypatch.setattr(api, "prepare", lambda _: FakeNode(host="a", engine=Scripted(answer=answer)).session)
    monkeypatch.setattr(benching, "identify", lambda session: session)
    both_are_ready = threading.Barrier(2, timeout=60)
    with ThreadPoolExecutor() as threads:
        ends = list(threads.map(measure, ("one", "two")))
    assert most_at_once == 1
    assert max(end.waited_s for end in ends) > min(end.waited_s for end in ends)


def test_an_unready_machine_delays_no_other(cluster: Clusters) -> None:
    slow = FakeNode(host="b", prepares=False)
    drive(cluster("a", slow))
    assert {bench.meta.machine.hostname for bench in stored().values()} == {"a"}
    assert cells(*stored().values()) == local_cells()


def test_a_fleet_without_machines_is_an_error(cluster: Clusters) -> None:
    name = f"nightly.{fleet.identify_machine(FakeNode(host='a').machine)}"
    results.close(values.bench(name=name))
    with pytest.raises(GgufspecError, match=r"no machine of the fleet can measure: a: .* already exists"):
        drive(cluster("a"))


def test_a_plan_says_what_each_machine_would_measure(
    cluster: Clusters, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    odd = FakeNode(host="odd", hardware="Another Processor")
    machines = cluster("a", "b", odd)
    planned = make_order("nightly", FleetSweepOptions(dry_run=True))
    plan = fleet.plan_fleet(*fleet.prepare_nodes(machines, planned), Where.SAME)
    assert sorted(job.block for job in plan.measured) == list(range(N_BLOCKS))
    assert set(plan.hosts.values()) == {"a", "b"}
    assert set(plan.refused) == {"odd"}
    monkeypatch.setattr(fleet, "RayCluster", lambda **_: nullcontext(machines))
    printed = shell.done("fleet", "sweep", "--pair", "demo", "--dry-run", "-o", "csv").stdout
    assert printed.splitlines()[0] == "machine,host,block,from_s,until_s"
    assert len(printed.splitlines()) == 1 + N_BLOCKS
    assert not fleet.list_fleets()
    assert not (tmp_path / "hosts" / "a" / "runs").exists()


@pytest.mark.parametrize("address", ["local", "ray://box:10001", "box", ":6379", "box:port"])
def test_what_is_not_an_address_is_refused(address: str) -> None:
    with pytest.raises(GgufspecError, match="is not the address of a Ray cluster"):
        fleet.RayCluster(address=address)


def test_a_token_on_the_command_line_is_refused() -> None:
    code, out, err = shell.run("fleet", "sweep", "--pair", "demo", "--token", "hf_secret")
    assert (code, "--share-token" in err) == (2, True)
    assert "hf_secret" not in out + err


def test_without_ray_the_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(GgufspecError, match="Ray, which is not installed") as error:
        fleet.RayCluster(address="auto")
    assert "ggufspec[fleet]" in str(error.value.hint)


def test_variables_that_ray_sets_are_not_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("GGML_CUDA_FORCE_MMQ", "1")
    unset = {"OMP_NUM_THREADS": "1", "GGML_CUDA_FORCE_MMQ": "0"}
    other = {"ggufspec": "0.0.1"}  # ends before anything is prepared
    bencher = Bencher(order=b"", software=other, moves_data=False, lock=tmp_path / "lock", unset=unset)
    (answer,) = bencher.prepare()
    assert isinstance(answer, OrderFailure)
    assert "OMP_NUM_THREADS" not in os.environ
    assert os.environ["GGML_CUDA_FORCE_MMQ"] == "1"


# A tuning on each machine of a fleet


def tuned_on(machine: Machine) -> SimpleNamespace:
    """Store what a tuning stores: the bench that confirms, and the configuration in it."""
    bench = values.bench(values.run(Role.TARGET), values.run(Role.DRAFTING, draft=5))
    for run in bench.runs:
        (bench.folder / "logs" / f"{run.log}.err").write_text("a log")
    bench = results.amend(bench, machine=machine)
    results.write_configuration(values.configuration(id=bench.meta.id), bench.folder)
    results.close(bench)
    return SimpleNamespace(results=bench)


def tune(machines: FakeCluster, *, unable: str = "") -> dict[str, Configuration | str]:
    """Tune on nodes; the host that is called ``unable`` finds nothing."""

    def answer(asked: TuneOptions) -> SimpleNamespace:
        here = next(node for node in machines.nodes.values() if paths.data_dir().name == node.host)
        assert asked.max_time == 60.0
        if here.host == unable:
            raise InconclusiveError("nothing can be used")
        return tuned_on(here.machine)

    machines.monkeypatch.setattr(tuning, "tune", answer)
    return dict(tune_nodes(machines, make_order("office", FleetTuneOptions(max_time=60.0))))


def test_each_machine_stores_its_own_configuration(cluster: Clusters) -> None:
    answers = tune(cluster("a", "b", "a"))
    stored = fleet.read_fleet("office")
    benches = fleet.read_benches(stored)
    assert set(answers) == {"a", "b"}  # a host tunes once, whatever its nodes
    assert sorted(bench.meta.machine.hostname for bench in benches.values()) == ["a", "b"]
    for bench in benches.values():
        assert results.read_configuration(bench.meta.id) == answers[bench.meta.machine.hostname]
        assert all((bench.folder / "logs" / f"{run.log}.err").read_text() == "a log" for run in bench.runs)


def test_machines_that_find_nothing_or_are_lost_are_named(cluster: Clusters) -> None:
    answers = tune(cluster(FakeNode(host="a", lost_after=0), "b", "c"), unable="b")
    reasons = {"a": "the node died", "b": "nothing can be used"}
    refused = fleet.read_fleet("office").refused.values()
    assert {refusal.hostname: refusal.reason for refusal in refused} == reasons
    assert {host: answers[host] for host in reasons} == reasons
    assert isinstance(answers["c"], Configuration)
    assert len(fleet.read_benches(fleet.read_fleet("office"))) == 1


@pytest.mark.parametrize("measure", [drive, tune])
def test_without_any_machine_nothing_is_stored(
    cluster: Clusters, measure: Callable[[object], object]
) -> None:
    with pytest.raises(GgufspecError, match="no machine"):
        measure(cluster())
    assert not fleet.list_fleets()
