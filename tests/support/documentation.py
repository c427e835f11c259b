"""The documentation's code blocks as values, and whether printed output has the shape that a page shows.

    <!-- run -->                  directly above a ```sh or ```python block: the tests run it
    <!-- run: exit 33 -->         the block's last command exits with this code
    <!-- run: exit 0 or 33 -->    or with the second one; the page shows the output of the first
    <!-- not run: needs a GPU --> the tests do not run it, and why

A ```sh block holds commands alone, one to a line, so that they can be copied; a backslash at the end of a
line continues a command. A ```text block that follows after one blank line is what the last command prints;
`…` alone on a line stands for any lines. All blocks of a page share a home and a folder.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = (*sorted(ROOT.glob("docs/**/*.md")), ROOT / "README.md")

_BLOCK = re.compile(
    r"(?:^<!-- (?P<mark>[^\n]*) -->\n)?^```(?P<language>sh|python)\n(?P<body>.*?)^```$"
    r"(?:\n\n^```text\n(?P<shown>.*?)^```$)?",
    re.MULTILINE | re.DOTALL,
)
_COMMAND = re.compile(r"(?:.*\\\n)*.+\n")
"""A command: lines that end in a backslash, and the one after them."""
_MARK = re.compile(r"run(?:: exit (?P<code>\d+)(?: or (?P<other>\d+))?)?|not run: (?P<why>\S.*)")
_CHANCE = (
    *("warning ", "Speed-ups are within ", "costs: not kept"),
    *(
        *("About ", "More runs ", "Stop other programs ", "It is too close to 1 "),
        "The speed-up differs too much ",
    ),
)
"""How lines begin that depend on how quiet the machine was."""
_CHOICES = ("Draft with ", "Do not draft: ", "Undecided: ")
"""How a tuning's verdict begins; the lines that follow it are about the configuration that was chosen."""
_AFTER_A_CHOICE = re.compile(r"\d.* forecast from one trace")
_VERDICTS = re.compile(r"\b(?:faster|slower|same|undecided)\b")
_INTERVAL = re.compile(r" ?\[[^\]]*\]|, \d+ near-ties?|< (?=\d)")
_RUN = re.compile(r"\d{8}-\d{6}-[0-9a-f]{4}")
_PATH = re.compile(r"(?:(?<=\s)|^)[~/]\S*/\S*")
_NUMBER = re.compile(r"\d[\d.,]*(?:e[+-]?\d+)?")
_DURATION = re.compile(r"\b0 (?:s|min 0 s|h 0 min|days|years)\b")
_GAIN = re.compile(r"γ = 0,? 0×")
_BREAK_EVEN = re.compile(r"α = 0")
"""What a table of acceptances says where drafting pays; elsewhere "no γ would pay", and "never"."""
_LIKE = 2 / 3
"""The share of a line's words that a printed line must have."""


@dataclass(frozen=True, kw_only=True)
class Command:
    """One command for a shell, what the page shows of its output, and the exit codes it may end with.

    What is shown belongs to the first of them.
    """

    line: str
    shown: tuple[str, ...]
    exit_codes: tuple[int, ...] = (0,)


@dataclass(frozen=True, kw_only=True)
class Block:
    """A block of a page with the output shown below it; ``line`` counts from 1 and is that of its fence."""

    page: Path
    line: int
    language: str
    mark: str | None
    body: str
    shown: str

    @property
    def is_marked(self) -> bool:
        """Whether it says if it is executed, in words that are known."""
        return self.mark is not None and _MARK.fullmatch(self.mark) is not None

    @property
    def is_run(self) -> bool:
        """Whether it is executed."""
        return self.is_marked and not str(self.mark).startswith("not")

    @property
    def commands(self) -> tuple[Command, ...]:
        """The commands of a ```sh block, in order; the last one has the output and the exit codes."""
        *first, last = (line.rstrip("\n") for line in _COMMAND.findall(self.body))
        match = _MARK.fullmatch(self.mark or "")
        codes = tuple(int(code) for code in match.group("code", "other") if code) if match else ()
        shown = tuple(self.shown.splitlines())
        return (
            *(Command(line=line, shown=()) for line in first),
            Command(line=last, shown=shown, exit_codes=codes or (0,)),
        )


def blocks(page: Path) -> tuple[Block, ...]:
    """Return the console and Python blocks of a page, in order."""
    text = page.read_text(encoding="utf-8")
    return tuple(
        Block(
            page=page,
            line=text.count("\n", 0, match.start("language")) + 1,
            language=match["language"],
            mark=match["mark"],
            body=match["body"],
            shown=match["shown"] or "",
        )
        for match in _BLOCK.finditer(text)
    )


def unlike(shown: tuple[str, ...], printed: str) -> list[str]:
    """Return the lines of a page that nothing printed resembles.

    Heads of tables must be equal. In rows, numbers, paths and verdicts may differ; of other lines, two
    thirds of the words must be found in one line. What follows from a measured speed may be another one on
    another machine: widths of columns, units of times, whether drafting pays, and what is said of the choice.

    Args:
        shown: the lines that a page shows.
        printed: standard output and standard error.
    """
    lines = printed.splitlines()
    shown = _of_the_same_choice(shown, lines)
    heads = {_cells(line) for line, after in pairwise(lines) if after.startswith("|--")}
    rows = {_shape(line) for line in lines if line.startswith("|")}
    texts = [_words(line) for line in lines if not line.startswith("|")]
    missing = []
    for place, line in enumerate(shown):
        following = shown[place + 1] if place + 1 < len(shown) else ""
        if not line.strip(" …") or line.startswith(("|--", *_CHANCE)):
            continue
        if line.startswith("|"):
            found = _cells(line) in heads if following.startswith("|--") else _shape(line) in rows
        else:
            wanted = _words(line)
            found = any(len(wanted & words) >= _LIKE * len(wanted) for words in texts)
        if not found:
            missing.append(line)
    return missing


def _of_the_same_choice(shown: tuple[str, ...], printed: list[str]) -> tuple[str, ...]:
    """Return what a page shows, without what it says of a choice where another one was made."""
    openings = [opening for opening in _CHOICES if any(line.startswith(opening) for line in printed)]
    begin = next((place for place, line in enumerate(shown) if line.startswith(_CHOICES)), None)
    if begin is None or not openings or shown[begin].startswith(tuple(openings)):
        return shown
    rest = range(begin, len(shown))
    end = next((place for place in rest if _AFTER_A_CHOICE.match(shown[place])), len(shown))
    return (*shown[:begin], *shown[end:])


def _cells(line: str) -> tuple[str, ...]:
    return tuple(cell.strip(" *") for cell in line.strip().strip("|").split("|"))


def _shape(line: str) -> tuple[str, ...]:
    return tuple(_plain(cell) for cell in _cells(line))


def _plain(text: str) -> str:
    text = _VERDICTS.sub("verdict", _INTERVAL.sub("", _RUN.sub("ID", text)))
    text = _DURATION.sub("TIME", _NUMBER.sub("0", _PATH.sub("PATH", text)))
    return _BREAK_EVEN.sub("never", _GAIN.sub("no γ would pay", text))


def _words(line: str) -> frozenset[str]:
    return frozenset(re.findall(r"\w[\w'-]*", _plain(line).lower()))
