"""A slow network: a proxy on loopback with a delay and a rate, which counts."""

from __future__ import annotations

import queue
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Literal

Direction = Literal["up", "down"]  # from the client, to the client

_CHUNK = 1 << 16


@dataclass(kw_only=True)
class Network:
    """A proxy that listens on loopback, and what passed through it.

    Attributes:
        port: where it listens.
        up_bytes: from clients.
        down_bytes: to clients.
        round_trips: how often something came back after something had been sent.
    """

    port: int
    up_bytes: int = 0
    down_bytes: int = 0
    round_trips: int = 0
    _last: Direction = "down"
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def reset(self) -> None:
        """Count from 0 again."""
        with self._lock:
            self.up_bytes = self.down_bytes = self.round_trips = 0

    def count(self, direction: Direction, size: int) -> None:
        """Count data that arrived."""
        with self._lock:
            if direction == "up":
                self.up_bytes += size
            else:
                self.down_bytes += size
                self.round_trips += self._last == "up"
            self._last = direction


@contextmanager
def slow_network(to: str, *, delay_s: float = 0.0, bytes_per_s: float | None = None) -> Iterator[Network]:
    """Pass connections on to an address, with a delay in each direction.

    Data that follow each other at once are delayed together, as on a line: a delay is not paid per chunk.

    Args:
        to: HOST:PORT.
        delay_s: one way; a round trip takes twice as long.
        bytes_per_s: of each connection and direction; None for no limit.
    """
    host, _, port = to.rpartition(":")
    sockets: list[socket.socket] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        network = Network(port=listener.getsockname()[1])

        def accept() -> None:
            with suppress(OSError):
                while True:
                    client, _ = listener.accept()
                    try:
                        server = socket.create_connection((host, int(port)), timeout=10)
                    except OSError:
                        client.close()
                        continue
                    server.settimeout(None)
                    sockets.extend((client, server))
                    for stream in (client, server):
                        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    for source, sink, direction in ((client, server, "up"), (server, client, "down")):
                        _pass_on(source, sink, direction)

        def _pass_on(source: socket.socket, sink: socket.socket, direction: str) -> None:
            line: queue.SimpleQueue[tuple[float, bytes]] = queue.SimpleQueue()

            def read() -> None:
                free_s = 0.0  # when the line can take more
                while True:
                    try:
                        data = source.recv(_CHUNK)
                    except OSError:
                        data = b""
                    now_s = time.monotonic()
                    network.count("up" if direction == "up" else "down", len(data)) if data else None
                    free_s = max(free_s, now_s) + (len(data) / bytes_per_s if bytes_per_s else 0.0)
                    line.put((free_s + delay_s, data))
                    if not data:
                        return

            def write() -> None:
                with suppress(OSError):
                    while True:
                        due_s, data = line.get()
                        time.sleep(max(0.0, due_s - time.monotonic()))
                        if not data:
                            sink.shutdown(socket.SHUT_WR)
                            return
                        sink.sendall(data)

            for action in (read, write):
                threading.Thread(target=action, daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        try:
            yield network
        finally:
            for stream in (listener, *sockets):
                with suppress(OSError):
                    stream.shutdown(socket.SHUT_RDWR)
                stream.close()
