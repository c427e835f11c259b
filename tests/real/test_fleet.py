"""A fleet of Ray nodes on this machine, with the embedded pair: a node is killed, and the driver."""

from __future__ import annotations

import itertools
import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from pathlib import Path
from unittest import mock

import pytest

from ggufspec import fleet, paths, results
from ggufspec.fleet import NodeLost
from ggufspec.fleet.benching import HOST_LOCK
from ggufspec.llama.install.installs import Install
from ggufspec.measure import api
from ggufspec.results import ResultSet
from tests.support import reading, shell
from tests.support.documentation import ROOT
from tests.support.ray_nodes import RayNodes, start_cluster

N_CELLS = 18  # 3 blocks, 3 arms, a prompt, 2 repeats
UBATCHES = (64, 128, 256)
PROMPT = "Once upon a time"
DEADLINE_S = 200.0
TOKEN = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "0123456789abcdef" * 4}
SHORTENS_TUNINGS = """\
import sys
from pathlib import Path
sys.path.append({root!r})
exec((Path({root!r}) / "tests/support/quiet/sitecustomize.py").read_text())
if any(word.endswith("default_worker.py") for word in sys.orig_argv):
    from tests.support import imagined_times
    imagined_times.shorten(setattr)
"""
"""What each Python of a node does first: in actors, tunings end after the fewest runs, as for other pages."""


@pytest.fixture(scope="module")
def head() -> Iterator[RayNodes]:
    """A cluster with a token, whose head measures nothing, for all tests: each start takes seconds."""
    with pytest.MonkeyPatch.context() as patch:
        for name, text in TOKEN.items():
            patch.setenv(name, text)
        # a node that refuses some checks in a row is lost; by default that takes a quarter of a minute
        patch.setenv("RAY_health_check_period_ms", "300")
        with start_cluster() as started:
            yield started


@pytest.fixture
def cluster(head: RayNodes, llama: Install, monkeypatch: pytest.MonkeyPatch) -> Iterator[RayNodes]:
    """The cluster with the nodes that a test adds, which share the test's home."""
    monkeypatch.setenv("GGUFSPEC_LLAMA", str(llama.root))
    yield head
    head.end_all()


def words(cluster: RayNodes, *more: str) -> tuple[str, ...]:
    """Return the command line of the sweep."""
    sizes = ",".join(map(str, UBATCHES))
    return (
        *("fleet", "sweep", "--address", cluster.address, "--pair", "demo", "-ub", sizes, "--draft", "3"),
        *("-p", PROMPT, "-n", "16", "--repeats", "2", "--warmup", "0", "-t", "1", "--engine", "binary"),
        *more,
    )


def wait_until(condition: Callable[[], bool]) -> None:
    """Wait; fail after the deadline."""
    shell.wait_until(condition, DEADLINE_S)


def describe_cells(*benches: ResultSet) -> Counter[tuple[object, ...]]:
    """Return the key, counts and text of each cell that counts; no speeds."""
    runs = (run for bench in benches for run in bench.current)
    samples = ((run, run.sample) for run in runs)
    return Counter(
        (run.spec.key, run.repeat, sample.status, sample.n_drafted, sample.n_accepted, sample.text)
        for run, sample in samples
    )


def measure_here(llama: Install) -> ResultSet:
    """Return the same sweep, measured without a fleet."""
    return api.bench(
        pair="demo",
        llama=llama.root,
        engine="binary",
        ubatch=UBATCHES,
        draft=(3,),
        prompt=PROMPT,
        n_predict=16,
        repeats=2,
        warmup=0,
        threads=1,
    )


def count_machines(name: str) -> dict[str, int]:
    """Return how many runs of each machine are stored, by its host's name."""
    if name not in fleet.list_fleets():
        return {}
    joined = fleet.read_fleet(name).machines.values()
    return {event.hostname: len(results.load(event.bench).runs) for event in joined}


@pytest.mark.takes(45, together=HOST_LOCK)
@pytest.mark.timeout(900)
def test_each_cell_is_measured_once_after_kills(cluster: RayNodes, llama: Install, tmp_path: Path) -> None:
    for name in ("a", "b"):
        cluster.add_machine(name, tmp_path / name)
    driver = shell.start(*words(cluster, "--name", "cells"))
    wait_until(lambda: sum(count_machines("cells").values()) >= 7 or driver.poll() is not None)
    driver.kill()
    driver.communicate()
    before = count_machines("cells")
    assert 0 < sum(before.values()) < N_CELLS
    driver = shell.start(*words(cluster, "--resume", "cells"))
    measuring: list[str] = []

    def is_in_mid_block() -> bool:
        after = count_machines("cells")
        measuring[:] = [host for host, runs in after.items() if runs >= before.get(host, 0) + 2]
        return bool(measuring) or driver.poll() is not None

    wait_until(is_in_mid_block)
    cluster.kill(measuring[0])
    _, errors = driver.communicate(timeout=DEADLINE_S)
    assert driver.returncode == 0, errors
    stored = fleet.read_fleet("cells")
    assert measuring[0] in {
        stored.machines[event.machine].hostname for event in stored.events if isinstance(event, NodeLost)
    }
    benches = fleet.read_benches(stored)
    cells = describe_cells(*benches.values())
    assert cells.total() == N_CELLS
    assert cells == describe_cells(measure_here(llama))
    refuse_overlaps(results.load(event.bench) for event in stored.machines.values())


def refuse_overlaps(benches: Iterable[ResultSet]) -> None:
    """Fail if a run began before another one had ended."""
    spans = []
    for bench in benches:
        for run in bench.runs:
            start_s = datetime.fromisoformat(run.started_at).timestamp()
            spans.append((start_s, start_s + run.wall_s))
    assert all(end_s <= start_s + 0.05 for (_, end_s), (start_s, _) in itertools.pairwise(sorted(spans)))


@pytest.mark.takes(30, together=HOST_LOCK)
@pytest.mark.timeout(600)
def test_a_machine_with_other_files_takes_no_part(cluster: RayNodes, legacy: Install, tmp_path: Path) -> None:
    for name in ("a", "b", "odd", "old"):
        write_pair(tmp_path / f"{name}-pair", damages=name == "odd")
        more = {"GGUFSPEC_LLAMA": str(legacy.root)} if name == "old" else {}
        cluster.add_machine(name, tmp_path / name, GGUFSPEC_CONFIG=str(tmp_path / f"{name}-pair"), **more)
    ended = shell.ggufspec(
        *("fleet", "bench", "--address", cluster.address, "--pair", "mine", "--draft", "3", "-n", "16"),
        *("-t", "1", "-p", "Once", "-r", "1", "--engine", "binary", "--name", "odd"),
    )
    assert ended.returncode == 0, ended.stderr
    stored = fleet.read_fleet("odd")
    assert {event.hostname for event in stored.machines.values()} == {"a", "b"}
    old, odd = sorted(event.reason for event in stored.refused.values())
    assert "its target.gguf has another SHA-256" in odd
    assert "it has llama.cpp" in old


def write_pair(folder: Path, *, damages: bool) -> None:
    """Write a catalogue with a copy of the embedded pair; the last byte of the target may be another one."""
    shutil.copytree(paths.models_dir() / "demo", folder)
    if damages:
        content = bytearray((folder / "target.gguf").read_bytes())
        content[-1] ^= 1
        (folder / "target.gguf").write_bytes(content)
    (folder / "pairs.toml").write_text(
        '[pairs.mine]\ntarget = { path = "target.gguf" }\ndrafter = { path = "drafter.gguf" }\n'
    )


@pytest.mark.takes(45, together=HOST_LOCK)
@pytest.mark.timeout(4 * reading.PATIENCE_S)
def test_the_commands_of_the_page_do_what_it_shows(head: RayNodes, llama: Install, tmp_path: Path) -> None:
    """What starts Ray is left out: those commands would end other clusters on this machine."""
    env = reading.reader(tmp_path / "home-of-a-reader", llama) | {"RAY_ADDRESS": head.address}
    (tmp_path / "sitecustomize.py").write_text(SHORTENS_TUNINGS.format(root=str(ROOT)))
    with mock.patch.dict(os.environ, env, clear=True):
        head.add("node", {"PYTHONPATH": str(tmp_path)})
    try:
        reading.read(ROOT / "docs" / "howto" / "fleet.md", env)
    finally:
        head.end_all()


@pytest.mark.takes(5, together=HOST_LOCK)
def test_a_driver_without_the_token_is_refused(head: RayNodes, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = ("fleet", "doctor", "--address", head.address)
    with_token = shell.ggufspec(*asked)
    for name in TOKEN:
        monkeypatch.delenv(name)
    without = shell.ggufspec(*asked)
    assert with_token.returncode == 1
    assert "no machine of the fleet can measure" in with_token.stderr
    assert without.returncode == 1
    assert "no Ray cluster lets this driver join" in without.stderr
    assert "RAY_AUTH_MODE=token" in without.stderr


def test_an_address_without_a_cluster_is_named() -> None:
    pytest.importorskip("ray", reason="needs Ray: pip install 'ggufspec[fleet]'")
    ended = shell.ggufspec("fleet", "doctor", "--address", "127.0.0.1:9")
    assert ended.returncode == 1
    assert "there is no Ray cluster at 127.0.0.1:9" in ended.stderr
