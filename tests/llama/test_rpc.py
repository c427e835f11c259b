"""Workers that lend their devices over the network: what is asked of them, and what a slow network does."""

from __future__ import annotations

import socket
import struct
import time
from dataclasses import replace
from pathlib import Path

import pytest

from ggufspec.domain import Failure, Status
from ggufspec.errors import GgufspecError, NoInstallError, WorkerError
from ggufspec.llama.install.installs import Install
from ggufspec.llama.rpc import workers
from ggufspec.options import parse_workers
from tests.support import fakes, rpc_workers
from tests.support.rpc_workers import MIB
from tests.support.slow_network import slow_network


def problem(address: str, timeout_s: float = 0.3) -> Failure:
    with pytest.raises(Failure) as caught:
        workers.check_workers((address,), timeout_s=timeout_s)
    return caught.value


# Addresses --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "addresses"),
    [
        ("none", ()),
        ("a:50052", ("a:50052",)),
        ("a:50052, 10.0.0.2:1,my_host.lan:65535", ("a:50052", "10.0.0.2:1", "my_host.lan:65535")),
    ],
)
def test_addresses_are_read(text: str, addresses: tuple[str, ...]) -> None:
    assert parse_workers(text) == addresses


@pytest.mark.parametrize(
    "text",
    [
        *("", "a", "a:", ":1", "a:0", "a:65536", "a:1,", "a:1,none", "a:1,a:1", "a:1;b:2", "-x:1"),
        *("[::1]:1", "a:1e3", "::1:50052"),
    ],
)
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(GgufspecError) as refused:
        parse_workers(text)
    assert "examples: 192.168.0.7:50052" in (refused.value.hint or "")


def test_an_ipv6_address_is_refused_by_name() -> None:
    with pytest.raises(GgufspecError, match="reaches no worker at the IPv6 address"):
        parse_workers("[fe80::1]:50052")


# What a worker says -----------------------------------------------------------------------------------------


def test_a_worker_says_its_version_and_the_memory_of_its_devices() -> None:
    with rpc_workers.worker(devices=((1 * MIB, 2 * MIB), (3 * MIB, 4 * MIB))) as fake:
        report = workers.read_worker(fake.address)
    assert str(report.version) == "7.0.0"
    assert [(one.free_bytes, one.total_bytes) for one in report.devices] == [
        (1 * MIB, 2 * MIB),
        (3 * MIB, 4 * MIB),
    ]
    assert (report.rtt_s, report.bytes_per_s) == (None, None)


@pytest.mark.parametrize("version", [(2, 0, 0), (3, 1, 0), (6, 0, 2)])
def test_workers_of_other_versions_are_understood_as_far_as_possible(version: tuple[int, int, int]) -> None:
    with rpc_workers.worker(version=version) as fake:
        report = workers.measure_worker(fake.address)
    assert report.version == version
    assert [one.total_bytes for one in report.devices] == [8000 * MIB]
    assert report.rtt_s is not None
    assert report.bytes_per_s is None  # their tensors are described in another way


def test_a_worker_serves_others_after_it_was_asked() -> None:
    with rpc_workers.worker() as fake:
        for _ in range(3):
            workers.check_workers((fake.address,))


# The network ------------------------------------------------------------------------------------------------


def test_times_and_bandwidth_are_measured_apart() -> None:
    with rpc_workers.worker() as fake, slow_network(fake.address, delay_s=0.01) as network:
        near, far = workers.measure_worker(fake.address), workers.measure_worker(network.address)
    assert far.rtt_s >= 0.02
    assert near.rtt_s < far.rtt_s
    rate = 4e6  # bytes/s
    with rpc_workers.worker() as fake, slow_network(fake.address, delay_s=0.005, bytes_per_s=rate) as network:
        report = workers.measure_worker(network.address)
    assert fake.received_bytes >= MIB
    assert report.bytes_per_s < 1.3 * rate  # a busy machine may be slower, never faster
    with rpc_workers.worker(room_bytes=0) as fake:
        report = workers.measure_worker(fake.address)
    assert report.rtt_s is not None
    assert report.bytes_per_s is None
    assert not fake.received_bytes


def test_the_proxy_counts_round_trips_and_bytes() -> None:
    with rpc_workers.worker() as fake, slow_network(fake.address) as network:
        workers.read_worker(network.address)
        asked = 3  # a greeting, the number of devices, the memory of one
        assert network.round_trips == asked
        assert network.up_bytes == asked * 9 + 24 + 4
        assert network.down_bytes == asked * 8 + 28 + 4 + 16


# What goes wrong --------------------------------------------------------------------------------------------


def test_nothing_answers() -> None:
    address = rpc_workers.nobody()
    error = problem(address)
    assert error.status is Status.WORKER_UNREACHABLE
    assert address in error.reason
    assert "ggufspec fleet worker" in (workers.failure_error(error).hint or "")
    assert problem("nowhere.invalid:50052").status is Status.WORKER_UNREACHABLE


def test_a_busy_worker_is_a_time_out_and_never_a_hang() -> None:
    with rpc_workers.busy_worker() as address:
        started_s = time.monotonic()
        error = problem(address, timeout_s=0.2)
    assert time.monotonic() - started_s < 60
    assert error.status is Status.WORKER_BUSY
    assert "one program at a time" in (workers.failure_error(error).hint or "")


def test_a_worker_with_two_names_is_busy_for_the_second() -> None:
    with rpc_workers.worker() as fake, pytest.raises(Failure) as caught:
        workers.check_workers((fake.address, f"localhost:{fake.port}"), timeout_s=0.3)
    assert caught.value.status is Status.WORKER_BUSY
    assert "named twice" in caught.value.reason


def test_a_worker_that_was_busy_is_not_asked_again_by_a_connection_that_was_given_up() -> None:
    """llama.cpp's worker would end where it answers it."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        assert problem(f"127.0.0.1:{listener.getsockname()[1]}", 0.1).status is Status.WORKER_BUSY
        client, _ = listener.accept()
        with client, pytest.raises(ConnectionResetError):
            _read_to_the_end(client)


def _read_to_the_end(client: socket.socket) -> None:
    while client.recv(64):
        pass


def test_an_answer_that_never_ends_is_a_time_out() -> None:
    with rpc_workers.slow_answers() as address:
        started_s = time.monotonic()
        assert problem(address).status is Status.WORKER_BUSY
    assert time.monotonic() - started_s < 60


@pytest.mark.parametrize("devices", [1 << 31, 0, 1])
def test_answers_that_no_worker_gives(devices: int) -> None:
    def answer(client: socket.socket) -> None:
        for data in (bytes((7, 0, 0)) + bytes(25), struct.pack("<I", devices), b"not two numbers"):
            client.recv(64)
            client.sendall(struct.pack("<Q", len(data)) + data)

    with rpc_workers.answering(answer) as address, pytest.raises(Failure) as caught:
        workers.read_worker(address, timeout_s=0.3)
    assert caught.value.status is Status.WORKER_MISMATCH


def test_something_else_listens_there() -> None:
    with rpc_workers.stranger() as address:
        error = problem(address)
    assert error.status is Status.WORKER_MISMATCH
    assert "is not a worker, or one of another version" in error.reason


def test_every_problem_has_an_error_with_its_own_exit_code_and_a_hint() -> None:
    for status in workers.HINTS:
        error = workers.failure_error(Failure(status, "why"))
        assert isinstance(error, WorkerError)
        assert (error.exit_code, bool(error.hint)) == (38, True)


# The same version on both sides ----------------------------------------------------------------------------


def listing(folder: Path, answer: str) -> Install:
    """An install whose program does this when it is asked for devices with workers."""
    program = fakes.program(folder / "llama-server", f'case "$*" in *--rpc*) {answer};; esac\n')
    install = fakes.recorded_install("0.3.36")
    programs = {name: replace(one, path=program) for name, one in install.programs.items()}
    return replace(install, root=folder, programs=programs)


@pytest.mark.parametrize(
    "message",
    [
        "RPC server version mismatch: 6.0.0",
        "/src/ggml-rpc.cpp:35: Remote RPC server crashed or returned malformed response",  # at the greeting
    ],
)
def test_another_version_is_named_before_anything_is_measured(tmp_path: Path, message: str) -> None:
    install = listing(tmp_path, f"echo '{message}' >&2; kill -ABRT $$")
    with rpc_workers.worker() as fake, pytest.raises(Failure) as caught:
        workers.check_versions(install, (fake.address,))
    assert caught.value.status is Status.WORKER_MISMATCH
    assert fake.address in caught.value.reason


def test_a_llama_that_lists_devices_speaks_the_same_version(tmp_path: Path) -> None:
    install = listing(tmp_path, "echo 'Available devices:'")
    with rpc_workers.worker() as fake:
        workers.check_versions(install, (fake.address,))
    workers.check_versions(install, ())  # no workers


def test_a_llama_of_others_that_has_no_rpc_says_so(tmp_path: Path) -> None:
    message = 'error while handling argument "--rpc": failed to find RPC backend'
    install = listing(tmp_path, f"echo '{message}' >&2; exit 1")
    with rpc_workers.worker() as fake, pytest.raises(NoInstallError, match="built without RPC"):
        workers.check_versions(install, (fake.address,))
