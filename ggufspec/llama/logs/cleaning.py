"""Text as people paste it -> the lines that llama.cpp wrote, each with the number of its original line.

Marks of quotations, indentation, line numbers, prefixes of shells and other programs, Markdown, HTML, colours
and line breaks are removed. Only lines that begin as llama.cpp's own behind such a decoration lose
it: other text is left as it is, because it is not read.
"""

from __future__ import annotations

import codecs
import html
import json
import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from ggufspec.llama.logs.lines import OWN_WORDS, SUMMARY_WORDS

_PASTED = 4 << 20  # bytes: more is a captured log, not a paste, and cleaning 100 MB takes a minute
_SAMPLE = 1 << 18  # of a larger log, this much of its beginning and of its end shows whether it is decorated
_LONGEST = 4096  # no line of llama.cpp that is read here is longer; longer ones have no decoration removed
_WRAPPED = 3  # lines of a terminal of 80 columns that one line of a log takes, at most

_QUOTES = str.maketrans(dict.fromkeys("“”„‟", '"'))  # word processors replace the quotes of JSON
_TYPOGRAPHY = str.maketrans(
    {
        **dict.fromkeys("\u00a0\u2007\u202f\u2003", " "),  # web pages keep columns by such blanks
        **dict.fromkeys("−–‐‑", "-"),  # "-nan%", "draft-mtp"
        **dict.fromkeys("\u200b\u200e\u200f\u2060\ufeff"),
    }
)
_TERMINAL = re.compile(
    r"(?:\x1b|\^\[|␛|\\x1b|\\033|\\u001b|\\e)"  # the escape character, or what it was copied as
    r"(?:\[[0-9;?]{0,40}[ -/]?[@-~]|\][^\x07\x1b]{0,400}(?:\x07|\x1b\\))"
    r"|\[\d{1,3}(?:;\d{1,3}){0,8}m"  # a colour whose escape character was lost
)
_TAG = re.compile(
    r"</?(?:pre|code|span|p|div|blockquote|details|summary|b|i|strong|em|li|ul|ol|table|tbody|tr|td)\b"
    r"[^<>]{0,200}>"
)
_BREAK = re.compile(r"\r|<br ?/?>")
_LOST_BREAK = re.compile(r" +(?=decoded +\d|n_(?:draft|predict|drafted|accept) += |accept += )")
_LITERAL_BREAK = re.compile(r"(?:\\r)?\\n")
_TIMINGS = (  # the beginnings of lines with a request's figures
    r"(?:prompt |generation )?eval time += |total time += |draft acceptance|graphs reused +=|\[ Prompt: "
)
_KNOWN = (
    rf"(?:{OWN_WORDS}|{SUMMARY_WORDS}|generated +\d|{_TIMINGS}"
    rf"|\d{{1,6}}\.\d\d\.\d{{3}}\.\d{{3}}(?: [IWED]\b|$)|[IWED] (?:{OWN_WORDS}|{SUMMARY_WORDS}|[ |]*$)"
    r'|\{"\w+":)'
)
_CLEAN = re.compile(_KNOWN)
_ISO_TIME = r"\d{4}[-/]\d\d[-/]\d\d[T _]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?"
_SHORT_TIME = r"[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d(?:\.\d{1,9})?"
_HOST = r" +(?:[\w.-]{1,64} +)?"
_PREFIX = (  # what other programs write before a line
    # journals: time, host, program[process]
    rf"{_ISO_TIME}{_HOST}[\w.-]{{1,64}}\[\d{{1,8}}\]:"
    rf"|{_SHORT_TIME}(?! +{_KNOWN}){_HOST}[\w.-]{{1,64}}:?(?:\[\d{{1,8}}\])?:"
    rf"|{_ISO_TIME}(?: (?:stdout|stderr) [FP](?= ))?"  # the latter of containers of Kubernetes
    rf"|{_SHORT_TIME}(?= )"
    r"|[\w./-]{1,200}\.(?:log|txt|out):(?=\d)"  # grep -H
    r"|\d\d:\d\d:\d\d(?:[.,]\d{1,9})?"
    # loggers of other programs, and chats
    r"|(?:TRACE|DEBUG|INFO|WARN(?:ING)?|ERROR)(?::[\w.]{1,40}:|(?= +(?!\[)))"
    r"|[\w.]{1,40}:[\w.<>]{1,40}:\d{1,5}(?= )| - ?|<[\w-]{1,20}> |(?!draft:|target:)[\w-]{1,20}: "
    r"|[L:]?\d{1,6}(?:[:)|→\]]|\.?(?![\d.]))"  # line numbers: cat -n, grep -n, editors
    r"|\[[\w .,:/+-]{1,40}\]|\([\w -]{1,20}\)"  # [53409] of a router, [INFO], (Process)
    r"|(?:In |Out)?\[[ \d]{0,5}\]:"  # cells of notebooks
    r"|[\w.-]{1,64} +\| "  # compose
    r"|[ \t>|│┃┆]"  # quoting, indentation, tables
)
_MARKUP = r"[`*_•‣▸+\-·#/;%$!\"']"  # lists, Markdown, comments, diffs, shells' prompts, strings
# atomic: there is one way to read each part, so that no line takes long
_DECORATED = re.compile(rf"(?>{_PREFIX}|{_MARKUP}){{1,64}}?(?={_KNOWN})")
_BLANK = re.compile(rf"(?>{_PREFIX}|[+#/\"',]){{1,64}}$")  # fences and rules of Markdown are no blank lines
_SUMMARY = re.compile(rf"(?:[\d.]{{12,16}} )?(?:[IWED] )?(?:{SUMMARY_WORDS}|generated +\d|\[ Prompt: )")
# remarks behind a figure, and the ends of cells, strings and emphasis
_BEHIND = re.compile(r"(?: *(?:<-|←|# |// ).*)?(?:[\"'],|[\s|`*_\"'\\])*$")
_EMPTY = re.compile(r"((?:[\d.]{12,16} )?[IWED])[ \t|]*$")  # an empty line behind llama.cpp's prefix
_COMMA = re.compile(r"(\d),(\d{1,3})(?= (?:ms|seconds|t/s|tokens per second)|%)")  # of programs' locales
_RATE = r"\(.{1,60} per second\)"
_WHOLE = re.compile(  # lines that a terminal may have wrapped, complete
    r"(?:encoded|decoded|generated) +\d+ tokens in +\S+ seconds, speed: +\S+ t/s"
    r"|draft acceptance.*generated\).*|"
    rf".*\b(?:prompt eval|eval|sample|sampling) time += +[\d.]+ ms / +\d+ (?:runs|tokens) +{_RATE}.*"
    r"|.*\b(?:load|total|samplers|sampling|unaccounted) time += +[\d.]+ ms.*"
)
_WRAPS = re.compile(
    r"(?:encoded|decoded|generated) +\d|draft acceptance"
    r"|.{0,60}\b(?:prompt eval|eval|sample|sampling) time += "
)


@dataclass(frozen=True)
class CleanLog:
    """A text without its decorations.

    ``numbers`` has the number of the original line of each line of ``data``, counted from 1.
    """

    data: bytes
    numbers: Sequence[int]

    def number(self, position: int) -> int:
        """Return the number of the original line that has a byte of ``data``."""
        return self.numbers[bisect_left(self._line_ends, position)]

    @cached_property
    def _line_ends(self) -> list[int]:
        return [match.start() for match in re.finditer(b"\n", self.data)]


def clean(raw: bytes) -> CleanLog:
    """Remove what pasting, quoting and other programs added to a log.

    Args:
        raw: the bytes of a file, or a text in UTF-8. A notebook's JSON becomes the text of its cells.
    """
    if raw.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):  # PowerShell redirects in it
        raw = raw.decode("utf-16", errors="replace").encode()
    raw = raw.removeprefix(codecs.BOM_UTF8)
    if len(raw) > _PASTED and _is_plain(raw[:_SAMPLE]) and _is_plain(raw[-_SAMPLE:]):
        return CleanLog(raw, range(1, raw.count(b"\n") + 2))
    lines: list[str] = []
    numbers: list[int] = []
    for number, line in enumerate(_text(raw).split("\n"), 1):
        for part in _parts(line):
            lines.append(_clean_line(part))
            numbers.append(number)
    lines, numbers = _join_wrapped(lines, numbers)
    return CleanLog("\n".join(lines).encode(errors="replace"), numbers)


def _is_plain(sample: bytes) -> bool:
    """Whether a part of a log has no decorations; its first and last line may be cut."""
    lines = sample.decode(errors="replace").split("\n")[1:-1]
    return not any("\r" in line or "\x1b" in line or _DECORATED.match(line.lstrip(" ")) for line in lines)


def _text(raw: bytes) -> str:
    """Return the text of a paste, without entities, typographic characters and terminals' sequences."""
    text = raw.decode(errors="replace")
    if text.lstrip().startswith("{") and '"cells"' in text and (cells := _notebook(text)) is not None:
        text = cells
    for _ in range(2):  # quoting a page of HTML escapes it once more
        if "&" in text and ";" in text:
            text = html.unescape(text)
    text = text.translate(_TYPOGRAPHY)
    return _TERMINAL.sub("", text) if "[" in text or "\x1b" in text else text


def _notebook(text: str) -> str | None:
    """Return what the cells of a Jupyter notebook show: Markdown, commands, outputs; None for other JSON."""
    try:
        cells = json.loads(text)["cells"]
        return "\n\n".join(part.rstrip("\n") for cell in cells for part in _cell(cell)) + "\n"
    except (ValueError, RecursionError, LookupError, TypeError, AttributeError):
        return None


def _cell(cell: dict[str, object]) -> Iterator[str]:
    source = "".join(cell.get("source", ()))  # type: ignore[arg-type]
    if cell["cell_type"] == "markdown":
        yield source
        return
    # a program's text is not what it printed; a command shows where a run begins
    yield "\n".join(line for line in source.split("\n") if line.lstrip().startswith("!"))
    outputs = cell.get("outputs", ())
    for output in outputs:  # type: ignore[attr-defined]
        yield "".join(output.get("text") or output.get("data", {}).get("text/plain") or ())


def _parts(line: str) -> list[str]:
    """Return the lines that are shown as one: behind a carriage return, a tag, or a break within a string."""
    line = line.removesuffix("\r")
    if line.lstrip(" >").startswith(("{“", "{”")):
        line = line.translate(_QUOTES)
    if "<" in line:
        line = _TAG.sub("", line)
    parts = _BREAK.split(line) if "\r" in line or "<br" in line else [line]
    if len(parts) > 1 and not parts[-1].strip():
        parts.pop()
    if " t/s n_draft " in re.sub(" +", " ", line):  # a chat made one line of all
        parts = [piece for part in parts for piece in _LOST_BREAK.split(part)]
    # a log within a string; lines of JSONL have one message each and stay whole
    if '"msg":' not in line and (" t/s\\n" in line or " per second)\\n" in line):
        parts = [piece for part in parts for piece in _LITERAL_BREAK.split(part)]
    return parts


def _clean_line(line: str) -> str:
    if len(line) > _LONGEST:
        return line
    line = line.replace("\t", " ")
    if _BLANK.match(line) is not None:
        return ""
    if _CLEAN.match(line) is None and (decoration := _DECORATED.match(line)) is not None:
        line = line[decoration.end() :]
    if (prefix := _EMPTY.match(line)) is not None:
        return f"{prefix[1]} "
    if _SUMMARY.match(line) is not None:
        line = _BEHIND.sub("", line, count=1)
    line = line.rstrip(" \t|")
    return _COMMA.sub(r"\1.\2", line) if "," in line else line


def _join_wrapped(lines: list[str], numbers: list[int]) -> tuple[list[str], list[int]]:
    """Join lines that a terminal or a mail wrapped; a joined line has the number of its first part."""
    joined: list[str] = []
    kept: list[int] = []
    position = 0
    while position < len(lines):
        line, used = lines[position], 1
        if _WRAPS.match(line) and len(line) <= _LONGEST and not _WHOLE.fullmatch(line):
            line, used = _unwrap(lines[position : position + _WRAPPED])
        joined.append(line)
        kept.append(numbers[position])
        position += used
    return joined, kept


def _unwrap(lines: Sequence[str]) -> tuple[str, int]:
    """Return the first line, with as many of the next ones as complete it, and how many they are."""
    quoted = [lines[0], *(line.lstrip(" \t>|") for line in lines[1:])]  # a mail quotes each of its lines
    for used in range(2, len(lines) + 1):
        for parts in (lines[:used], quoted[:used]):
            for glue in ("", " "):  # terminals wrap anywhere, mails between words
                whole = glue.join(parts)
                if _WHOLE.fullmatch(whole):
                    return whole, used
    return lines[0], 1
