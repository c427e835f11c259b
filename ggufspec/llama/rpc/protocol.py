"""llama.cpp's RPC protocol, as far as a worker's versions, devices, memory and network are asked for by it.

A request is one byte for the command, the size of its data in eight bytes, and the data; an answer is the
size and the data. Everything is little-endian (ggml/src/ggml-rpc/ggml-rpc.cpp of release 0.3.36, protocol 7).
The first request is HELLO, whose number never changes. Its data are empty before protocol 4.
"""

from __future__ import annotations

import socket
import struct
import time
from contextlib import suppress
from typing import NamedTuple, Self

_ALLOC_BUFFER = 0
_BUFFER_GET_BASE = 3
_FREE_BUFFER = 4
_SET_TENSOR = 6
_GET_DEVICE_MEMORY = 11
_HELLO = 14
_DEVICE_COUNT = 15
_HELLO_BYTES = (24, 0)  # of the capabilities of a connection, the newest protocol first
_FIRST_SEVERAL_DEVICES = 3  # protocol; before, a worker has one, which requests do not name
_KNOWN_TENSORS = 7  # the protocol whose description of a tensor is the one below
_INT8 = 24  # ggml's number of the type
_MOST_ANSWER_BYTES = 1 << 16
_MOST_DEVICES = 1 << 10
_SOCKET_BYTES = 1 << 20
_AT_ONCE = struct.pack("ii", 1, 0)  # of SO_LINGER: close at once, and say so to the other side

# id, type, buffer, ne[4], nb[4], op, op_params[16], flags, src[10], view_src, view_offs, data, name,
# use_count
_TENSOR = struct.Struct("<QIQ4I4II16ii10QQQQ64si")


class ProtocolVersion(NamedTuple):
    """The version of the protocol. Client and worker need the same first number."""

    major: int
    minor: int
    patch: int

    def __str__(self) -> str:
        return ".".join(map(str, self))


class DeviceMemory(NamedTuple):
    """The memory of one of a worker's devices, in bytes."""

    free_bytes: int
    total_bytes: int


class ConnectError(Exception):
    """There is no connection: nothing listens there, or the address is not known."""


class NoAnswerError(Exception):
    """A connection or an answer did not come in time."""


class ProtocolError(Exception):
    """The other side closed the connection, or does not answer as a worker does."""


class Connection:
    """A connection to a worker, which serves no other client until it is closed.

    Attributes:
        version: of the worker's protocol.
    """

    def __init__(self, stream: socket.socket, *, hello_bytes: int, timeout_s: float) -> None:
        """Greet the worker; see ``connect``."""
        self._stream = stream
        self._timeout_s = timeout_s
        answer = self._ask(_HELLO, bytes(hello_bytes))
        if len(answer) < len(ProtocolVersion._fields):
            raise ProtocolError("its greeting is too short")
        self.version = ProtocolVersion(*answer[:3])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, error: object, *_: object) -> None:
        if error is None:
            self._stream.close()
        else:
            _abandon(self._stream)

    def count_devices(self) -> int:
        """Return how many devices the worker lends: one round trip.

        Raises:
            NoAnswerError, ProtocolError: an answer is late or wrong, or the connection broke.
        """
        if self.version.major < _FIRST_SEVERAL_DEVICES:
            self.read_memory(0)
            return 1
        (count,) = self._ask_for("<I", _DEVICE_COUNT)
        if not 0 < count <= _MOST_DEVICES:
            raise ProtocolError(f"it lends {count} devices")
        return count

    def read_memory(self, device: int) -> DeviceMemory:
        """Return the memory of a device, counted from 0.

        Raises:
            NoAnswerError, ProtocolError: as for ``count_devices``.
        """
        names_device = self.version.major >= _FIRST_SEVERAL_DEVICES
        data = struct.pack("<I", device) if names_device else b""
        return DeviceMemory(*self._ask_for("<QQ", _GET_DEVICE_MEMORY, data))

    @property
    def can_send(self) -> bool:
        """Whether ``send_bytes`` knows this version."""
        return self.version.major == _KNOWN_TENSORS

    def send_bytes(self, size: int) -> bool:
        """Send so many bytes into the memory of the first device, and wait until they are there.

        Returns:
            whether the device had room for them.

        Raises:
            NoAnswerError, ProtocolError: as for ``count_devices``.
        """
        assert self.can_send
        pointer, got = self._ask_for("<QQ", _ALLOC_BUFFER, struct.pack("<IQ", 0, size))
        if not pointer or got < size:
            return False
        (base,) = self._ask_for("<Q", _BUFFER_GET_BASE, struct.pack("<Q", pointer))
        sizes = (size, 1, 1, 1, 1, size, size, size)
        tensor = _TENSOR.pack(0, _INT8, pointer, *sizes, 0, *[0] * 16, 0, *[0] * 10, 0, 0, base, b"", 0)
        cached, offset = b"\0", bytes(8)
        self._send(_SET_TENSOR, tensor + cached + offset + bytes(size))  # which is not answered
        self._send(_FREE_BUFFER, struct.pack("<Q", pointer))  # neither is this
        self.count_devices()
        return True

    def _ask_for(self, layout: str, command: int, data: bytes = b"") -> tuple[int, ...]:
        """Return the numbers of an answer."""
        answer = self._ask(command, data)
        if len(answer) != struct.calcsize(layout):
            raise ProtocolError("its answer has another length")
        return struct.unpack(layout, answer)

    def _ask(self, command: int, data: bytes = b"") -> bytes:
        self._send(command, data)
        deadline = time.monotonic() + self._timeout_s
        (size,) = struct.unpack("<Q", self._read(8, deadline))
        if size > _MOST_ANSWER_BYTES:
            raise ProtocolError("it does not answer as a worker does")
        return self._read(size, deadline)

    def _send(self, command: int, data: bytes) -> None:
        self._stream.settimeout(self._timeout_s)
        try:
            self._stream.sendall(struct.pack("<BQ", command, len(data)) + data)
        except TimeoutError as error:
            raise NoAnswerError from error
        except OSError as error:
            raise ProtocolError("it closed the connection") from error

    def _read(self, size: int, deadline: float) -> bytes:
        """Return so many bytes; the deadline is for all of them."""
        data = bytearray()
        while len(data) < size:
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                raise NoAnswerError
            self._stream.settimeout(left_s)
            try:
                part = self._stream.recv(min(size - len(data), _SOCKET_BYTES))
            except TimeoutError as error:
                raise NoAnswerError from error
            except OSError:
                part = b""
            if not part:
                raise ProtocolError("it closed the connection")
            data += part
        return bytes(data)


def connect(host: str, port: int, *, timeout_s: float) -> Connection:
    """Connect to a worker and greet it, in the way of its protocol.

    A worker closes the connection where the size of a greeting is not its own.

    Args:
        host: its name or IPv4 address; llama.cpp knows no other.
        port: its port.
        timeout_s: the longest time for the connection, and for each answer.

    Raises:
        ConnectError: nothing listens there.
        NoAnswerError: it does not answer.
        ProtocolError: it answers in another way, or closed the connection.
    """
    newest, oldest = _HELLO_BYTES
    with suppress(ProtocolError):
        return _connect(host, port, newest, timeout_s)
    return _connect(host, port, oldest, timeout_s)


def _connect(host: str, port: int, hello_bytes: int, timeout_s: float) -> Connection:
    stream = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        stream.settimeout(timeout_s)
        try:
            stream.connect((host, port))
        except TimeoutError as error:
            raise NoAnswerError from error
        except OSError as error:
            raise ConnectError(error.strerror or str(error)) from error
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # as llama.cpp does
        return Connection(stream, hello_bytes=hello_bytes, timeout_s=timeout_s)
    except BaseException:
        _abandon(stream)
        raise


def _abandon(stream: socket.socket) -> None:
    """Close a connection that the worker has not read yet, so that it does not answer.

    llama.cpp's worker dies of SIGPIPE where it writes a second time to a connection that was closed.
    """
    stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _AT_ONCE)
    stream.close()
