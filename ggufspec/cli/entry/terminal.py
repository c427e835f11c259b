"""The sink of the command line: prints what a function says, draws its progress, and asks its questions."""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, TypeVar

import click

from ggufspec.cli.entry import verbosity
from ggufspec.cli.entry.output import echo_sentence, iterate_with_progress
from ggufspec.errors import ConsentNeededError
from ggufspec.steps import Sink, finish

if TYPE_CHECKING:
    from ggufspec.cli.entry.drawing import Drawing

E = TypeVar("E")
R = TypeVar("R")
T = TypeVar("T")


class Terminal(Sink):
    """What runs a command on the command line; with ``--quiet``, standard error is discarded anyway."""

    def __init__(self) -> None:
        level = verbosity.current(click.get_current_context())
        self.is_quiet = level.quiet

    def say(self, sentence: str) -> None:
        """Print a sentence on standard error."""
        echo_sentence(sentence, err=True)

    def show(self, event: object) -> None:
        """Print what was found."""
        from ggufspec.cli.entry import printing

        printing.print_found(event)

    def finish(self, steps: Generator[E, None, R]) -> R:
        """Run steps to their end with their progress: a bar on a terminal, otherwise lines."""
        drawing: Drawing | None = None
        with ExitStack() as stack:

            def draw(event: E) -> None:
                nonlocal drawing
                if drawing is None:  # of steps without an event there is nothing to draw
                    from ggufspec.cli.entry.drawing import drawing_of

                    drawing = stack.enter_context(drawing_of(event))
                drawing.show(event)

            return finish(steps, draw)

    def each(self, items: Sequence[T], name: Callable[[T], str]) -> Iterable[T]:
        """Return the items under a bar with the time left."""
        return iterate_with_progress(items, name)

    def agree(self, question: str, needs: str, *, can_undo: bool = False) -> None:
        """Ask whether to go on.

        Raises:
            ConsentNeededError: there is no terminal to ask on, or nothing may be printed.
            Abort: the answer is no.
        """
        self.refuse_unasked(needs)
        click.confirm(question, abort=True, err=True)

    def refuse_unasked(self, needs: str) -> None:
        """Refuse what needs consent where nobody can be asked.

        Raises:
            ConsentNeededError: there is no terminal to ask on, or nothing may be printed.
        """
        if self.is_quiet or not sys.stdin.isatty():
            reason = "; --quiet does not ask" if self.is_quiet else ""
            raise ConsentNeededError(f"{needs} needs confirmation{reason}", "add --yes")
