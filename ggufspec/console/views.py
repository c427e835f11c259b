"""What the console shows, as rich renderables, and the transcript as Markdown or JSON.

Control characters of models are removed first.
"""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import asdict
from types import TracebackType
from typing import Any, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from ggufspec.console.commands import COMMANDS
from ggufspec.console.conversation import (
    AnswerComparison,
    ChatAnswer,
    ChatSettings,
    Conversation,
    Entry,
    Turn,
    describe,
    figures,
    progress,
    read_answer,
)
from ggufspec.console.talk import Talk
from ggufspec.domain import Role, Sample
from ggufspec.engines.server import Span, Stream
from ggufspec.harmless import harmless, markdown, to_json
from ggufspec.units import format_duration, format_number, format_rate

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
        table.add_column(_arm(answer), ratio=1, overflow="fold")
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


_TOTALS = ("", "answers", "tokens", "tokens/s", "accepted", "tokens/round")


def total_rows(conversation: Conversation) -> Iterator[tuple[str, ...]]:
    """Yield the cells of ``_TOTALS`` for all answers with one role and γ; rates are ratios of sums."""
    samples_by_arm: dict[str, list[Sample]] = {}
    for _, answer in conversation.answers:
        samples_by_arm.setdefault(_arm(answer), []).append(answer.sample)
    for arm, samples in samples_by_arm.items():
        decoded = sum(sample.decoded or 0 for sample in samples)
        seconds = sum(sample.gen_s or 0.0 for sample in samples)
        drafted = sum(sample.n_drafted or 0 for sample in samples)
        accepted = sum(sample.n_accepted or 0 for sample in samples)
        rounds = sum(sample.n_rounds or 0 for sample in samples)
        yield (
            arm,
            str(len(samples)),
            str(sum(sample.gen_tokens or 0 for sample in samples)),
            format_rate(decoded / seconds) if seconds > 0 and decoded > 0 else "",
            f"{accepted / drafted:.0%}" if drafted else "",
            f"{decoded / rounds:.2f}" if rounds and samples[0].n_draft else "",
        )


def _arm(answer: ChatAnswer) -> str:
    return NAMES[answer.role] + (f" γ={answer.sample.n_draft}" if answer.sample.n_draft else "")


def stats(conversation: Conversation) -> RenderableType:
    """Return the measurements so far as a table."""
    rows = list(total_rows(conversation))
    if not rows:
        return Text("nothing has been measured yet", style=_ASIDE)
    table = Table()
    for name in _TOTALS:
        table.add_column(name, justify="right" if name else "left")
    for row in rows:
        table.add_row(*row)
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


SCHEMA = 1
_MEASURED = (
    *("gen_tokens", "gen_s", "decode_tps", "n_drafted", "n_accepted", "accept_rate", "prompt_tokens"),
    "ttft_s",
)
"""Fields of a sample in a transcript for programs."""
_COLUMNS = ("who", "sampler", "tokens", "tokens/s", "accepted", "first token", "ended")
_FENCE = re.compile(r"^\s*(`{3,})", re.MULTILINE)


def render(conversation: Conversation, facts: Mapping[str, Any], *, as_json: bool) -> str:
    """Return the text of a transcript file.

    Args:
        conversation: the turns and comparisons.
        facts: pair, models, llama.cpp and time.
        as_json: JSON, else Markdown.
    """
    if as_json:
        entries = [entry_to_json(entry) for entry in conversation.entries]
        text = json.dumps({"schema": SCHEMA, **facts, "entries": entries}, indent=2, ensure_ascii=False)
        return f"{text}\n"
    listed = "".join(f"- {name}: {_code(value)}\n" for name, value in facts.items() if value)
    body = "".join(map(_markdown, conversation.entries))
    return f"# ggufspec chat: {markdown(str(facts['pair']))}\n\n{listed}{body}{_table(conversation)}"


def entry_to_json(entry: Entry) -> dict[str, Any]:
    """Return an entry as JSON; absent measurements are null."""
    if isinstance(entry, Turn):
        return {
            "kind": "turn",
            "said": entry.prompt,
            "settings": asdict(entry.settings),
            "answer": answer_to_json(entry.answer),
        }
    if isinstance(entry, AnswerComparison):
        return {
            "kind": "comparison",
            "said": entry.prompt,
            "settings": asdict(entry.settings),
            "answers": [answer_to_json(answer) for answer in entry.answers],
            "speed_up": entry.speed_up,
            "text": entry.verdict,
        }
    return {"kind": "cleared"}


def answer_to_json(answer: ChatAnswer) -> dict[str, Any]:
    """Return an answer as JSON, with the field names of stored results."""
    return {
        "role": answer.role.value,
        "text": answer.text,
        "ending": answer.ending.value,
        "spans": [span._asdict() for span in answer.spans],
        **{name: getattr(answer.sample, name) for name in _MEASURED},
        "draft": answer.sample.n_draft,
        "cached_tokens": answer.cached_tokens,
        "wall_s": answer.wall_s,
    }


def _markdown(entry: Entry) -> str:
    if isinstance(entry, Turn):
        prompt = _fenced(entry.prompt) if entry.prompt else "(continue)\n"
        return f"\n## You\n\n{prompt}\n## {_heading(entry.answer)}\n\n{_answer(entry.answer)}"
    if isinstance(entry, AnswerComparison):
        parts = [f"\n## Compared\n\n{_fenced(entry.prompt)}"]
        parts += [f"\n### {_heading(answer)}\n\n{_answer(answer)}" for answer in entry.answers]
        if entry.verdict:
            speed_up = f"{entry.speed_up:.2f}× the target's tokens/s; " if entry.speed_up else ""
            parts.append(f"\nDrafting: {speed_up}text: {entry.verdict}.\n")
        return "".join(parts)
    return "\n---\n\nNew conversation.\n"


def _heading(answer: ChatAnswer) -> str:
    return answer.role.value.capitalize() + (f", γ={answer.sample.n_draft}" if answer.sample.n_draft else "")


def _answer(answer: ChatAnswer) -> str:
    return f"{_fenced(answer.text)}\n{' · '.join(figures(answer))}\n"


def _table(conversation: Conversation) -> str:
    """Return a table with a row for each answer."""
    rows = [_cells(settings, answer) for settings, answer in conversation.answers]
    if not rows:
        return ""
    table = [_COLUMNS, ("---",) * len(_COLUMNS), *rows]
    return "\n## Measured\n\n" + "".join(f"| {' | '.join(row)} |\n" for row in table)


def _cells(settings: ChatSettings, answer: ChatAnswer) -> tuple[str, ...]:
    sample = answer.sample
    return (
        _heading(answer).lower(),
        describe(settings.sampling),
        str(sample.gen_tokens or 0),
        "" if sample.decode_tps is None else format_number(sample.decode_tps),
        "" if sample.accept_rate is None else f"{sample.accept_rate:.1%}",
        "" if sample.ttft_s is None else f"{sample.ttft_s:.3f} s",
        answer.ending.value,
    )


def _fenced(text: str) -> str:
    """Return a text in a fence that is longer than any fence in it."""
    longest = max((len(fence) for fence in _FENCE.findall(text)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}text\n{text}\n{fence}\n"


def _code(value: object) -> str:
    return f"`{value}`" if "`" not in str(value) else markdown(str(value))


def show(talk: Talk, prompt: str, facts: Mapping[str, Any], *, as_json: bool) -> ChatAnswer:
    """Write the answer to standard output as it is generated, and a line of measurements to standard error.

    Args:
        talk: a pair with an empty conversation.
        prompt: the prompt.
        facts: the first fields of the JSON object.
        as_json: write one JSON object once the answer is complete.

    Raises:
        GgufspecError: the prompt cannot be answered.
        Failure: the server died, refused or did not answer in time.
    """
    stream = talk.ask(prompt)
    console = Console(highlight=False)
    is_plain = not console.is_terminal or console.no_color
    with closing(stream.spans()) as spans:
        for span in spans:
            if as_json:
                continue
            if is_plain:  # byte for byte into pipes and files
                sys.stdout.write(harmless(span.text) if console.is_terminal else span.text)
                sys.stdout.flush()
            else:
                console.print(mark_tokens([span], console), end="", soft_wrap=True)
    answer = read_answer(stream)
    if as_json:
        record = {"schema": SCHEMA, **facts, "said": prompt, **answer_to_json(answer)}
        sys.stdout.write(f"{to_json(record)}\n")
    elif not answer.text.endswith("\n"):
        sys.stdout.write("\n")
    sys.stdout.flush()
    sys.stderr.write(f"{' · '.join(figures(answer))}\n")
    return answer
