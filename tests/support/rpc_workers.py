"""Workers that lend nothing: they speak llama.cpp's RPC protocol as far as ggufspec does."""

from __future__ import annotations

import shlex
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

MIB = 1 << 20
_ALLOC_BUFFER, _BUFFER_GET_BASE, _FREE_BUFFER, _SET_TENSOR = 0, 3, 4, 6
_GET_DEVICE_MEMORY, _HELLO, _DEVICE_COUNT = 11, 14, 15
_TENSOR_BYTES = 296  # of rpc_tensor in protocol 7
_POINTER, _BASE = 0x1000, 0x2000


@dataclass(kw_only=True)
class FakeWorker:
    """A worker on loopback; ``commands`` are what clients asked, ``received_bytes`` their data."""

    address: str = ""
    commands: list[int] = field(default_factory=list)
    received_bytes: int = 0


@contextmanager
def worker(
    *,
    version: tuple[int, int, int] = (7, 0, 0),
    devices: Sequence[tuple[int, int]] = ((6000 * MIB, 8000 * MIB),),
    room_bytes: int = 1 << 30,
) -> Iterator[FakeWorker]:
    """Run a worker with devices of so much free and total memory in bytes.

    Args:
        version: of the protocol; before 4, a greeting has no data.
        devices: the free and the total memory of each.
        room_bytes: the largest buffer that it allocates.
    """
    fake = FakeWorker()

    def answer(client: socket.socket) -> None:
        with suppress(EOFError):
            _serve(client, fake, version, devices, room_bytes)

    with answering(answer) as fake.address:
        yield fake


HELP = """\
Usage: ggml-rpc-server [options]

options:
  -h, --help                       show this help message and exit
  -t, --threads N                  number of threads for the CPU device (default: 1)
  -d, --device <dev1,dev2,...>     comma-separated list of devices
  -H, --host HOST                  host to bind to (default: 127.0.0.1)
  -p, --port PORT                  port to bind to (default: 50052)
  -c, --cache                      enable local file cache
"""
"""What the program of 0.3.36 prints, by its source."""


def program(path: Path, *, then: str = "", help_text: str = HELP) -> Path:
    """Write a program that lends two devices, and notes its arguments in ``worker-args`` beside it.

    Args:
        path: where.
        then: shell commands before it listens.
        help_text: what it prints for --help, on standard error.
    """
    words = [sys.executable, "-S", "-E", __file__]
    path.write_text(
        f"""#!/bin/sh
case "$1" in --help) printf %s {shlex.quote(help_text)} >&2; exit 0;; esac
echo "$@" > {shlex.quote(str(path.with_name("worker-args")))}
{then}
exec {shlex.join(words)} "$@"
"""
    )
    path.chmod(0o755)
    return path


def _run(host: str, port: int) -> None:
    """Be the program: like llama.cpp's, it prints nothing before its first client."""
    devices = ((6000 * MIB, 8000 * MIB), (3000 * MIB, 4000 * MIB))
    said = False
    with socket.create_server((host, port)) as listener:
        while True:
            client, _ = listener.accept()
            if not said:
                said = True
                sys.stdout.write(
                    f"Starting RPC server v7.0.0\n  endpoint       : {host}:{port}\nDevices:\n"
                    "  CUDA0: NVIDIA A (8000 MiB, 6000 MiB free)\n"
                    "  CPU: A Processor (4000 MiB, 3000 MiB free)\n"
                )
            sys.stdout.write("Accepted client connection\n")
            sys.stdout.flush()
            with client, suppress(OSError, EOFError):
                _serve(client, FakeWorker(), (7, 0, 0), devices, 1 << 30)
            sys.stdout.write("Client connection closed\n")
            sys.stdout.flush()


@contextmanager
def busy_worker() -> Iterator[str]:
    """Listen and never greet anybody, as a worker does that serves another client; yield its address."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"127.0.0.1:{listener.getsockname()[1]}"


@contextmanager
def stranger() -> Iterator[str]:
    """Answer each connection with a line of text; yield the address."""

    def answer(client: socket.socket) -> None:
        client.sendall(b"SSH-2.0-OpenSSH_9.6\r\n")
        client.recv(64)

    with answering(answer) as address:
        yield address


@contextmanager
def slow_answers() -> Iterator[str]:
    """Begin an answer, and go on with a byte now and then, without end; yield the address."""

    def answer(client: socket.socket) -> None:
        client.sendall(struct.pack("<Q", 1 << 16))
        while True:
            client.sendall(b"\0")
            time.sleep(0.02)

    with answering(answer) as address:
        yield address


@contextmanager
def answering(answer: Callable[[socket.socket], None]) -> Iterator[str]:
    """Answer one connection after another; yield the address."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            with suppress(OSError):
                while True:
                    client, _ = listener.accept()
                    with client, suppress(OSError):
                        answer(client)

        threading.Thread(target=serve, daemon=True).start()
        try:
            yield f"127.0.0.1:{listener.getsockname()[1]}"
        finally:
            with suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)


def nobody() -> str:
    """Return an address at which nothing listens."""
    return f"127.0.0.1:{free_port()}"


def free_port() -> int:
    """Return a port of loopback on which nothing listens."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def _serve(
    client: socket.socket,
    fake: FakeWorker,
    version: tuple[int, int, int],
    devices: Sequence[tuple[int, int]],
    room_bytes: int,
) -> None:
    hello_bytes = 0 if version[0] < 4 else 24
    greeted = False
    while True:
        command, size = struct.unpack("<BQ", _read(client, 9))
        data = _read(client, size)
        fake.commands.append(command)
        if command == _HELLO and size == hello_bytes and not greeted:
            greeted = True
            _answer(client, bytes(version) + (b"" if version[0] < 4 else bytes(25)))
        elif command == _DEVICE_COUNT and version[0] >= 3:
            _answer(client, struct.pack("<I", len(devices)))
        elif command == _GET_DEVICE_MEMORY and size == (4 if version[0] >= 3 else 0):
            number = struct.unpack("<I", data)[0] if data else 0
            _answer(client, struct.pack("<QQ", *devices[number]))
        elif command == _ALLOC_BUFFER:
            _, wanted = struct.unpack("<IQ", data)
            has_room = wanted <= room_bytes
            _answer(client, struct.pack("<QQ", _POINTER if has_room else 0, wanted if has_room else 0))
        elif command == _BUFFER_GET_BASE:
            assert struct.unpack("<Q", data) == (_POINTER,)
            _answer(client, struct.pack("<Q", _BASE))
        elif command == _SET_TENSOR:
            assert struct.unpack_from("<Q", data, 12) == (_POINTER,)  # after id and type
            fake.received_bytes += size - _TENSOR_BYTES - 9  # a flag and an offset
        elif command != _FREE_BUFFER:
            return  # as llama.cpp does with what it does not understand


def _answer(client: socket.socket, data: bytes) -> None:
    client.sendall(struct.pack("<Q", len(data)) + data)


def _read(client: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        part = client.recv(min(1 << 20, size - len(data)))
        if not part:
            raise EOFError
        data += part
    return bytes(data)


if __name__ == "__main__":
    _words = dict(zip(sys.argv[1::2], sys.argv[2::2], strict=False))
    _run(_words["--host"], int(_words["--port"]))
