"""The console itself: reads lines, shows answers, and comes to an end whatever happens."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

from prompt_toolkit import PromptSession
from rich.console import Console
from rich.text import Text

from ggufspec.console import transcript, views
from ggufspec.console.commands import (
    Clear,
    Command,
    Compare,
    Gamma,
    Help,
    Quit,
    Save,
    Say,
    Stats,
    System,
    parse_line,
)
from ggufspec.console.conversation import Answer, answered
from ggufspec.console.figures import figures, progress
from ggufspec.console.talk import Talk
from ggufspec.console.typed import prompt_session, unseen
from ggufspec.domain import Role, Status
from ggufspec.engines import Failure
from ggufspec.engines.server import Ending, Stream
from ggufspec.errors import GgufspecError
from ggufspec.harmless import harmless, one_line

_EMBEDDED, _EXAMPLE = "demo", "Story: Mira and the brass lantern"


class Terminal:
    """A conversation with a person in front of a terminal."""

    def __init__(self, talk: Talk, *, history: Path) -> None:
        self._talk = talk
        self._console = Console(highlight=False)
        self._session: PromptSession[str] = prompt_session(history, self._status)
        self._saved: set[Path] = set()  # what may be written over

    def run(self) -> None:
        """Greet, load, and answer until the person leaves.

        Raises:
            Failure: the models do not load in the first place.
        """
        self._greet()
        with unseen():
            self._load()
        notice, leaving, working = "", False, False
        while True:
            try:
                if notice:
                    self._aside(notice)
                notice, working = "", False
                line = self._session.prompt("› ")
                leaving, working = False, True
                command = parse_line(line)
                if isinstance(command, Quit):
                    return
                with unseen():
                    self._do(command)
            except KeyboardInterrupt:  # it may come at any moment, also while the next line is prepared
                if leaving and not working:
                    return
                leaving = not working
                notice = "stopped" if working else "Ctrl-C again, or Ctrl-D, leaves"
            except EOFError:
                return
            except GgufspecError as error:
                self._complain(error.message, error.hint)
            except Failure as failure:
                if failure.status is Status.PROMPT_TOO_LONG:
                    self._complain(*self._talk.context_full())
                else:
                    self._complain(f"{failure.status.value}: {failure.reason}", None)

    def _do(self, command: Command) -> None:
        match command:
            case Say(text=said):
                self._answer(said)
            case Compare(prompt=prompt):
                self._compare(prompt)
            case Save(path=path):
                self._save(path)
            case Clear():
                self._talk.clear()
                self._aside("the conversation begins anew; /stats and /save still know what was measured")
            case Stats():
                self._console.print(views.stats(self._talk.conversation))
            case Help():
                self._console.print(views.help_text(self._console))
            case _:
                self._change(command)

    def _answer(self, said: str) -> None:
        self._load()
        stream = self._talk.ask(said)
        try:
            with views.AnswerView(self._console, stream) as view, closing(stream.spans()) as spans:
                for span in spans:
                    view.add(span)
        except KeyboardInterrupt:
            stream.ending = Ending.STOPPED
        answer = answered(stream)
        self._talk.keep(said, answer)
        self._aside(" · ".join(figures(answer)))
        if answer.ending is Ending.CONTEXT_FULL:
            self._complain(*self._talk.context_full())
        self._console.print()

    def _compare(self, prompt: str) -> None:
        answers: list[Answer] = []
        try:
            with self._console.status("loading") as status:
                for role, stream in self._talk.compared(prompt):
                    answers.append(self._watched(role, stream, status.update))
                    status.update("loading")
        finally:  # also those that came before something went wrong
            if answers:
                compared = self._talk.keep_comparison(prompt, tuple(answers))
                self._console.print(views.comparison(compared, self._console))

    def _watched(self, role: Role, stream: Stream, show: Callable[[str], object]) -> Answer:
        """Return an answer, with its figures shown while it comes."""
        with closing(stream.spans()) as spans:
            for _ in spans:
                show(f"{views.NAMES[role]} · {' · '.join(progress(stream.sample))} · Ctrl-C stops")
        return answered(stream)

    def _save(self, path: Path) -> None:
        facts = self._talk.facts() | {"saved": datetime.now(UTC).isoformat(timespec="seconds")}
        is_json = path.suffix.lower() == ".json"
        text = transcript.render(self._talk.conversation, facts, as_json=is_json)
        try:
            with path.open("w" if path in self._saved else "x", encoding="utf-8", newline="\n") as file:
                file.write(text)
        except FileExistsError:
            raise GgufspecError(f"{path} is there already", "choose another name") from None
        except OSError as error:
            raise GgufspecError(f"cannot write {path}: {error.strerror}", "choose another place") from error
        self._saved.add(path)
        self._aside(f"saved to {path}")

    def _change(self, command: Command) -> None:
        """Change the settings, load what they need, and say what they are."""
        with self._talk.restoring():
            needs_load = self._talk.change(command)
            if needs_load:
                self._load()
        note = ""
        if needs_load and isinstance(command, Gamma):
            note = " · loaded anew, as this llama.cpp takes γ only then"
        self._aside(f"{self._talk.settings}{note}")
        if isinstance(command, Gamma) and self._talk.has_drafter and not self._talk.settings.drafts:
            self._aside("drafting is off: /draft on")
        if isinstance(command, System):
            self._aside(f"system prompt: {command.text}" if command.text else "no system prompt")

    def _load(self) -> None:
        """Load what answers next, if it is not there yet."""
        spec = self._talk.spec(self._talk.role)
        if not self._talk.engine.needs_load(spec):
            return
        with self._console.status(f"loading {views.NAMES[self._talk.role]}"):
            self._talk.engine.load(spec)

    def _greet(self) -> None:
        talk = self._talk
        self._console.print(Text.assemble(("ggufspec chat", "bold"), f" · {one_line(talk.session.name)}"))
        for note in talk.session.notes[1:]:
            self._aside(note)
        if not talk.uses_template:
            why = "No chat template is used" if talk.card.chat_template else "The target has no chat template"
            self._console.print(f"{why}: it continues the text that you begin. Enter alone lets it go on.")
        if talk.session.name == _EMBEDDED:
            self._console.print(f"It knows one village and its stories. Begin for example with: {_EXAMPLE}")
        mark = Text("Marked tokens", style=views.mark(self._console))
        about = " were drafted and accepted. " if talk.has_drafter else ""
        self._console.print(
            Text.assemble(*((mark, about) if about else ()), "/help lists the commands, Ctrl-D leaves.")
        )

    def _status(self) -> str:
        talk = self._talk
        turns = talk.conversation.turns
        used = turns[-1].answer.context_tokens if turns else 0
        return f"{one_line(talk.session.name)} · {talk.settings} · context {used} of {talk.context}"

    def _aside(self, text: str) -> None:
        self._console.print(Text(harmless(text), style="dim"))

    def _complain(self, message: str, hint: str | None) -> None:
        self._console.print(Text.assemble((harmless(message), "red"), f"; {harmless(hint)}" if hint else ""))
