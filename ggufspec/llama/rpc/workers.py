"""Workers on other machines: their addresses, and what they say of themselves and of the network to them."""

from __future__ import annotations

import logging
import math
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace

from ggufspec.domain import Failure, RpcWorker, RunSpec, Status
from ggufspec.errors import NoInstallError, WorkerError
from ggufspec.llama.install.environment import capture_program
from ggufspec.llama.install.installs import WITHOUT_RPC_HINT, Install
from ggufspec.llama.install.options import DEVICES_FLAG
from ggufspec.llama.logs import parsing
from ggufspec.llama.rpc import protocol
from ggufspec.llama.rpc.protocol import Connection, DeviceMemory, ProtocolVersion
from ggufspec.machine import Gpu
from ggufspec.options import split_address

DEFAULT_PORT = 50052
"""The port on which llama.cpp's worker listens by default."""

HINTS: Mapping[Status, str] = {
    Status.WORKER_UNREACHABLE: "start one there with `ggufspec fleet worker`, and check --rpc, the "
    "firewall and the tunnel",
    Status.WORKER_MISMATCH: "use the same llama.cpp on both machines: `ggufspec build --version V`",
    Status.WORKER_BUSY: "a worker serves one program at a time: end the other one, start another worker, or "
    "check the firewall",
    Status.WORKER_LOST: "the output of `ggufspec fleet worker` there says why; often its memory ran out",
}
"""Status -> what to do about it."""

_LOG = logging.getLogger("ggufspec")
_ANSWER_S = 5.0  # for a worker that is not busy
_ROUND_TRIPS = 21
_BYTES = (1 << 16, 1 << 20, 1 << 23)  # of transfers; after one that takes long, there is no other
_LONG_S = 0.25
_LISTING_S = 30.0  # for a program that connects to workers and lists their devices
_NO_RPC = "failed to find RPC backend"
_OF_ANOTHER_VERSION = {
    Status.WORKER_MISMATCH,
    Status.WORKER_LOST,  # it had just answered, and closed the connection at a greeting of another length
}


@dataclass(frozen=True, kw_only=True)
class WorkerReport:
    """What a worker says of itself, and the network to it as measured.

    Attributes:
        address: HOST:PORT.
        version: of its protocol.
        devices: the memory of each device that it lends.
        rtt_s: median time of a request without data and its answer; None where it was not measured.
        bytes_per_s: from here into its memory, without a round trip; None where it was not measured, or
            the time of the data is within that of a round trip.
    """

    address: str
    version: ProtocolVersion
    devices: tuple[DeviceMemory, ...]
    rtt_s: float | None = None
    bytes_per_s: float | None = None

    def describe(self) -> RpcWorker:
        """Return what is stored with every result."""
        return RpcWorker(
            address=self.address,
            version=str(self.version),
            free_bytes=tuple(device.free_bytes for device in self.devices),
            total_bytes=tuple(device.total_bytes for device in self.devices),
            rtt_s=self.rtt_s,
            bytes_per_s=self.bytes_per_s,
        )


def with_devices(install: Install, reports: Sequence[WorkerReport]) -> Install:
    """Return an install that lists the devices of workers, too, before those of this machine.

    Args:
        install: the llama.cpp that uses the workers.
        reports: the workers, in the order in which they are named to it.
    """
    gpus = list_gpus(reports)
    names = (f"RPC{number}: {gpu.name}" for number, gpu in enumerate(gpus))
    return replace(install, devices=(*names, *install.devices), gpus=(*gpus, *install.gpus))


def list_gpus(reports: Sequence[WorkerReport]) -> tuple[Gpu, ...]:
    """Return the devices of workers, which llama.cpp treats as GPUs, each by its worker's address."""
    return tuple(
        Gpu(name=report.address, total_bytes=device.total_bytes, free_bytes=device.free_bytes)
        for report in reports
        for device in report.devices
    )


def read_workers(addresses: Sequence[str]) -> tuple[WorkerReport, ...]:
    """Return what workers say of themselves.

    Raises:
        WorkerError: one of them cannot be used.
    """
    try:
        return tuple(map(read_worker, addresses))
    except Failure as problem:
        raise failure_error(problem) from problem


def check_workers(addresses: Sequence[str], *, timeout_s: float = _ANSWER_S) -> None:
    """Make sure that workers answer, so that a program that uses them does not wait for ever.

    All are connected at once, because a worker with two names would serve only the first of them.

    Raises:
        Failure: one of them does not.
    """
    with ExitStack() as connections:
        for address in addresses:
            connections.enter_context(_connect(address, timeout_s))


def require_workers(spec: RunSpec) -> None:
    """Make sure that the workers of a run answer: a program would wait for a busy one without end.

    Raises:
        Failure: one of them does not.
    """
    check_workers(spec.own_offload.rpc)


def failure_error(failure: Failure) -> WorkerError:
    """Return the error for a worker that cannot be used, with a hint."""
    return WorkerError(failure.reason, HINTS.get(failure.status))


def check_versions(install: Install, addresses: Sequence[str]) -> None:
    """Make sure that a llama.cpp and workers speak the same version, by letting it list their devices.

    An install that cannot list devices is believed.

    Raises:
        Failure: a worker does not answer, or speaks another version.
        NoInstallError: the install was built without RPC.
    """
    flags = {"--rpc", DEVICES_FLAG}
    able = [program.path for program in install.programs.values() if flags <= program.options.help.keys()]
    check_workers(addresses)
    if not able or not addresses:
        return
    words = [str(able[0]), "--rpc", ",".join(addresses), DEVICES_FLAG]
    completed, out, err = capture_program(words, timeout_s=_LISTING_S)
    if completed.returncode == 0:
        return
    names = " and ".join(addresses)
    if completed.timed_out:
        reason = f"{able[0].name} could not use {names} within {_LISTING_S:g} s"
        raise Failure(Status.WORKER_BUSY, reason)
    if _NO_RPC in out + err:
        raise NoInstallError(f"the llama.cpp in {install.root} was built without RPC", WITHOUT_RPC_HINT)
    diagnosis = parsing.diagnose(out + err)
    if diagnosis is not None and diagnosis.status in _OF_ANOTHER_VERSION:
        raise Failure(
            Status.WORKER_MISMATCH,
            f"the llama.cpp in {install.root} speaks another version of RPC than {names}: {diagnosis.line}",
        )


def read_worker(address: str, *, timeout_s: float = _ANSWER_S) -> WorkerReport:
    """Return what a worker says of itself.

    Raises:
        Failure: it cannot be used.
    """
    with _connect(address, timeout_s) as connection:
        return _read(address, connection)


def measure_worker(address: str) -> WorkerReport:
    """Return what a worker says of itself, with the round-trip time and the bandwidth of the network to it.

    Raises:
        Failure: it cannot be used.
    """
    with _connect(address, _ANSWER_S) as connection:
        report = _read(address, connection)
        rtt_s = statistics.median(_time(connection.count_devices) for _ in range(_ROUND_TRIPS))
        bytes_per_s = _measure_bandwidth(connection, rtt_s) if connection.can_send else None
        return replace(report, rtt_s=rtt_s, bytes_per_s=bytes_per_s)


def _read(address: str, connection: Connection) -> WorkerReport:
    count = connection.count_devices()
    devices = tuple(connection.read_memory(number) for number in range(count))
    return WorkerReport(address=address, version=connection.version, devices=devices)


def _measure_bandwidth(connection: Connection, rtt_s: float) -> float | None:
    """Return bytes/s; a transfer has three answers beside its data: two before it, and one after it."""
    rate = None
    for size in _BYTES:
        started_s = time.perf_counter()
        if not connection.send_bytes(size):
            break
        seconds = time.perf_counter() - started_s
        rate = size / (seconds - 3 * rtt_s) if seconds > 4 * rtt_s else None
        if seconds > _LONG_S:
            break
    return rate


def _time(action: Callable[[], object]) -> float:
    started_s = time.perf_counter()
    action()
    return time.perf_counter() - started_s


@contextmanager
def _connect(address: str, timeout_s: float) -> Iterator[Connection]:
    """Connect to a worker, to ask it something.

    Raises:
        Failure: it cannot be used.
    """
    host, port = split_address(address)
    try:
        with protocol.connect(host, port, timeout_s=timeout_s) as connection:
            _LOG.info("worker %s: protocol %s", address, connection.version)
            yield connection
    except protocol.ConnectError as error:
        reason = f"cannot connect to the worker {address}: {error}"
        raise Failure(Status.WORKER_UNREACHABLE, reason) from error
    except protocol.NoAnswerError as error:
        raise Failure(
            Status.WORKER_BUSY,
            f"the worker {address} did not answer within {math.ceil(timeout_s)} s: another program uses it, "
            "it is named twice, or a firewall is between",
        ) from error
    except protocol.ProtocolError as error:
        reason = f"{address} is not a worker, or one of another version: {error}"
        raise Failure(Status.WORKER_MISMATCH, reason) from error
