"""Workers that lend their devices over the network: what is asked of them, and what a slow network does."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
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


def nobody() -> AbstractContextManager[str]:
    return nullcontext(rpc_workers.nobody())


def nowhere() -> AbstractContextManager[str]:
    return nullcontext("nowhere.invalid:50052")


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
        *("[::1]:1", "a:1e3", "::1:50052", "[fe80::1]:50052"),
    ],
)
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(GgufspecError) as refused:
        parse_workers(text)
    assert "examples: 192.168.0.7:50052" in (refused.value.hint or "")
    assert "fe80" not in text or "reaches no worker at the IPv6 address" in refused.value.message


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


@pytest.mark.parametrize(
    ("other", "status", "reason", "hint"),
    [
        (nobody, Status.WORKER_UNREACHABLE, "cannot connect to the worker {}", "ggufspec fleet worker"),
        (nowhere, Status.WORKER_UNREACHABLE, "cannot connect to the worker {}", "the firewall"),
        (rpc_workers.busy_worker, Status.WORKER_BUSY, "{} did not answer", "one program at a time"),
        (rpc_workers.slow_answers, Status.WORKER_BUSY, "{} did not answer", "one program at a time"),
        (rpc_workers.stranger, Status.WORKER_MISMATCH, "{} is not a worker, or one of", "the same llama.cpp"),
    ],
)
def test_what_answers_in_another_way_or_never_is_named_soon(
    other: Callable[[], AbstractContextManager[str]], status: Status, reason: str, hint: str
) -> None:
    with other() as address:
        started_s = time.monotonic()
        error = problem(address)
    assert time.monotonic() - started_s < 60  # never a hang
    assert error.status is status
    assert reason.format(address) in error.reason
    assert hint in (workers.failure_error(error).hint or "")


def test_a_worker_with_two_names_is_busy_for_the_second() -> None:
    with rpc_workers.worker() as fake, pytest.raises(Failure) as caught:
        workers.check_workers((fake.address, f"localhost:{fake.address.rpartition(':')[2]}"), timeout_s=0.3)
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


@pytest.mark.parametrize("devices", [1 << 31, 0, 1])
def test_answers_that_no_worker_gives(devices: int) -> None:
    def answer(client: socket.socket) -> None:
        for data in (bytes((7, 0, 0)) + bytes(25), struct.pack("<I", devices), b"not two numbers"):
            client.recv(64)
            client.sendall(struct.pack("<Q", len(data)) + data)

    with rpc_workers.answering(answer) as address, pytest.raises(Failure) as caught:
        workers.read_worker(address, timeout_s=0.3)
    assert caught.value.status is Status.WORKER_MISMATCH


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


LOST = "/src/ggml-rpc.cpp:35: Remote RPC server crashed or returned malformed response"
NO_RPC = 'error while handling argument "--rpc": failed to find RPC backend'


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        ("echo 'RPC server version mismatch: 6.0.0' >&2; kill -ABRT $$", Failure),
        (f"echo '{LOST}' >&2; kill -ABRT $$", Failure),  # at the greeting
        (f"echo '{NO_RPC}' >&2; exit 1", NoInstallError),  # a llama.cpp that others have built
    ],
)
def test_another_version_is_named_before_anything_is_measured(
    tmp_path: Path, answer: str, error: type[Exception]
) -> None:
    with rpc_workers.worker() as fake, pytest.raises(error) as caught:
        workers.check_versions(listing(tmp_path, answer), (fake.address,))
    if isinstance(caught.value, Failure):
        assert caught.value.status is Status.WORKER_MISMATCH
        assert fake.address in caught.value.reason
    else:
        assert "built without RPC" in str(caught.value)


def test_a_llama_that_lists_devices_speaks_the_same_version(tmp_path: Path) -> None:
    install = listing(tmp_path, "echo 'Available devices:'")
    with rpc_workers.worker() as fake:
        workers.check_versions(install, (fake.address,))
    workers.check_versions(install, ())  # no workers
