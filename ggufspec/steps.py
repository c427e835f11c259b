"""Long pieces of work are generators that yield their progress: the one loop that runs them to their end."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import closing
from typing import TypeVar

E = TypeVar("E")
A = TypeVar("A")
R = TypeVar("R")


def finish(steps: Generator[E, A | None, R], answer: Callable[[E], A | None] = lambda event: None) -> R:
    """Run steps to their end, and return what they return.

    Args:
        steps: yields its progress, or what it needs to be done next.
        answer: shows each event, or does what it asks for; the generator gets what it returns.
    """
    reply: A | None = None
    with closing(steps):  # an error of ``answer`` ends the work, too: it may hold processes and locks
        while True:
            try:
                event = steps.send(reply)
            except StopIteration as end:
                result: R = end.value
                return result
            reply = answer(event)
