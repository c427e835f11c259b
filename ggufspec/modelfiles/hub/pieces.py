"""A file in pieces that several connections read at once, and that come in order.

Content hosts limit each connection, so that several are faster than one. Pieces are written in order: what is
on the disk is always the file's beginning, which can be hashed while it grows, and resumed by any program.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from itertools import islice
from queue import SimpleQueue

CONNECTIONS = 8  # for each file; other clients of content hosts take 6 to 16
PIECE_BYTES = 4 << 20  # at 1 MB/s a piece takes four seconds; an interruption loses some of these
_AHEAD = 2 * CONNECTIONS  # pieces that may wait in memory for an earlier one: 64 MiB
_WAIT_S = 0.1

Read = Callable[[int, int, threading.Event], bytes]


def read_in_order(read: Read, start: int, end: int, wait: Callable[[], None]) -> Iterator[bytes]:
    """Yield the bytes of a file, piece by piece.

    Args:
        read: returns the bytes from one place to another, on a connection of its own; ends by any error soon
            after the event is set.
        start: where to begin.
        end: where the file ends.
        wait: called several times a second while the next piece is on its way.
    """
    given_up = threading.Event()
    todo: SimpleQueue[tuple[int, Future[bytes]] | None] = SimpleQueue()
    # no executor: the interpreter waits for its threads at the end, and a connection may have stalled
    for _ in range(CONNECTIONS):
        threading.Thread(target=_work, args=(read, end, todo, given_up), daemon=True).start()
    ahead: deque[Future[bytes]] = deque()
    starts = iter(range(start, end, PIECE_BYTES))
    try:
        while True:
            for first in islice(starts, _AHEAD - len(ahead)):
                ahead.append(Future())
                todo.put((first, ahead[-1]))
            if not ahead:
                return
            yield _result(ahead.popleft(), wait)
    finally:
        given_up.set()
        for _ in range(CONNECTIONS):
            todo.put(None)


def _work(
    read: Read,
    end: int,
    todo: SimpleQueue[tuple[int, Future[bytes]] | None],
    given_up: threading.Event,
) -> None:
    while (asked := todo.get()) is not None and not given_up.is_set():
        first, piece = asked
        try:
            piece.set_result(read(first, min(first + PIECE_BYTES, end), given_up))
        except BaseException as error:  # noqa: BLE001 - raised again where the piece is wanted
            piece.set_exception(error)


def _result(piece: Future[bytes], wait: Callable[[], None]) -> bytes:
    while True:
        try:
            return piece.result(_WAIT_S)
        except TimeoutError:
            if piece.done():  # the error is the piece's own
                raise
            wait()
