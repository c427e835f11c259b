"""The embedded pair on workers of a real build: texts, places, the network, and what goes wrong."""

from __future__ import annotations

import json
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from ggufspec import engines, prompts, results
from ggufspec.domain import Failure, ModelRun, Offload, Role, RunSpec, Status
from ggufspec.engines import Engine
from ggufspec.errors import WorkerError
from ggufspec.llama.install.installs import Install
from ggufspec.llama.rpc import lending, protocol, workers
from ggufspec.llama.rpc.lending import WorkerSettings
from ggufspec.options import split_address
from tests.support import embedded, rpc_workers, shell, values
from tests.support.slow_network import Network, slow_network

_WORKER = "rpc-server"  # the end of its program's name


def _settings() -> WorkerSettings:
    return WorkerSettings(port=rpc_workers.free_port(), threads=1, devices=("CPU",))


@pytest.fixture(autouse=True)
def undebugged(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no program that loses its worker start a debugger for a backtrace, which takes a second."""
    monkeypatch.setenv("GGML_NO_BACKTRACE", "1")


@pytest.fixture
def two(llama: Install) -> Iterator[tuple[str, str]]:
    """The addresses of two workers, which lend the processor."""
    settings = [_settings(), _settings()]
    with ExitStack() as stack:
        for one in settings:
            stack.enter_context(lending.start_worker(llama, one))
        yield settings[0].own_address, settings[1].own_address


@contextmanager
def _started(install: Install) -> Iterator[tuple[str, psutil.Process]]:
    """Start a worker; yield its address and its process."""
    before = set(psutil.Process().children(recursive=True))
    settings = _settings()
    with lending.start_worker(install, settings) as running:
        assert running.devices[0].startswith("CPU: ")
        started = set(psutil.Process().children(recursive=True)) - before
        (process,) = (one for one in started if one.name().endswith(_WORKER))
        yield settings.own_address, process


def _spec(role: Role, rpc: tuple[str, ...]) -> RunSpec:
    return embedded.spec(role, Offload(target=ModelRun(layers="all"), drafter=ModelRun(layers=0), rpc=rpc))


# Texts and places ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", engines.ENGINES)
def test_workers_keep_the_text(llama: Install, two: tuple[str, str], tmp_path: Path, name: str) -> None:
    sure = embedded.sure_text(llama, _spec(Role.TARGET, ()))
    for rpc in ((), two):
        with engines.make(name, llama, timeout_s=120, capacity=1) as engine:
            for role in (Role.TARGET, Role.DRAFTING):
                sample = embedded.measured(engine, _spec(role, rpc), tmp_path / "run")
                target, drafter = values.models_of(sample)
                assert sure.is_in(sample.text)
                on = {
                    part.device.partition("[")[2].rstrip("]") for part in target.placement if part.model_bytes
                }
                assert {*rpc} <= on
                assert all(part.on_host for part in drafter.placement)


def test_a_sweep_compares_workers_and_goes_on(llama: Install, two: tuple[str, str], tmp_path: Path) -> None:
    gone, spec = rpc_workers.nobody(), _spec(Role.TARGET, ())
    done = shell.ggufspec(
        *("sweep", "--pair", "demo", "--engine", "server", "-n", "16", "--repeats", "1", "--draft", "3"),
        *("--threads", "1", "--ngl", "all", "--ngld", "0", "--prompt", spec.prompt.text, "--name", "spread"),
        *("--rpc", "none", "--rpc", ",".join(two), "--rpc", gone),
        llama=llama.root,
    )
    assert done.returncode == WorkerError.exit_code, done.stderr
    assert "error: 2 of 7 runs failed, first target on p1: worker unreachable: " in done.stderr
    assert f"cannot connect to the worker {gone}" in done.stderr
    bench = results.load("spread")
    statuses = {
        rpc: {run.sample.status for run in bench.runs if run.spec.own_offload.rpc == rpc}
        for rpc in ((), two, (gone,))
    }
    assert statuses == {(): {Status.OK}, two: {Status.OK}, (gone,): {Status.WORKER_UNREACHABLE}}
    drafting = [run for run in bench.runs if run.spec.role is Role.DRAFTING and run.sample.text]
    sure = embedded.sure_text(llama, spec)
    assert {run.text_identical for run in drafting} == {True} or not sure.is_whole
    assert all(sure.is_in(run.sample.text) for run in drafting)
    assert {worker.address for worker in bench.meta.workers} == {*two}
    rows = json.loads(shell.here("show", "spread", "-o", "json").stdout)
    assert {None, f"--rpc {','.join(two)}"} <= {row["settings"] for row in rows}


# The network -----------------------------------------------------------------------------------------------


def test_a_worker_says_its_devices_and_the_network_to_it(two: tuple[str, str]) -> None:
    for address in two:
        report = workers.measure_worker(address)
        assert report.version.major >= 1
        assert report.rtt_s is not None
        assert report.devices[0].total_bytes >= report.devices[0].free_bytes > 0
        if report.version.major == 7:
            assert report.bytes_per_s is not None


@pytest.mark.parametrize("role", [Role.TARGET, Role.DRAFTING])
def test_a_pass_pays_round_trips_that_the_proxies_count(
    llama: Install,
    two: tuple[str, str],
    tmp_path: Path,
    record_property: Callable[[str, object], None],
    role: Role,
) -> None:
    """A pass has as many with several tokens, which verify a draft, as with one. Prompts cancel out."""
    with slow_network(two[0]) as first, slow_network(two[1]) as second:
        networks = (first, second)
        counts = {}
        with engines.make("server", llama, timeout_s=120, capacity=1) as engine:
            for tokens in (40, 8, 40):  # the first loads the models
                for network in networks:
                    network.reset()
                spec = replace(_spec(role, (first.address, second.address)), n_predict=tokens)
                sample = embedded.measured(engine, spec, tmp_path / "run")
                passes = sample.n_rounds if role is Role.DRAFTING else sample.decoded
                assert passes
                counts[tokens] = passes, *(network.round_trips for network in networks)
    passes, *trips = (long - short for long, short in zip(counts[40], counts[8], strict=True))
    record_property("round trips of a pass", [count / passes for count in trips])
    assert all(count == pytest.approx(passes, abs=1) for count in trips)


@pytest.mark.parametrize("role", [Role.TARGET, Role.DRAFTING])
def test_a_pass_takes_a_round_trip(llama: Install, two: tuple[str, str], tmp_path: Path, role: Role) -> None:
    """What drafting gains by that depends on the machine's speed: scripts/validate_network.py measures it."""
    rtt_s = 0.02
    with (
        slow_network(two[0], delay_s=rtt_s / 2) as network,
        engines.make("server", llama, timeout_s=120, capacity=1) as engine,
    ):
        sample = embedded.measured(engine, _spec(role, (network.address,)), tmp_path / "run")
    passes = sample.n_rounds if role is Role.DRAFTING else sample.decoded
    assert passes
    assert (sample.gen_s or 0.0) >= (passes - 1) * rtt_s  # the prompt's pass writes the first token


# What goes wrong -------------------------------------------------------------------------------------------


def test_a_busy_worker_is_a_row_and_recovers(llama: Install, two: tuple[str, str], tmp_path: Path) -> None:
    with engines.make("server", llama, timeout_s=120, capacity=1) as holder:
        embedded.measured(holder, _spec(Role.TARGET, two[:1]), tmp_path / "holder")
        with engines.make("binary-simple", llama, timeout_s=120) as other:
            for _ in range(4):  # more than wait in the worker's queue
                busy = other.measure(_spec(Role.TARGET, two[:1]), tmp_path / "other")
                assert busy.sample.status is Status.WORKER_BUSY
    workers.check_workers(two)


@contextmanager
def _bare_worker(install: Install) -> Iterator[str]:
    """Start llama.cpp's worker as users do, without ggufspec; yield its address."""
    address = rpc_workers.nobody()
    assert install.worker is not None
    process = subprocess.Popen(
        [install.worker, "--port", address.rpartition(":")[2]],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        shell.wait_until(lambda: _answers(address))
        yield address
    finally:
        process.kill()
        process.wait()


def _answers(address: str) -> bool:
    try:
        workers.check_workers((address,), timeout_s=1.0)
    except Failure:
        return False
    return True


def test_asking_a_busy_worker_does_not_end_it(llama: Install) -> None:
    """It looks at the connection later, and dies of SIGPIPE where it answers one that was closed."""
    with _bare_worker(llama) as address:
        with protocol.connect(*split_address(address), timeout_s=5):
            assert not _answers(address)
        shell.wait_until(lambda: _answers(address))
        workers.check_workers((address,))


@contextmanager
def _during(condition: Callable[[], bool], act: Callable[[], object]) -> Iterator[None]:
    """Do something in another thread once a condition holds."""

    def wait() -> None:
        shell.wait_until(condition, seconds=100)
        act()

    thread = threading.Thread(target=wait)
    thread.start()
    yield
    thread.join()


@contextmanager
def _far(
    install: Install, name: str, timeout_s: float
) -> Iterator[tuple[Engine, psutil.Process, Network, RunSpec]]:
    """Yield an engine with a worker behind a slow network, the worker's process, and a long run on it."""
    with (
        _started(install) as (address, process),
        slow_network(address, delay_s=0.02) as network,
        engines.make(name, install, timeout_s=timeout_s, capacity=1) as engine,
    ):
        yield engine, process, network, replace(_spec(Role.TARGET, (network.address,)), n_predict=400)


@pytest.mark.parametrize("name", ["binary-simple", "server", "inprocess"])
def test_a_worker_that_is_killed_during_a_run_is_a_row(llama: Install, tmp_path: Path, name: str) -> None:
    with _far(llama, name, 120) as (engine, process, network, spec):
        embedded.measured(engine, replace(spec, n_predict=16), tmp_path / "before")
        network.reset()
        with _during(lambda: network.round_trips > 60, process.kill):
            other = prompts.suite("demo").prompts[1]
            lost = engine.measure(replace(spec, prompt=other), tmp_path / "lost")
    assert lost.sample.status is Status.WORKER_LOST, lost.error


@pytest.mark.takes(15)
@pytest.mark.parametrize("name", ["binary-simple", "server", "inprocess"])
def test_a_worker_that_hangs_ends_at_the_time_limit(llama: Install, tmp_path: Path, name: str) -> None:
    with _far(llama, name, 12) as (engine, process, network, spec):
        started_s = time.monotonic()
        with _during(lambda: network.round_trips > 100, process.suspend):
            stuck = engine.measure(spec, tmp_path / "stuck")
        assert time.monotonic() - started_s < 100
        assert stuck.sample.status is Status.TIMED_OUT, stuck.error
        busy = engine.measure(spec, tmp_path / "again")
        assert busy.sample.status is Status.WORKER_BUSY, busy.error
        process.resume()


@pytest.mark.skipif(not hasattr(psutil, "RLIMIT_AS"), reason="memory of another process is limited on Linux")
@pytest.mark.parametrize("name", ["binary-simple", "server", "inprocess"])
def test_a_worker_without_memory_is_a_row(llama: Install, tmp_path: Path, name: str) -> None:
    with _started(llama) as (address, process), engines.make(name, llama, timeout_s=60, capacity=1) as engine:
        most = process.memory_info().vms + (1 << 20)
        process.rlimit(psutil.RLIMIT_AS, (most, most))
        full = embedded.complete(engine, _spec(Role.TARGET, (address,)), tmp_path / "full")
    assert full.sample.status is Status.OUT_OF_MEMORY, full.error
    assert f"RPC0[{address}]" in (full.error or "")


@pytest.mark.parametrize("version", [(6, 0, 0), (2, 0, 0)])
def test_an_outdated_worker_is_refused(llama: Install, tmp_path: Path, version: tuple[int, int, int]) -> None:
    with rpc_workers.worker(version=version) as fake:
        with pytest.raises(Failure) as caught:
            workers.check_versions(llama, (fake.address,))
        assert caught.value.status is Status.WORKER_MISMATCH
        started_s = time.monotonic()
        done = shell.ggufspec(
            *("bench", "--pair", "demo", "-n", "8", "--ngl", "1", "--rpc", fake.address), llama=llama.root
        )
        assert (done.returncode, time.monotonic() - started_s < 100) == (38, True), done.stderr
        assert "speaks another version of RPC" in done.stderr
        if version[0] == 6:
            with engines.make("binary-simple", llama, timeout_s=60) as engine:
                run = embedded.complete(engine, _spec(Role.TARGET, (fake.address,)), tmp_path / "run")
            assert run.sample.status is Status.WORKER_MISMATCH, run.error


def test_a_worker_survives_a_program_that_is_killed(llama: Install, tmp_path: Path) -> None:
    with _far(llama, "binary-simple", 3) as (engine, process, network, spec):
        assert engine.measure(spec, tmp_path / "killed").sample.status is Status.TIMED_OUT
        shell.wait_until(lambda: _answers(network.address))
        assert process.is_running()


def test_interrupted_in_the_middle_no_process_remains(llama: Install) -> None:
    with _started(llama) as (address, worker), slow_network(address, delay_s=0.02) as network:
        bench = shell.start(
            *("bench", "--pair", "demo", "--engine", "server", "-n", "400", "--ngl", "all", "--ngld", "0"),
            *("--threads", "1", "--name", "cut", "--rpc", network.address),
            llama=llama.root,
        )
        shell.wait_until(lambda: network.round_trips > 200, seconds=100)
        family = psutil.Process(bench.pid).children(recursive=True)
        assert any("llama-server" in one.name() for one in family)
        bench.send_signal(signal.SIGINT)
        _, errors = bench.communicate(timeout=60)
        assert bench.returncode == 130, errors
        assert "--resume" in errors
        shell.wait_until(lambda: not any(shell.is_alive(one) for one in family))
        assert worker.is_running()
        shell.wait_until(lambda: _answers(address))
