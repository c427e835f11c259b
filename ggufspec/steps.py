"""Long pieces of work are generators that yield their progress; a sink gets it, and what functions say."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import closing
from enum import StrEnum
from typing import NamedTuple, TypeVar

from ggufspec.errors import ConsentNeededError

E = TypeVar("E")
A = TypeVar("A")
R = TypeVar("R")
T = TypeVar("T")


class Sink:
    """What a function says while it works, and what it asks. This one is for notebooks: it shows nothing.

    The command line has one that prints, draws progress and asks.

    Attributes:
        begun_s: when a time limit began, by the monotonic clock; None for when the function is called.
    """

    begun_s: float | None = None

    def say(self, sentence: str) -> None:
        """Take a sentence about what was chosen or is done next."""

    def show(self, event: object) -> None:
        """Take something that was found, or the progress of what ``finish`` runs."""

    def finish(self, steps: Generator[E, None, R]) -> R:
        """Run steps to their end, show each event, and return what they return."""
        return finish(steps, self.show)

    def each(self, items: Sequence[T], name: Callable[[T], str]) -> Iterable[T]:
        """Return the items, one after the other; ``name`` says which one takes its time."""
        return items

    def agree(self, question: str, needs: str, *, can_undo: bool = False) -> None:
        """Ask whether to go on. A call from Python agrees to what can be undone, such as a download.

        Args:
            question: for a person.
            needs: what needs the consent, where nobody can be asked.
            can_undo: whether nothing is lost by it.

        Raises:
            ConsentNeededError: there is nobody to ask.
        """
        if not can_undo:
            self.refuse_unasked(needs)

    def refuse_unasked(self, needs: str) -> None:
        """Refuse something early for which there will be nobody to ask.

        Raises:
            ConsentNeededError: there is nobody.
        """
        raise ConsentNeededError(f"{needs} needs confirmation", "add yes=True")

    def command(self, function: str, asked: object) -> tuple[str, ...]:
        """Return what is stored with results as the command that made them."""
        return (f"ggufspec.{function}", repr(asked))


SILENT = Sink()
"""The sink of a call that names none."""


def relay(steps: Generator[E, None, R], change: Callable[[E], T]) -> Generator[T, None, R]:
    """Yield what a function makes of each event of some steps, and return what they return."""
    with closing(steps):
        while True:
            try:
                event = next(steps)
            except StopIteration as end:
                result: R = end.value
                return result
            yield change(event)


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


class BuildStep(StrEnum):
    """The steps from a version's name to programs that run, and those of a conversion."""

    WAIT = "wait"
    FETCH = "fetch"
    UNPACK = "unpack"
    CONFIGURE = "configure"
    COMPILE = "compile"
    TEST = "test"
    INSTALL = "install"
    CONVERT = "convert"


class BuildProgress(NamedTuple):
    """How far a step has come; ``total`` is None where it is not known, and units are the step's own.

    ``notice`` marks the few lines that a user should read even where no progress is shown.
    """

    step: BuildStep
    done: int = 0
    total: int | None = None
    line: str = ""
    notice: bool = False
