"""Tables for people: Markdown, plain lines for a pipe, or with rich a table that fits the terminal."""

from __future__ import annotations

import os
import re
import shutil
import sys
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import IO, TYPE_CHECKING

from ggufspec.choices import OutputFormat
from ggufspec.harmless import markdown, one_line

if TYPE_CHECKING:  # tables of commands that measure nothing need no columns
    from ggufspec.report.columns import FilledTable

TERMINAL = OutputFormat.TERMINAL.value
"""The output format of a table that fits the terminal."""

PLAIN = "plain"
"""The format of a table with one line for each row, however wide, and no other lines."""

LATEX = "latex"
"""The format of a table for LaTeX that needs no package."""

FOR_PEOPLE = (TERMINAL, OutputFormat.MARKDOWN.value)
"""The output formats that people read; all others are for programs."""

_TEXT_WIDTH = 14  # letters to which a column of text is folded before columns move to another table
_WHOLE = re.compile(r"`[^`]*`|\d %")
_JOINT = "\ue000"  # stands for a space at which no line ends
_LEAST_PROSE = 30  # columns in which a sentence can be read
_GAP = 2  # spaces between two columns
_ASCII_LINES = "    \n    \n -- \n    \n    \n    \n    \n    \n"
_NUMBER = r"[+-]?\d[\d.,]*(?: ?(?:%|×|[KMGT]iB|B))?"
_INTERVAL = rf"\[(?:{_NUMBER}, {_NUMBER}|needs more runs)\]"  # as figures.py writes them
_NUMERIC = re.compile(rf"(?:< |1/)?{_NUMBER}(?: {_INTERVAL}| of \d+)?")

_LONG_UNIT = re.compile(r"/(?=\w{3})")  # tokens/round becomes two lines, tokens/s does not


@dataclass(frozen=True, kw_only=True)
class _TextColumn:
    """A column: its heading and its cells, without control characters and newlines."""

    heading: str
    cells: Sequence[str]

    @cached_property
    def is_numeric(self) -> bool:
        """Whether it holds numbers, which are aligned to the right and never broken."""
        texts = [text for text in self.cells if text]
        return bool(texts) and all(_NUMERIC.fullmatch(text) for text in texts)

    @cached_property
    def width(self) -> int:
        """Terminal columns that it takes without folding."""
        return _width((self.heading, *self.cells))

    @cached_property
    def padded_width(self) -> int:
        """Columns that it takes where nothing is folded, with room around its heading."""
        return max(_width([self.heading]) + _GAP, self.width)

    @cached_property
    def least_width(self) -> int:
        """Terminal columns that it needs: those of its longest number, or enough to read a text."""
        folded = self.folded
        if self.is_numeric:
            return _width((*folded.heading.split(), *"\n".join(folded.cells).split("\n")))
        return min(self.width, max(_TEXT_WIDTH, _width(folded.heading.split())))

    @property
    def folded(self) -> _TextColumn:
        """The column with intervals below their values, and with a wider heading in two lines."""
        if not self.is_numeric:
            return self
        cells = [text.replace(" [", "\n[") for text in self.cells]
        fits = _width([self.heading]) <= _width("\n".join(cells).split("\n"))
        return _TextColumn(heading=self.heading if fits else _LONG_UNIT.sub("/\n", self.heading), cells=cells)


@dataclass(frozen=True, kw_only=True)
class Page:
    """What people read of a result, as text and in notebooks.

    Attributes:
        found: sentences, the verdict first. On a terminal they are above the table.
        engine: the line above the table.
        table: what they are about; none of a bench that measured nothing.
        notes: what it rests on, and other tables; a note ``what:`` may have indented lines of code below it.
        warnings: advice by name.
        chosen: whether each row is what to run; in text these are marked by asterisks.
    """

    found: Sequence[str] = ()
    engine: str = ""
    table: FilledTable | None = None
    notes: Sequence[str | FilledTable] = ()
    warnings: Mapping[str, str] = field(default_factory=dict)
    chosen: Sequence[bool] = ()

    def text(self, output: str = "md") -> str:
        """Return the page as text.

        Args:
            output: ``md``, or ``table`` for the terminal, which sentences and tables fit.
        """
        table: tuple[str, ...] = (self.engine, "") if self.engine else ()
        table += (render(self.table, output, self.chosen), "") if self.table else ()
        found = (*self.found, *([""] if self.found else []))
        lines = (
            *((*found, *table) if output == TERMINAL else (*table, *found)),
            *(note if isinstance(note, str) else f"{render(note, output)}\n" for note in self.notes),
            *(f"warning {name}: {advice}" for name, advice in self.warnings.items()),
        )
        text = "\n".join(lines).rstrip("\n") + "\n"
        return fit_terminal(text, sys.stdout) if output == TERMINAL else text


def render(table: FilledTable, output: str = "md", chosen: Sequence[bool] = ()) -> str:
    """Return a table as text; see ``grid``. The first cell of each row that is ``chosen`` is in bold."""
    rows = [[cell.text for cell in row] for row in table.rows]
    for row, _ in ((row, is_chosen) for row, is_chosen in zip(rows, chosen, strict=False) if is_chosen):
        row[0] = f"**{row[0]}**"
    heads = [column.head for column in table.columns]
    labels = [column.head for column in table.columns if column.name in table.labels]
    return grid(heads, rows, output, labels=labels)


def grid(
    headings: Sequence[str], rows: Sequence[Sequence[str]], output: str = "md", *, labels: Sequence[str] = ()
) -> str:
    """Return rows of cells as a table, without a newline at its end; headings may repeat.

    Args:
        headings: one for each column.
        rows: in each, one text for each column.
        output: ``md`` for Markdown; ``latex``; ``plain`` for one line for each row; ``table`` for a table
            that fits the terminal, where columns without room follow in another table below.
        labels: headings of the columns that are repeated there, with texts before them that tell their rows
            apart; without labels, the first column.
    """
    columns = [
        _TextColumn(heading=one_line(heading), cells=[one_line(row[position]) for row in rows])
        for position, heading in enumerate(headings)
    ]
    if output == PLAIN:
        return _plain(columns)
    if output == LATEX:
        return _latex(columns)
    if output != TERMINAL:
        return _markdown(columns)
    width = shutil.get_terminal_size().columns
    return "\n\n".join(_terminal(part, width) for part in _parts(columns, labels, width))


def _markdown(columns: Sequence[_TextColumn]) -> str:
    escaped = [
        replace(column, heading=_markdown_cell(column.heading), cells=[*map(_markdown_cell, column.cells)])
        for column in columns
    ]
    rules = [f"{'-' * (column.padded_width + 2)}" for column in escaped]
    aligned = [
        f"{rule[:-1]}:" if column.is_numeric else rule for rule, column in zip(rules, columns, strict=True)
    ]
    heading, *rows = _lines(escaped, [column.is_numeric for column in columns])
    return "\n".join(
        (f"| {' | '.join(heading)} |", f"|{'|'.join(aligned)}|", *(f"| {' | '.join(row)} |" for row in rows))
    )


def _markdown_cell(text: str) -> str:
    return markdown(text).replace("|", "\\|")


def _plain(columns: Sequence[_TextColumn]) -> str:
    lines = _lines(columns, [column.is_numeric for column in columns])
    return "\n".join("  ".join(line).rstrip() for line in lines)


def _lines(columns: Sequence[_TextColumn], are_numeric: Sequence[bool]) -> Iterator[tuple[str, ...]]:
    """Yield the headings, then each row, with every text as wide as its column."""
    from rich.cells import cell_len

    def padded(text: str, column: _TextColumn, *, is_numeric: bool) -> str:
        room = " " * (column.padded_width - cell_len(text))
        return f"{room}{text}" if is_numeric else f"{text}{room}"

    for texts in zip(*([column.heading, *column.cells] for column in columns), strict=True):
        yield tuple(
            padded(text, column, is_numeric=is_numeric)
            for text, column, is_numeric in zip(texts, columns, are_numeric, strict=True)
        )


_LATEX = {
    **{character: f"\\{character}" for character in "&%$#_{}"},
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": "$<$",
    ">": "$>$",
    "|": r"\textbar{}",
    "γ": r"$\gamma$",
    "×": r"$\times$",
    "±": r"$\pm$",
    "≈": r"$\approx$",
    "…": r"\ldots{}",
    "[": "{[}",  # a bracket after a line break would be its argument
    "]": "{]}",
}


def wrap_words(text: str, width: int | None, *, before: str = "") -> str:
    """Return a sentence in lines that fit a width, each indented as the first one.

    Words stay whole, and so do percentages and commands between backticks.

    Args:
        text: the sentence.
        width: in columns; None for one line. Beside less than 30 columns it stays one line, too.
        before: what stands before the first line.
    """
    if width is None or width - len(before) < _LEAST_PROSE:
        return before + text
    joined = _WHOLE.sub(lambda whole: whole[0].replace(" ", _JOINT), text)
    lines = textwrap.fill(
        joined,
        width,
        initial_indent=before,
        subsequent_indent=" " * len(before),
        break_long_words=False,
        break_on_hyphens=False,
    )
    return lines.replace(_JOINT, " ")


def fit_terminal(text: str, stream: IO[str] | None) -> str:
    """Return a text whose sentences fit the terminal; where the stream is none, the text as it is.

    Indented lines may be commands to copy, and stay.
    """
    if stream is None or not stream.isatty():
        return text
    width = shutil.get_terminal_size().columns
    return "\n".join(
        line if line.startswith(" ") or len(line) <= width else wrap_words(line, width)
        for line in text.split("\n")
    )


def escape_latex(text: str) -> str:
    """Return a text for LaTeX: its special characters stand for themselves."""
    return "".join(_LATEX.get(character, character) for character in one_line(text))


def _latex(columns: Sequence[_TextColumn]) -> str:
    """Return a ``tabular`` with LaTeX's own lines; numbers are aligned to the right."""
    alignment = "".join("r" if column.is_numeric else "l" for column in columns)
    rows = zip(*(map(escape_latex, column.cells) for column in columns), strict=True)
    lines = [" & ".join(row) + r" \\" for row in rows]
    head = " & ".join(escape_latex(column.heading) for column in columns) + r" \\"
    return "\n".join(
        (
            rf"\begin{{tabular}}{{{alignment}}}",
            r"\hline",
            head,
            r"\hline",
            *lines,
            r"\hline",
            r"\end{tabular}",
        )
    )


def _parts(columns: Sequence[_TextColumn], labels: Sequence[str], width: int) -> list[list[_TextColumn]]:
    """Return columns in groups that fit a width; each has those that tell the rows apart."""
    if _total(column.width for column in columns) <= width:
        return [list(columns)]
    repeated = _telling(columns, labels)
    parts = [set(repeated)]
    for position in range(len(columns)):
        group = parts[-1] | {position}
        # a part has one column of its own, however wide: otherwise a wide one would be put off for ever
        if parts[-1] > repeated and _total(columns[chosen].least_width for chosen in group) > width:
            parts.append(repeated | {position})
        else:
            parts[-1] = group
    return [[columns[position] for position in sorted(part)] for part in parts]


def _telling(columns: Sequence[_TextColumn], labels: Sequence[str]) -> set[int]:
    """Return the places of the labels, and of texts before the last one that tell alike rows apart."""
    positions = {position for position, column in enumerate(columns) if column.heading in labels} or {0}

    def count_distinct(chosen: set[int]) -> int:
        return len({*zip(*(columns[position].cells for position in sorted(chosen)), strict=True)})

    for position in range(max(positions)):
        more = positions | {position}
        # a figure tells rows apart by chance; a name does where two arms differ in their files alone
        if not columns[position].is_numeric and count_distinct(more) > count_distinct(positions):
            positions = more
    return positions


def _terminal(columns: Sequence[_TextColumn], width: int) -> str:
    """Return columns as a table without colours; columns are folded where the width demands it."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    widths = _widths(columns, width)
    folds = [column.width > room for column, room in zip(columns, widths, strict=True)]
    shown = [column.folded if fold else column for column, fold in zip(columns, folds, strict=True)]
    drawn = Table(
        box=box.Box(_ASCII_LINES, ascii=True) if is_plain() else box.SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
        padding=(0, _GAP - 1, 0, 0),  # the line between columns is a space
        leading=1 if any(map(_wraps, shown, widths)) else 0,
    )
    for column, whole, room in zip(shown, columns, widths, strict=True):
        drawn.add_column(
            Text(column.heading), justify="right" if whole.is_numeric else "left", width=room, overflow="fold"
        )
    for row in zip(*(column.cells for column in shown), strict=True):
        drawn.add_row(*map(Text, row))
    console = Console(width=_total(widths) + _GAP, color_system=None)
    text = "".join(segment.text for segment in console.render(drawn))
    return "\n".join(line.rstrip() for line in text.rstrip().split("\n"))


def _wraps(column: _TextColumn, room: int) -> bool:
    """Whether a cell takes more than one line; a heading may."""
    return _width("\n".join(column.cells).split("\n")) > room or any("\n" in text for text in column.cells)


def _widths(columns: Sequence[_TextColumn], width: int) -> list[int]:
    """Return how wide each column is drawn: room that is left goes to those that would be folded."""
    widths = [column.least_width for column in columns]
    spare = width - _total(widths)
    for position, column in enumerate(columns):
        missing = column.width - widths[position]
        # part of what a number lacks helps nothing: it stays in one line, or folds before its interval
        added = missing if missing <= spare else 0 if column.is_numeric else max(0, spare)
        widths[position] += added
        spare -= added
    return widths


def is_plain() -> bool:
    """Return whether the terminal or its encoding shows ASCII alone."""
    if os.environ.get("TERM") == "dumb":
        return True
    try:
        "├●┊γ".encode(sys.stdout.encoding or "ascii")
    except (LookupError, UnicodeEncodeError):
        return True
    return False


def _total(widths: Iterable[int]) -> int:
    """Return the terminal columns of a table whose columns have these widths."""
    return sum(width + _GAP for width in widths) - _GAP


def _width(texts: Iterable[str]) -> int:
    """Return the terminal columns that the widest of some texts takes."""
    from rich.cells import cell_len  # a letter may take two columns, or none

    return max((cell_len(text) for text in texts), default=0)
