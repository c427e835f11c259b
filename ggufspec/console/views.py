"""What the console shows, as rich renderables; what models write is made harmless first."""

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
from ggufspec.console.conversation import AnswerComparison, Conversation
from ggufspec.console.figures import progress, totals
from ggufspec.domain import Role
from ggufspec.engines.server import Span, Stream
from ggufspec.harmless import harmless
from ggufspec.units import format_duration, format_rate

_DRAFTED, _ASIDE = "green", "dim"
_UNCOLOURED = "underline"  # where there are no colours
_REFRESH_S = 1 / 20
NAMES = {Role.TARGET: "target alone", Role.DRAFTER: "drafter alone", Role.DRAFTING: "drafting"}


def mark(console: Console) -> str:
    """Return the style of accepted draft tokens."""
    return _UNCOLOURED if console.no_color else _DRAFTED


def coloured(spans: Iterable[Span], console: Console) -> Text:
    """Return a text in which accepted draft tokens stand out."""
    return Text.assemble(*((harmless(span.text), mark(console) if span.drafted else "") for span in spans))


class AnswerView:
    """Prints an answer while it comes: whole lines stay, the last one and the status below are redrawn."""

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
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.update(Text(), refresh=True)
        self._live.stop()
        if self._line.plain:
            self._print(self._line)

    def add(self, span: Span) -> None:
        """Show what came."""
        self._line.append_text(coloured([span], self._console))
        lines = [
            row
            for line in self._line.split("\n", allow_blank=True)
            for row in line.wrap(self._console, self._console.width)
        ] or [Text()]
        self._line = lines[-1]
        self._draw(refresh=len(lines) == 1 and time.monotonic() - self._drawn_at > _REFRESH_S)
        if len(lines) > 1:  # printing draws what is live anew, below
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
    """Return the answers side by side, their figures below each."""
    table = Table(expand=True)
    table.add_column("", style=_ASIDE, no_wrap=True)
    answers = compared.answers
    for answer in answers:
        size = f" γ={answer.sample.n_draft}" if answer.sample.n_draft else ""
        table.add_column(f"{NAMES[answer.role]}{size}", ratio=1, overflow="fold")
    samples = [answer.sample for answer in answers]
    table.add_row("", *(_trimmed(coloured(answer.spans, console)) for answer in answers))
    table.add_section()
    rows: dict[str, list[str]] = {
        "tokens": [str(sample.gen_tokens or 0) for sample in samples],
        "time": [format_duration(answer.wall_s) for answer in answers],
        "tokens/s": [format_rate(sample.decode_tps) if sample.decode_tps else "" for sample in samples],
        "accepted": ["" if sample.accept_rate is None else f"{sample.accept_rate:.0%}" for sample in samples],
    }
    ours = [
        (compared.verdict or "", compared.speed_up) if one.role is Role.DRAFTING else ("", None)
        for one in answers
    ]
    rows["speed-up"] = [f"{speed_up:.2f}×" if speed_up else "" for _, speed_up in ours]
    rows["text"] = [verdict for verdict, _ in ours]
    for name, cells in rows.items():
        if any(cells):
            table.add_row(name, *cells)
    return table


def _trimmed(text: Text) -> Text:
    """Return a text without blanks around it."""
    begin = len(text.plain) - len(text.plain.lstrip())
    return text[begin : len(text.plain.rstrip())] if text.plain.strip() else Text()


def stats(conversation: Conversation) -> RenderableType:
    """Return what was measured so far, or that nothing was."""
    rows = list(totals(conversation))
    if not rows:
        return Text("nothing was measured yet", style=_ASIDE)
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
    """Return what can be typed, and what the colour says."""
    table = Table.grid(padding=(0, 2))
    for usage in COMMANDS.values():
        words, _, arguments = usage.words.partition(" ")
        table.add_row(Text.assemble((words, "bold"), f" {arguments}"), usage.does)
    keys = (
        "Enter sends; Alt-Enter, or a backslash at the end of a line, begins another line. Ctrl-C stops the "
        "answer, Ctrl-D leaves. //text says a text that begins with a slash."
    )
    meaning = Text.assemble(
        "Tokens ",
        ("marked like this", mark(console)),
        " were proposed by the drafter and accepted by the target. The others are the target's own: the "
        "first token of an answer, the last one of each round, and all where nothing is drafted. The marks "
        "come from the counts that llama-server sends with each token and are exact; only a character made "
        "of several tokens stays unmarked where not all of them are known to be drafts. Servers up to b9108 "
        "count a whole round ahead: there, marks are inexact behind such a character, for one round.",
    )
    return Group(table, "", keys, "", meaning)
