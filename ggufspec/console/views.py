"""What the console shows, as rich renderables. Control characters of models are removed first."""

from __future__ import annotations

import time
from collections.abc import Iterable
from types import TracebackType
from typing import Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from ggufspec.console.commands import COMMANDS
from ggufspec.console.conversation import AnswerComparison, Conversation, progress, totals
from ggufspec.domain import Role
from ggufspec.engines.server import Span, Stream
from ggufspec.harmless import harmless
from ggufspec.units import format_duration, format_rate

_DRAFTED, _ASIDE = "green", "dim"
_UNCOLOURED = "underline"  # where there are no colours
_REFRESH_S = 1 / 20
NAMES = {Role.TARGET: "target alone", Role.DRAFTER: "drafter alone", Role.DRAFTING: "drafting"}


def mark_style(console: Console) -> str:
    """Return the style of accepted draft tokens."""
    return _UNCOLOURED if console.no_color else _DRAFTED


def mark_tokens(spans: Iterable[Span], console: Console) -> Text:
    """Return a text with accepted draft tokens marked."""
    style = mark_style(console)
    return Text.assemble(*((harmless(span.text), style if span.drafted else "") for span in spans))


class AnswerView:
    """Prints an answer as it is generated: complete lines stay, the last line and the status are redrawn."""

    def __init__(self, console: Console, stream: Stream) -> None:
        self._console, self._stream = console, stream
        self._line = Text()  # the last one, not yet printed
        self._drawn_at = 0.0
        self._live = Live(console=console, auto_refresh=False, transient=True)

    def __enter__(self) -> Self:
        try:
            self._live.start()
            self._draw()
        except BaseException:  # Ctrl-C, already
            self._live.stop()
            raise
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.update(Text(), refresh=True)
        self._live.stop()
        if self._line.plain:
            self._print(self._line)

    def add(self, span: Span) -> None:
        """Show the next tokens."""
        self._line.append_text(mark_tokens([span], self._console))
        lines = [
            row
            for line in self._line.split("\n", allow_blank=True)
            for row in line.wrap(self._console, self._console.width)
        ] or [Text()]
        self._line = lines[-1]
        self._draw(refresh=len(lines) == 1 and time.monotonic() - self._drawn_at > _REFRESH_S)
        if len(lines) > 1:  # printing redraws the live part below
            self._print(Text("\n").join(lines[:-1]))

    def _print(self, line: Text) -> None:
        self._console.print(line, soft_wrap=True)

    def _draw(self, *, refresh: bool = True) -> None:
        sample = self._stream.sample
        words = progress(sample) if sample.gen_tokens else ["reading the prompt"]
        status = Text(" · ".join([*words, "Ctrl-C stops"]), style=_ASIDE, no_wrap=True, overflow="ellipsis")
        self._live.update(Group(self._line, status), refresh=refresh)
        if refresh:
            self._drawn_at = time.monotonic()


def comparison(compared: AnswerComparison, console: Console) -> RenderableType:
    """Return the answers side by side, with their measurements below."""
    table = Table(expand=True)
    table.add_column("", style=_ASIDE, no_wrap=True)
    answers = compared.answers
    for answer in answers:
        size = f" γ={answer.sample.n_draft}" if answer.sample.n_draft else ""
        table.add_column(f"{NAMES[answer.role]}{size}", ratio=1, overflow="fold")
    samples = [answer.sample for answer in answers]
    table.add_row("", *(_trimmed(mark_tokens(answer.spans, console)) for answer in answers))
    table.add_section()
    rows: dict[str, list[str]] = {
        "tokens": [str(sample.gen_tokens or 0) for sample in samples],
        "time": [format_duration(answer.wall_s) for answer in answers],
        "tokens/s": [format_rate(sample.decode_tps) if sample.decode_tps else "" for sample in samples],
        "accepted": ["" if sample.accept_rate is None else f"{sample.accept_rate:.0%}" for sample in samples],
    }
    drafting = [answer.role is Role.DRAFTING for answer in answers]
    speed_up = f"{compared.speed_up:.2f}×" if compared.speed_up else ""
    rows["speed-up"] = [speed_up if is_drafting else "" for is_drafting in drafting]
    rows["text"] = [compared.verdict or "" if is_drafting else "" for is_drafting in drafting]
    for name, cells in rows.items():
        if any(cells):
            table.add_row(name, *cells)
    return table


def _trimmed(text: Text) -> Text:
    """Return a text without whitespace around it."""
    begin = len(text.plain) - len(text.plain.lstrip())
    return text[begin : len(text.plain.rstrip())] if text.plain.strip() else Text()


def stats(conversation: Conversation) -> RenderableType:
    """Return the measurements so far as a table."""
    rows = list(totals(conversation))
    if not rows:
        return Text("nothing has been measured yet", style=_ASIDE)
    table = Table()
    for name in ("", "answers", "tokens", "tokens/s", "accepted", "tokens/round"):
        table.add_column(name, justify="right" if name else "left")
    for row in rows:
        table.add_row(
            NAMES[row.role] + (f" γ={row.draft_size}" if row.draft_size else ""),
            str(row.answers),
            str(row.tokens),
            format_rate(row.tps) if row.tps else "",
            "" if row.accept_rate is None else f"{row.accept_rate:.0%}",
            "" if row.tokens_per_round is None else f"{row.tokens_per_round:.2f}",
        )
    return table


def help_text(console: Console) -> RenderableType:
    """Return the commands, the keys and the meaning of the marks."""
    table = Table.grid(padding=(0, 2))
    for usage in COMMANDS.values():
        words, _, arguments = usage.words.partition(" ")
        table.add_row(Text.assemble((words, "bold"), f" {arguments}"), usage.description)
    keys = (
        "Enter sends. Alt-Enter, or a backslash at the end of a line, starts another line. Ctrl-C stops the "
        "answer, Ctrl-D leaves. Write // to begin a prompt with a slash."
    )
    meaning = Text.assemble(
        "Tokens ",
        ("marked like this", mark_style(console)),
        " were proposed by the drafter and accepted by the target. The target itself wrote the others: the "
        "first token of an answer, the last token of each round, and all tokens where nothing is drafted. "
        "The marks are exact, because llama-server sends its counts with each token, with one exception: a "
        "character made of several tokens is marked only if all of them are known to be drafts. Servers up "
        "to b9108 count one round ahead, so after such a character the marks of one round are inexact.",
    )
    return Group(table, "", keys, "", meaning)
