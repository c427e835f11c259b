"""Start a worker on this machine with llama.cpp's own program, and watch it."""

from __future__ import annotations

import ipaddress
import re
import socket
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ggufspec import proc, temporary
from ggufspec.domain import Failure
from ggufspec.errors import GgufspecError, NoInstallError, WorkerError
from ggufspec.llama.command.flags import Arguments
from ggufspec.llama.install.environment import capture_program, program_environment
from ggufspec.llama.install.installs import WITHOUT_RPC_HINT, Executable, Install
from ggufspec.llama.install.options import parse_help
from ggufspec.llama.logs.lines import LogTail
from ggufspec.llama.rpc import workers
from ggufspec.llama.rpc.workers import WorkerReport

_START_S = 60.0  # for its devices to be initialised
_POLL_S = 0.1
_ANYWHERE = {"0.0.0.0"}  # noqa: S104  # compared with, not bound to
_DEVICE = re.compile(r"^  (\S+): (.*) \(\d+ MiB, \d+ MiB free\)$", re.MULTILINE)
_REASON = re.compile(r"error|fail|invalid|abort|assert", re.IGNORECASE)
_IGNORING_SIGPIPE = ("/bin/sh", "-c", "trap '' PIPE; exec \"$@\"", "sh")
"""A worker would end where it answers a program that was killed; with this, it waits for the next one."""


@dataclass(frozen=True, kw_only=True)
class WorkerSettings:
    """How to run a worker.

    Attributes:
        host: the address to listen on.
        port: the port to listen on.
        threads: of a processor that it lends.
        devices: to lend; by default all GPUs, or the processor where there is none.
        cache: keep large tensors on the disk, so that a model is not sent again at every load.
    """

    host: str = "127.0.0.1"
    port: int = workers.DEFAULT_PORT
    threads: int
    devices: tuple[str, ...] = ()
    cache: bool = False

    @property
    def is_local(self) -> bool:
        """Whether only this machine can reach it."""
        return self.host.startswith("127.")

    @property
    def own_address(self) -> str:
        """The address at which this machine reaches it."""
        return f"{'127.0.0.1' if self.host in _ANYWHERE else self.host}:{self.port}"


@dataclass(kw_only=True)
class RunningWorker:
    """A worker that answers; see ``start_worker``.

    Attributes:
        report: what it says of itself.
        devices: the names of what it lends, such as ``CUDA0: NVIDIA H200``; empty where it does not say them.
    """

    report: WorkerReport
    devices: tuple[str, ...]
    _tail: LogTail
    _poll: Callable[[], int | None]

    def watch(self) -> Generator[str, None, None]:
        """Yield the lines that it prints, until it ends.

        Raises:
            WorkerError: it ended.
        """
        rest = b""
        while True:
            returncode = self._poll()
            *lines, rest = (rest + self._tail.read()).split(b"\n")
            yield from (line.decode(errors="replace") for line in lines)
            if returncode is not None:
                yield from filter(None, [rest.decode(errors="replace")])
                raise _ended(self._tail.log, returncode)
            time.sleep(_POLL_S)


def worker_argv(install: Install, settings: WorkerSettings) -> tuple[str, ...]:
    """Return the command of a worker.

    Raises:
        NoInstallError: the install has no program for it.
        GgufspecError: the program lacks a flag.
    """
    if install.worker is None:
        raise NoInstallError(f"the llama.cpp in {install.root} has no ggml-rpc-server", WITHOUT_RPC_HINT)
    _, out, err = capture_program([str(install.worker), "--help"])
    worker = Executable(path=install.worker, options=parse_help(out + err, plain=False))
    arguments = Arguments(worker, install)
    arguments.require_flags(host=settings.host, port=settings.port, threads=settings.threads)
    arguments.require_flags(devices=settings.devices, cache=settings.cache)
    return arguments.to_argv()


@contextmanager
def start_worker(install: Install, settings: WorkerSettings) -> Iterator[RunningWorker]:
    """Start a worker, and yield it when it answers; it ends with the context, or with this process.

    Raises:
        NoInstallError, GgufspecError: as for ``worker_argv``, or the port is in use.
        WorkerError: it ended, or did not answer in time.
    """
    argv = worker_argv(install, settings)
    _check_port(settings)
    with temporary.folder() as folder:
        home, log = Path(folder) / "home", Path(folder) / "worker.log"
        home.mkdir()
        with (
            log.open("wb") as file,
            proc.spawn(
                (*_IGNORING_SIGPIPE, *argv), stdout=file, stderr=file, env=program_environment(home), cwd=home
            ) as child,
        ):
            report = _await_answer(settings.own_address, log, child.poll)
            tail = LogTail(log=log)
            devices = tuple(map(": ".join, _DEVICE.findall(tail.read().decode(errors="replace"))))
            yield RunningWorker(
                report=report,
                devices=devices if len(devices) == len(report.devices) else (),
                _tail=tail,
                _poll=child.poll,
            )


def _await_answer(address: str, log: Path, poll: Callable[[], int | None]) -> WorkerReport:
    """Wait until a worker answers; it prints nothing before its first client.

    Raises:
        WorkerError: it ended, or did not answer in time.
    """
    deadline = time.monotonic() + _START_S
    while True:
        returncode = poll()
        if returncode is not None:
            raise _ended(log, returncode)
        try:
            return workers.read_worker(address, timeout_s=1.0)
        except Failure as problem:
            if time.monotonic() > deadline:
                raise workers.failure_error(problem) from problem
        time.sleep(_POLL_S)


def _check_port(settings: WorkerSettings) -> None:
    """Make sure that the port is free: the program ends without an exit code that says so.

    Raises:
        GgufspecError: another program has it, or the address is not an IPv4 address of this machine.
    """
    try:
        ipaddress.IPv4Address(settings.host)
    except ValueError as error:
        raise GgufspecError(
            f"llama.cpp's worker cannot listen on {settings.host!r}",
            "--host takes an IPv4 address of this machine, such as 127.0.0.1",
        ) from error
    try:
        with socket.socket() as holder:
            holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            holder.bind((settings.host, settings.port))
    except OSError as error:
        raise GgufspecError(
            f"a worker cannot listen on {settings.host}:{settings.port}: {error.strerror or error}",
            "choose another --port, and an address of this machine for --host",
        ) from error


def _ended(log: Path, returncode: int) -> WorkerError:
    """Return the error for a worker that ended, with the last line that may say why."""
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    reasons = [line.strip() for line in lines if _REASON.search(line)]
    ending = proc.signal_name(-returncode) if returncode < 0 else f"exit code {returncode}"
    message = f"the worker ended ({ending})" + (f": {reasons[-1]}" if reasons else "")
    return WorkerError(message, "start it again; if memory ran out, with a smaller model or other devices")
