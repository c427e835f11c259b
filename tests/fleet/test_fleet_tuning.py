"""A tuning on each machine of a fleet."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from ggufspec import fleet, paths, results, tuning
from ggufspec.domain import Machine, Role
from ggufspec.errors import GgufspecError, InconclusiveError
from ggufspec.fleet import make_order, tune_nodes
from ggufspec.options import FleetTuneOptions, TuneOptions
from ggufspec.results import Configuration
from tests.support import values
from tests.support.fleets import FakeCluster, FakeNode


def tuned_on(machine: Machine) -> SimpleNamespace:
    """Store what a tuning stores: the bench that confirms, and the configuration in it."""
    bench = values.bench(values.run(Role.TARGET), values.run(Role.DRAFTING, draft=5))
    for run in bench.runs:
        (bench.folder / "logs" / f"{run.log}.err").write_text("a log")
    bench = results.amend(bench, machine=machine)
    results.write_configuration(values.configuration(id=bench.meta.id), bench.folder)
    results.close(bench)
    return SimpleNamespace(results=bench)


def tune(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *nodes: FakeNode, unable: str = ""
) -> dict[str, Configuration | str]:
    """Tune on nodes; the host that is called ``unable`` finds nothing."""
    hosts = {f"node{number}": node for number, node in enumerate(nodes)}
    cluster = FakeCluster(root=tmp_path / "hosts", monkeypatch=monkeypatch, nodes=hosts)

    def answer(asked: TuneOptions) -> SimpleNamespace:
        here = next(node for node in nodes if paths.data_dir().name == node.host)
        assert asked.max_time == 60.0
        if here.host == unable:
            raise InconclusiveError("nothing can be used")
        return tuned_on(here.machine)

    monkeypatch.setattr(tuning, "tune", answer)
    order = make_order("office", FleetTuneOptions(max_time=60.0))
    return dict(tune_nodes(cluster, order))


def test_each_machine_stores_its_own_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = tune(tmp_path, monkeypatch, FakeNode(host="a"), FakeNode(host="b"))
    stored = fleet.read_fleet("office")
    benches = fleet.read_benches(stored)
    assert set(answers) == {"a", "b"}
    assert [bench.meta.machine.hostname for bench in benches.values()] == ["a", "b"]
    for bench in benches.values():
        assert results.read_configuration(bench.meta.id) == answers[bench.meta.machine.hostname]
        assert all((bench.folder / "logs" / f"{run.log}.err").read_text() == "a log" for run in bench.runs)


def test_a_machine_that_finds_nothing_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = tune(tmp_path, monkeypatch, FakeNode(host="a"), FakeNode(host="b"), unable="b")
    assert answers["b"] == "nothing can be used"
    (refusal,) = fleet.read_fleet("office").refused.values()
    assert (refusal.hostname, refusal.reason) == ("b", "nothing can be used")
    assert list(fleet.read_benches(fleet.read_fleet("office")))


def test_a_host_tunes_once_whatever_its_nodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = tune(tmp_path, monkeypatch, FakeNode(host="a"), FakeNode(host="a"))
    assert list(answers) == ["a"]
    assert len(fleet.read_fleet("office").machines) == 1


def test_a_lost_machine_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = tune(tmp_path, monkeypatch, FakeNode(host="a", lost_after=0), FakeNode(host="b"))
    assert answers["a"] == "the node died"
    assert isinstance(answers["b"], Configuration)


def test_without_machines_nothing_is_stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(GgufspecError, match="no machine"):
        tune(tmp_path, monkeypatch)
    assert not fleet.list_fleets()
