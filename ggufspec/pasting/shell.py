"""Read shell text without running it: words, quotes, variables, arrays, continued lines."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

UNKNOWN = "\0"
"""Begins the part of a word that only a shell could know; the reason follows, up to the next one."""


def unknown(what: str) -> str:
    """Return the mark of something that only a shell knows. Only its name is kept, never a command."""
    is_name = what.startswith("$") or re.fullmatch("%.", what)  # the latter of a unit of systemd
    return f"{UNKNOWN}{what if is_name else '$(…)'}{UNKNOWN}"


_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)(\+?)=")
_NAME = re.compile(r"[A-Za-z_]\w*")
_REFERENCE = re.compile(r"(?:env:)?([A-Za-z_]\w*)", re.IGNORECASE)  # env: in PowerShell
_POWERSHELL = re.compile(r"\$(env:)?([A-Za-z_]\w*)[ \t]*=[ \t]*", re.IGNORECASE)
_SPLATTED = re.compile(r"@([A-Za-z_]\w*)")  # in PowerShell: an array as the words of a command
_DEFAULT = re.compile(r"([A-Za-z_]\w*|\d)(?::?[-=])(.*)", re.DOTALL)
_ARRAY_BEGINS = re.compile(r"@?\(")  # the former in PowerShell
_ARRAY = re.compile(r"([A-Za-z_]\w*)\[[@*]\]")
# of POSIX shells, of cmd and of PowerShell; a terminal begins the next line with > or >>
_CONTINUED = re.compile(r"(?:[\\^`])[ \t]*\n(?:>{1,2}[ \t]+(?=-))?")
_BLANKS = {ord(blank): " " for blank in "\u00a0\u2007\u2009\u202f"}  # as web pages write them
_BLANKS |= {ord(invisible): "" for invisible in "\u200b\u2060\ufeff"}
_CURLY = {"\u201c": "\u201d", "\u2018": "\u2019"}  # quotes as word processors write them
_WINDOWS = re.compile(
    r"(?:^|[\s\"'=])[A-Za-z]:\\|(?:^|\s)\.\\\w|\.exe\b|^\s*@echo off", re.MULTILINE | re.IGNORECASE
)
_PROMPT = re.compile(
    r"^[ \t]*(?:\([\w.-]+\)[ \t]+)?(?:\S+@\S+[:~]\S*)?[$%>❯][ \t]+(?=\S)"
    r"|^(?:PS )?[A-Za-z]:\\[^\n>\"]*>[ \t]*",
    re.MULTILINE,
)
_REMARK = re.compile(r"\s*(?:@?rem\b|::)", re.IGNORECASE)  # of batch files, as are the next two
_SET = re.compile(r"\s*@?set\s+\"?(\w+)=(.*?)\"?\s*$", re.IGNORECASE)
_PERCENT = re.compile(r"%(?:(\w+)%|~dp0)")
_PRODUCT = re.compile(r"\(\s*\d{1,9}(?:\s*\*\s*\d{1,9})*\s*\)")
_FENCE = re.compile(r"^[ \t]*```.*$", re.MULTILINE)
_INLINE = re.compile(r"^[ \t]*`([^`\n]+)`[ \t]*$", re.MULTILINE)  # of Markdown
_MOST_DEFAULTS = 8  # one in another
_OWN = ("HOME", "USER")  # variables of the environment that texts may use: they name folders
_ENDS = (";", "&", "|", "\n", ")")
_REDIRECTION = re.compile(r"\d*(?:>>|>&|<<<|<<|&>|[<>])")
_MOST = 1 << 20  # characters of a text


@dataclass
class Words:
    """The words of one simple command, and the variables that are set for it alone."""

    words: list[str] = field(default_factory=list)
    variables: dict[str, str] = field(default_factory=dict)
    folder: str | None = None


def read_commands(text: str, variables: Mapping[str, str] | None = None) -> Iterator[Words]:
    """Yield the simple commands of a shell text in their order, with variables expanded.

    A command that only sets variables changes those of the following ones; ``cd`` changes the folder of the
    following ones. Nothing is run: what a shell would have to compute becomes ``UNKNOWN``.
    """
    text = text[:_MOST].replace("\r\n", "\n").translate(_BLANKS)
    text = _INLINE.sub(r"\1", _FENCE.sub("", text))
    is_windows = _WINDOWS.search(text) is not None
    text = _PROMPT.sub("", _CONTINUED.sub(" ", _expand_batch(text) if is_windows else text))
    reader = _ShellReader(text, dict(variables or {}), literal_backslashes=is_windows)
    folder: str | None = None
    while reader.place < len(text):
        command = reader.read_command()
        if not command.words:
            reader.variables |= command.variables
            continue
        if command.words[0] in {"export", "declare", "set", "setx", "local", "readonly"}:
            for word in command.words[1:]:
                name, separator, value = word.partition("=")
                if _NAME.fullmatch(name):
                    reader.variables |= {name: value} if separator else {}
                    reader.exported.add(name)
            continue
        if command.words[0] in {"cd", "pushd"} and len(command.words) > 1:
            folder = os.path.join(folder or "", command.words[-1])  # noqa: PTH118  # it may be UNKNOWN
            continue
        exported = {name: value for name, value in reader.variables.items() if name in reader.exported}
        command.variables = {**exported, **command.variables}
        command.folder = folder
        yield command


def _expand_batch(text: str) -> str:
    """Return a batch file with the variables that it sets, and without its remarks."""
    variables = {"CD": "."}
    lines: list[str] = []
    for line in text.split("\n"):
        if _REMARK.match(line):
            continue
        expanded = _PERCENT.sub(
            lambda match: variables.get(match[1].upper(), f"${match[1]}") if match[1] else "./", line
        )
        if match := _SET.match(expanded):
            variables[match[1].upper()] = match[2]
        lines.append(expanded)
    return "\n".join(lines)


def split_words(text: str, variables: Mapping[str, str] | None = None) -> list[str]:
    """Return the words of one command line, in which line breaks are blanks."""
    lines = (line for line in text.splitlines() if not line.lstrip().startswith("#"))
    joined = _CONTINUED.sub(" ", "\n".join(lines)).replace("\n", " ")
    return _ShellReader(joined, dict(variables or {})).read_command().words


def _continue(parts: list[str], words: Sequence[str]) -> None:
    """Add words: the first one goes on where the last part ends."""
    parts[-1:] = [parts[-1] + "".join(words[:1]), *words[1:]]


class _ShellReader:
    """Reads a text from left to right; ``place`` is the next character."""

    def __init__(self, text: str, variables: dict[str, str], *, literal_backslashes: bool = False) -> None:
        self.text, self.place, self.variables = text, 0, variables
        self.arrays: dict[str, list[str]] = {}
        self.exported: set[str] = set()
        self._literal_backslashes = literal_backslashes
        self._depth = 0  # of defaults of variables

    def read_command(self) -> Words:
        """Return the next simple command, up to a separator; empty where there is none."""
        command = Words()
        while self.place < len(self.text):
            character = self.text[self.place]
            if character in " \t":
                self.place += 1
            elif character == "#":
                self._skip_line()
            elif character == "(" or (character == "&" and self.text[self.place + 1 : self.place + 2] == ">"):
                self.place += 1
            elif character in _ENDS:
                self.place += 1
                break
            elif redirection := _REDIRECTION.match(self.text, self.place):
                self.place = redirection.end()
                while self.text[self.place : self.place + 1] in {" ", "\t"}:
                    self.place += 1
                self._read_word()
            elif not command.words and (match := _ASSIGNMENT.match(self.text, self.place)):
                self.place = match.end()
                self._assign(command, match[1], adds=bool(match[2]))
            elif not command.words and (match := _POWERSHELL.match(self.text, self.place)):
                self.place = match.end()
                self._assign(command, match[2], adds=False)
                if match[1]:
                    self.exported.add(match[2])
            elif (match := _SPLATTED.match(self.text, self.place)) and match[1] in self.arrays:
                self.place = match.end()
                command.words += self.arrays[match[1]]
            else:
                command.words += self._read_word()
        return command

    def _assign(self, command: Words, name: str, *, adds: bool) -> None:
        if opening := _ARRAY_BEGINS.match(self.text, self.place):
            self.place = opening.end()
            between = " \t\n," if opening[0] == "@(" else " \t\n"
            words: list[str] = list(self.arrays.get(name, ())) if adds else []
            while self.place < len(self.text) and self.text[self.place] != ")":
                if self.text[self.place] in between:
                    self.place += 1
                elif self.text[self.place] == "#":
                    self._skip_line()
                else:
                    words += self._read_word(stops=f"{between})")
            self.place += 1
            self.arrays[name] = words
            return
        before = self.variables.get(name, "") if adds else ""
        is_end = self.place >= len(self.text) or self.text[self.place] in " \t\n;&|"
        value = () if is_end else self._read_word(splits=False)
        command.variables[name] = before + "".join(value)

    def _skip_line(self) -> None:
        end = self.text.find("\n", self.place)
        self.place = len(self.text) if end < 0 else end

    def _read_word(self, *, stops: str = " \t\n;&|<>)", splits: bool = True) -> list[str]:
        """Return what a word stands for: one word, or several of an array or of a variable without quotes."""
        parts, whole = [""], False
        while self.place < len(self.text) and self.text[self.place] not in stops:
            character = self.text[self.place]
            if character == "'":
                end = self.text.find("'", self.place + 1)
                end = len(self.text) if end < 0 else end
                parts[-1] += self.text[self.place + 1 : end]
                self.place, whole = end + 1, True
            elif character == '"':
                self.place += 1
                whole = not self._read_quoted(parts)
            elif character in _CURLY and (end := self.text.find(_CURLY[character], self.place + 1)) > 0:
                parts[-1] += self.text[self.place + 1 : end]
                self.place, whole = end + 1, True
            elif character == "\\" and not self._literal_backslashes:
                parts[-1] += self.text[self.place + 1 : self.place + 2]
                self.place += 2
            elif character in "$`":
                words = self._expand()
                _continue(parts, [piece for word in words for piece in (word.split() if splits else [word])])
            else:
                parts[-1] += character
                self.place += 1
        return [part for part in parts if part] or ([""] if whole else [])

    def _read_quoted(self, parts: list[str]) -> bool:
        """Read up to the closing quote; return whether it held an array without words."""
        was_empty_array = False
        while self.place < len(self.text) and self.text[self.place] != '"':
            character = self.text[self.place]
            following = self.text[self.place + 1 : self.place + 2]
            if character == "\\" and following in {'"', "\\", "$", "`"} and not self._literal_backslashes:
                parts[-1] += following
                self.place += 2
            elif character in "$`":
                words = self._expand()
                was_empty_array = not words
                _continue(parts, words)
            else:
                parts[-1] += character
                self.place += 1
        self.place += 1
        return was_empty_array

    def _expand(self) -> list[str]:
        """Return what a variable, an array or a computation stands for."""
        if self.text[self.place] == "`":
            return [unknown(self._until("`", self.place + 1))]
        self.place += 1
        following = self.text[self.place : self.place + 1]
        if following == "(":
            computed = self._balanced("(", ")")
            if _PRODUCT.fullmatch(computed):
                return [str(math.prod(map(int, re.findall(r"\d+", computed))))]
            return ["." if computed.strip() == "pwd" else unknown(computed)]
        if following == "{":
            return self._named(self._balanced("{", "}"))
        if match := _REFERENCE.match(self.text, self.place):
            self.place = match.end()
            return self._named(match[1])
        if following and following in "@*#?$!0123456789":
            self.place += 1
            return [] if following in "@*" else [unknown(f"${following}")]
        return ["$"]

    def _named(self, expression: str) -> list[str]:
        if array := _ARRAY.fullmatch(expression):
            return self.arrays.get(array[1], [])
        default = _DEFAULT.fullmatch(expression)
        name = default[1] if default else expression
        if name in self.variables:
            return [self.variables[name]]
        if name in _OWN and name in os.environ:
            return [os.environ[name]]
        if name == "PWD":
            return ["."]
        if default and self._depth < _MOST_DEFAULTS:
            nested = _ShellReader(default[2], self.variables)
            nested._depth = self._depth + 1
            return ["".join(nested._read_word(stops="", splits=False))]
        return [unknown(f"${name}")]

    def _until(self, end: str, start: int) -> str:
        stop = self.text.find(end, start)
        stop = len(self.text) if stop < 0 else stop
        self.place = stop + 1
        return self.text[start:stop]

    def _balanced(self, opening: str, closing: str) -> str:
        start, depth = self.place + 1, 0
        while self.place < len(self.text):
            depth += (self.text[self.place] == opening) - (self.text[self.place] == closing)
            self.place += 1
            if depth == 0:
                break
        return self.text[start : self.place - 1]
