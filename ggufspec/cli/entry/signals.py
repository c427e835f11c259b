"""Signals that end a command like Ctrl-C: results are printed, child processes and files are removed."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

SIGNALLED = 128
"""Plus the signal's number: the exit code of a command that was ended by a signal, as in shells."""
_ENDING = (signal.SIGTERM, signal.SIGHUP)
_WAKING = signal.SIGURG  # no other program sends it


@contextmanager
def exit_on_signals() -> Iterator[list[int]]:
    """Let SIGTERM, and SIGHUP unless it is ignored (nohup), raise SystemExit in the main thread.

    Yields the received signals. Only the first one raises, so that no other interrupts the clean-up: a
    closing terminal or session sends several at once.
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

    The kernel delivers a signal to any thread that does not block it, and of two simultaneous signals often
    both to another thread, such as numpy's. Python runs handlers only in the main thread, which may be
    waiting for a server's answer, for up to an hour.
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
