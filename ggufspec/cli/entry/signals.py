"""Signals that end a command as Ctrl-C does: what was measured is printed, children and files are removed."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

SIGNALLED = 128
"""And the signal's number: the exit code of a command that a signal ended, as shells give it."""
_ENDING = (signal.SIGTERM, signal.SIGHUP)
_WAKING = signal.SIGURG  # nobody else sends it to us


@contextmanager
def ending() -> Iterator[list[int]]:
    """Let SIGTERM, and SIGHUP unless it is ignored (nohup), raise SystemExit in the main thread.

    Yields the signals that arrive; only the first one raises, so that nothing interrupts the winding up. A
    terminal or a session that closes sends several at once.
    """
    received: list[int] = []

    def end(number: int, frame: FrameType | None) -> None:
        received.append(number)
        if len(received) == 1:
            sys.exit(SIGNALLED + number)

    handlers = {number: signal.getsignal(number) for number in (*_ENDING, _WAKING)}
    for number in _ENDING:
        if handlers[number] is not signal.SIG_IGN:
            signal.signal(number, end)
    signal.signal(_WAKING, lambda *_: None)
    try:
        with _awake():
            yield received
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


@contextmanager
def _awake() -> Iterator[None]:
    """Wake the main thread whenever a signal arrives.

    The kernel gives a signal to any thread that does not block it, and of two signals at once it often gives
    both to another thread, such as those of numpy's library. Python runs handlers in the main thread alone,
    and that one goes on waiting: for a server's answer, up to an hour.
    """
    main = threading.main_thread().ident
    assert main is not None
    arrivals, notes = os.pipe()
    os.set_blocking(notes, False)

    def wake() -> None:
        while numbers := os.read(arrivals, 64):
            if any(number != _WAKING for number in numbers):
                signal.pthread_kill(main, _WAKING)

    waker = threading.Thread(target=wake, daemon=True)
    waker.start()
    previous = signal.set_wakeup_fd(notes, warn_on_full_buffer=False)
    try:
        yield
    finally:
        signal.set_wakeup_fd(previous)
        os.close(notes)
        waker.join()
        os.close(arrivals)
