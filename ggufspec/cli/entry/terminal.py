"""The sink of the command line: prints what a function says, draws its progress, and asks its questions."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, TypeVar

import click

from ggufspec.cli.entry import verbosity
from ggufspec.cli.entry.output import echo_sentence, iterate_with_progress
from ggufspec.errors import ConsentNeededError
from ggufspec.steps import Sink, finish

if TYPE_CHECKING:
    from ggufspec.results import ResultSet

E = TypeVar("E")
R = TypeVar("R")
T = TypeVar("T")


READ_AS = "ggufspec.read_as"
"""The key of click's context for the command line that a pasted command was read as."""
_LONGEST_START_S = 5.0  # of the interpreter; an older process runs other things beside this command


class Terminal(Sink):
    """What runs a command on the command line; with ``--quiet``, standard error is discarded anyway.

    Args:
        describe_ended: prints what was measured of a bench that ended early, and returns a sentence about how
            to go on; None where the command says that.
    """

    def __init__(self, describe_ended: Callable[[ResultSet], str] | None = None) -> None:
        context = click.get_current_context(silent=True)
        level = verbosity.Verbosity() if context is None else verbosity.current(context)
        self.is_quiet = level.quiet
        self.begun_s = _find_start(level.begun_s)
        self.describe_ended = describe_ended
        self.build_seconds: dict[str, float] = {}  # of each step
        self._shown: dict[type, object] = {}

    def say(self, sentence: str) -> None:
        """Print a sentence on standard error."""
        echo_sentence(sentence)

    def show(self, event: object) -> None:
        """Print what was found, and keep the last of each kind."""
        from ggufspec.cli.entry import printing

        self._shown[type(event)] = event
        printing.print_found(event)

    def last(self, kind: type[T]) -> T | None:
        """Return the last value of a kind that was shown; None without one."""
        shown = self._shown.get(kind)
        return shown if isinstance(shown, kind) else None

    def finish(self, steps: Generator[E, None, R]) -> R:
        """Run steps to their end with their progress: a bar on a terminal, otherwise lines."""
        draw: Callable[[E], None] | None = None
        with ExitStack() as stack:

            def show(event: E) -> None:
                nonlocal draw
                if draw is None:  # of steps without an event there is nothing to draw
                    from ggufspec.cli.entry.drawing import drawing_of

                    draw = stack.enter_context(drawing_of(event, self))
                draw(event)

            return finish(steps, show)

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

    def command(self, function: str, asked: object) -> tuple[str, ...]:
        """Return the command line of this process, without a token."""
        return words_of_process()


def words_of_process() -> tuple[str, ...]:
    """Return this program's command line as text, without a token; bytes that are not UTF-8 are replaced.

    Of a pasted command, it is what it was read as: its own text may hold secrets.
    """
    context = click.get_current_context(silent=True)
    if context is not None and READ_AS in context.meta:
        read_as: tuple[str, ...] = context.meta[READ_AS]
        return read_as
    from ggufspec import redaction  # `--help` starts faster without it

    words = redaction.without_token_option(sys.argv)
    return tuple(os.fsencode(word).decode(errors="replace") for word in words)


def _find_start(begun_s: float) -> float:
    """Return when this process began, or the command where that is older."""
    from ggufspec import proc  # `--help` starts faster without it

    age_s = proc.process_age_s()
    started_s = begun_s if age_s is None else time.monotonic() - age_s
    return started_s if 0 <= begun_s - started_s <= _LONGEST_START_S else begun_s
