"""The input line: several lines, history, completion, and a status line below."""

from __future__ import annotations

import sys
import termios
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer, Completion, PathCompleter
from prompt_toolkit.document import Document
from prompt_toolkit.formatted_text import FormattedText
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.shortcuts import CompleteStyle
from prompt_toolkit.styles import Style

from ggufspec.console.commands import complete

_SAVE = "/save "
_PRIVATE = 0o600


class _Commands(Completer):
    """Completes slash commands, and the path behind /save."""

    def __init__(self) -> None:
        self._paths = PathCompleter(expanduser=True)

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        """Return completions for the word before the cursor."""
        text = document.text_before_cursor
        if text.startswith(_SAVE):
            yield from self._paths.get_completions(Document(text.removeprefix(_SAVE)), complete_event)
            return
        last = text.rpartition(" ")[2]
        for word, meaning in complete(text):
            yield Completion(word, start_position=-len(last), display_meta=meaning)


def prompt_session(history: Path, status: Callable[[], str]) -> PromptSession[str]:
    """Return the input prompt. Enter sends; Alt-Enter or a backslash at the end starts another line.

    Args:
        history: the file of earlier lines; only this user can read it.
        status: returns the text of the status line.
    """
    return PromptSession(
        history=_history(history),
        multiline=True,
        key_bindings=_keys(),
        completer=_Commands(),
        complete_while_typing=False,
        complete_style=CompleteStyle.READLINE_LIKE,
        prompt_continuation="· ",
        bottom_toolbar=lambda: FormattedText([("class:status", status())]),
        style=Style.from_dict({"bottom-toolbar": "noreverse", "status": "ansibrightblack"}),
    )


@contextmanager
def hide_typing() -> Iterator[None]:
    """Do not echo typed keys meanwhile; they appear in the next line. Ctrl-C works."""
    try:
        terminal = sys.stdin.fileno()
        before = termios.tcgetattr(terminal)
    except (termios.error, OSError, ValueError):  # not a terminal
        yield
        return
    silent = [*before]
    silent[3] &= ~termios.ECHO  # the local modes
    try:
        termios.tcsetattr(terminal, termios.TCSADRAIN, silent)
        yield
    finally:
        with suppress(termios.error):  # it was closed
            termios.tcsetattr(terminal, termios.TCSADRAIN, before)


def _history(path: Path) -> History:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch(mode=_PRIVATE)
        with path.open("ab"):
            return FileHistory(path)
    except OSError:  # the file cannot be written
        return InMemoryHistory()


def _keys() -> KeyBindings:
    keys = KeyBindings()

    @keys.add("enter")
    def _send(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if buffer.document.is_cursor_at_the_end and buffer.text.endswith("\\"):
            buffer.delete_before_cursor()
            buffer.insert_text("\n")
        else:
            buffer.validate_and_handle()

    @keys.add("escape", "enter")
    def _another_line(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    @keys.add("c-c")
    def _clear_line(event: KeyPressEvent) -> None:
        if event.current_buffer.text:
            event.current_buffer.reset()
        else:
            event.app.exit(exception=KeyboardInterrupt)

    return keys
