"""The console on a terminal: reads lines, with history, completion and a status line; shows answers."""

from __future__ import annotations

import sys
import termios
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer, Completion, PathCompleter
from prompt_toolkit.document import Document
from prompt_toolkit.formatted_text import FormattedText
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.shortcuts import CompleteStyle
from prompt_toolkit.styles import Style
from rich.console import Console
from rich.text import Text

from ggufspec.console import views
from ggufspec.console.commands import Action, ChangeSetting, Command, Compare, Save, Say, complete, parse_line
from ggufspec.console.conversation import ChatAnswer, figures, progress, read_answer
from ggufspec.console.talk import Talk
from ggufspec.domain import Failure, Role, Status
from ggufspec.engines.server import AnswerEnd, Stream
from ggufspec.errors import GgufspecError
from ggufspec.harmless import harmless, one_line
from ggufspec.modelfiles import catalog

_SAVE = "/save "
_PRIVATE = 0o600
_EXAMPLE = "Story: Mira and the brass lantern"


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


class ChatTerminal:
    """A chat on a terminal."""

    def __init__(self, talk: Talk, *, history: Path) -> None:
        self._talk = talk
        self._console = Console(highlight=False)
        self._session: PromptSession[str] = prompt_session(history, self._status)
        self._saved: set[Path] = set()  # files of this chat, which may be overwritten

    def run(self) -> None:
        """Load the models, and answer until the user leaves.

        Raises:
            Failure: the models do not load at the start.
        """
        self._print_welcome()
        with hide_typing():
            self._load()
        notice, leaving, working = "", False, False
        while True:
            try:
                if notice:
                    self._print_note(notice)
                notice, working = "", False
                line = self._session.prompt("› ")
                leaving, working = False, True
                command = parse_line(line)
                if command is Action.QUIT:
                    return
                with hide_typing():
                    self._execute(command)
            except KeyboardInterrupt:  # at any moment, even before the next prompt appears
                if leaving and not working:
                    return
                leaving = not working
                notice = "stopped" if working else "press Ctrl-C again or Ctrl-D to leave"
            except EOFError:
                return
            except GgufspecError as error:
                self._print_error(error.message, error.hint)
            except Failure as failure:
                if failure.status is Status.PROMPT_TOO_LONG:
                    self._print_error(*self._talk.context_full())
                else:
                    self._print_error(f"{failure.status.value}: {failure.reason}", None)

    def _execute(self, command: Command) -> None:
        match command:
            case Say(text=prompt):
                self._answer(prompt)
            case Compare(prompt=prompt):
                self._compare(prompt)
            case Save(path=path):
                self._save(path)
            case Action.CLEAR:
                self._talk.clear()
                self._print_note("new conversation; /stats and /save keep the earlier measurements")
            case Action.STATS:
                self._console.print(views.stats(self._talk.conversation))
            case Action.HELP:
                self._console.print(views.help_text(self._console))
            case ChangeSetting():
                self._change(command)

    def _answer(self, prompt: str) -> None:
        self._load()
        stream = self._talk.ask(prompt)
        try:
            with views.AnswerView(self._console, stream) as view, closing(stream.spans()) as spans:
                for span in spans:
                    view.add(span)
        except KeyboardInterrupt:
            stream.ending = AnswerEnd.STOPPED
        answer = read_answer(stream)
        self._talk.add_turn(prompt, answer)
        self._print_note(" · ".join(figures(answer)))
        if answer.ending is AnswerEnd.CONTEXT_FULL:
            self._print_error(*self._talk.context_full())
        self._console.print()

    def _compare(self, prompt: str) -> None:
        answers: list[ChatAnswer] = []
        try:
            with self._console.status("loading") as status:
                for role, stream in self._talk.stream_comparison(prompt):
                    answers.append(self._read_arm(role, stream, status.update))
                    status.update("loading")
        finally:  # also the answers before an error
            if answers:
                stream_comparison = self._talk.add_comparison(prompt, tuple(answers))
                self._console.print(views.comparison(stream_comparison, self._console))

    def _read_arm(self, role: Role, stream: Stream, show: Callable[[str], object]) -> ChatAnswer:
        """Return an answer, and show its measurements meanwhile."""
        with closing(stream.spans()) as spans:
            for _ in spans:
                show(f"{views.NAMES[role]} · {' · '.join(progress(stream.sample))} · Ctrl-C stops")
        return read_answer(stream)

    def _save(self, path: Path) -> None:
        facts = self._talk.facts() | {"saved": datetime.now(UTC).isoformat(timespec="seconds")}
        is_json = path.suffix.lower() == ".json"
        text = views.render(self._talk.conversation, facts, as_json=is_json)
        try:
            with path.open("w" if path in self._saved else "x", encoding="utf-8", newline="\n") as file:
                file.write(text)
        except FileExistsError:
            raise GgufspecError(f"{path} already exists", "choose another name") from None
        except OSError as error:
            raise GgufspecError(f"cannot write {path}: {error.strerror}", "choose another folder") from error
        self._saved.add(path)
        self._print_note(f"saved to {path}")

    def _change(self, setting: ChangeSetting) -> None:
        """Change the settings, load the models if needed, and print the settings."""
        with self._talk.restoring():
            needs_load = self._talk.change(setting)
            if needs_load:
                self._load()
        note, changed = "", setting.field
        if needs_load and changed == "draft_size":
            note = " · models loaded again, because this llama.cpp sets γ only at a load"
        self._print_note(f"{self._talk.settings}{note}")
        if changed == "draft_size" and self._talk.has_drafter and not self._talk.settings.drafts:
            self._print_note("drafting is off: /draft on")
        if changed == "system":
            system = self._talk.settings.system
            self._print_note(f"system prompt: {system}" if system else "no system prompt")

    def _load(self) -> None:
        """Load the models of the next answer, if they are not loaded."""
        spec = self._talk.spec(self._talk.role)
        if not self._talk.engine.needs_load(spec):
            return
        with self._console.status(f"loading {views.NAMES[self._talk.role]}"):
            self._talk.engine.load(spec)

    def _print_welcome(self) -> None:
        talk = self._talk
        self._console.print(Text.assemble(("ggufspec chat", "bold"), f" · {one_line(talk.session.name)}"))
        for note in talk.session.notes[1:]:
            self._print_note(note)
        if not talk.uses_template:
            why = "No chat template is used" if talk.card.chat_template else "The target has no chat template"
            self._console.print(f"{why}: it continues your text. Press Enter to let it go on.")
        if catalog.is_embedded(talk.session.name):
            self._console.print(f"It was trained on stories about one village. Example: {_EXAMPLE}")
        mark = Text("Marked tokens", style=views.mark_style(self._console))
        meaning = " were drafted and accepted. " if talk.has_drafter else ""
        self._console.print(
            Text.assemble(*((mark, meaning) if meaning else ()), "/help lists the commands, Ctrl-D leaves.")
        )

    def _status(self) -> str:
        talk = self._talk
        turns = talk.conversation.turns
        used = turns[-1].answer.context_tokens if turns else 0
        return f"{one_line(talk.session.name)} · {talk.settings} · context {used} of {talk.context}"

    def _print_note(self, text: str) -> None:
        self._console.print(Text(harmless(text), style="dim"))

    def _print_error(self, message: str, hint: str | None) -> None:
        self._console.print(Text.assemble((harmless(message), "red"), f"; {harmless(hint)}" if hint else ""))
