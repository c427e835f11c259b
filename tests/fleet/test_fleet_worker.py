"""``ggufspec fleet worker``: a worker is started, described, watched, and ends with its command."""

from __future__ import annotations

import signal
import socket
from pathlib import Path

import psutil
import pytest

from ggufspec.domain import Failure
from ggufspec.errors import GgufspecError, NoInstallError, WorkerError
from ggufspec.llama.install import installs
from ggufspec.llama.rpc import lending, workers
from ggufspec.llama.rpc.lending import WorkerSettings
from tests.support import fakes, rpc_workers, shell


@pytest.fixture
def llama(tmp_path: Path) -> Path:
    folder = fakes.install(tmp_path / "llama")
    rpc_workers.program(folder / "ggml-rpc-server")
    return folder


def settings(**changes: object) -> WorkerSettings:
    return WorkerSettings(**{"port": rpc_workers.free_port(), "threads": 2, **changes})  # type: ignore[arg-type]


def test_a_worker_says_what_it_lends_and_ends_with_its_context(llama: Path) -> None:
    chosen = settings(cache=True, devices=("CUDA0", "CPU"))
    with lending.start_worker(installs.find_install(llama), chosen) as running:
        assert running.devices == ("CUDA0: NVIDIA A", "CPU: A Processor")
        assert [one.total_bytes >> 20 for one in running.report.devices] == [8000, 4000]
        workers.check_workers((chosen.own_address,))
    words = f"--host 127.0.0.1 --port {chosen.port} --threads 2 --device CUDA0,CPU --cache"
    assert (llama / "worker-args").read_text() == f"{words}\n"
    with pytest.raises(Failure):
        workers.check_workers((chosen.own_address,))


@pytest.mark.parametrize(
    ("then", "reason"),
    [
        ("echo 'Failed to find RPC backend'", "Failed to find RPC backend"),
        # the program lists its devices after the error
        ("echo 'error: unknown device: CUDA9' >&2; echo '  CPU: A' >&2", "error: unknown device: CUDA9\n"),
        ("echo 'error: unknown device: CUDA9' >&2; echo '  CPU: A'", "error: unknown device: CUDA9\n"),
    ],
)
def test_the_line_that_says_why_a_worker_ended_is_the_reason(llama: Path, then: str, reason: str) -> None:
    rpc_workers.program(llama / "ggml-rpc-server", then=f"{then}; exit 1")
    with (
        pytest.raises(WorkerError, match=rf"ended \(exit code 1\): {reason}"),
        lending.start_worker(installs.find_install(llama), settings()),
    ):
        raise AssertionError("it never answered")


@pytest.mark.parametrize("host", ["localhost", "::1", "big.lan", "1.2.3"])
def test_a_worker_listens_on_an_ipv4_address(llama: Path, host: str) -> None:
    with pytest.raises(GgufspecError, match="cannot listen on") as refused:
        lending.start_worker(installs.find_install(llama), settings(host=host)).__enter__()
    assert "IPv4" in (refused.value.hint or "")


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="signals are read from /proc")
def test_a_worker_does_not_end_where_it_answers_a_program_that_was_killed(llama: Path) -> None:
    """llama.cpp's program leaves SIGPIPE as it finds it."""
    rpc_workers.program(
        llama / "ggml-rpc-server", then=f"grep SigIgn /proc/$$/status > '{llama / 'signals'}'"
    )
    with lending.start_worker(installs.find_install(llama), settings()):
        ignored = int((llama / "signals").read_text().split()[1], 16)
    assert ignored >> (signal.SIGPIPE - 1) & 1


def test_a_port_in_use_is_refused_before_anything_starts(llama: Path) -> None:
    install = installs.find_install(llama)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        with pytest.raises(GgufspecError, match=f"cannot listen on 127.0.0.1:{port}") as refused:
            lending.start_worker(install, settings(port=port)).__enter__()
    assert "--port" in (refused.value.hint or "")
    assert not (llama / "worker-args").exists()


def test_a_flag_that_the_program_lacks_is_named(llama: Path) -> None:
    without = "".join(line for line in rpc_workers.HELP.splitlines(True) if "--device" not in line)
    rpc_workers.program(llama / "ggml-rpc-server", help_text=without)
    install = installs.find_install(llama)
    assert "--device" not in lending.worker_argv(install, settings())
    with pytest.raises(GgufspecError, match="has no --device"):
        lending.worker_argv(install, settings(devices=("CPU",)))


def test_an_install_without_the_program_says_how_to_get_it(tmp_path: Path) -> None:
    install = installs.find_install(fakes.install(tmp_path / "llama"))
    with pytest.raises(NoInstallError, match="has no ggml-rpc-server") as refused:
        lending.worker_argv(install, settings())
    assert "`ggufspec build` makes one" in (refused.value.hint or "")


def test_the_command_prints_devices_warns_and_takes_the_worker_with_it(llama: Path) -> None:
    port = rpc_workers.free_port()
    process = shell.start("fleet", "worker", "--port", str(port), llama=llama)
    assert process.stderr is not None
    try:
        lines = [process.stdout.readline().rstrip("\n") for _ in range(3)]
        assert lines[0] == "CUDA0: NVIDIA A, 7.81 GiB, 5.86 GiB free"
        assert lines[1] == "CPU: A Processor, 3.91 GiB, 2.93 GiB free"
        assert lines[2].startswith(f"worker: 127.0.0.1:{port}, RPC 7.0.0")
        family = psutil.Process(process.pid).children(recursive=True)
        assert family
        workers.check_workers((f"127.0.0.1:{port}",))
    finally:
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGTERM
    assert f"ssh -N -L {port}:127.0.0.1:{port}" in errors
    shell.wait_until(lambda: not any(shell.is_alive(child) for child in family))


@pytest.mark.parametrize(
    ("host", "local"), [("127.0.0.1", True), ("127.0.1.1", True), ("0.0.0.0", False), ("10.0.0.7", False)]
)
def test_only_loopback_is_local(host: str, local: bool) -> None:
    assert settings(host=host).is_local is local
