"""Lines typed into the console, parsed into frozen values: a prompt or a slash command."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from enum import Enum
from functools import partial
from pathlib import Path
from typing import NamedTuple

from ggufspec import paths
from ggufspec.errors import GgufspecError
from ggufspec.options import kinds

MOST_DRAFT = 64
_LEAST_LENGTH = 2


@dataclass(frozen=True)
class Say:
    """A prompt. An empty one lets the model continue."""

    text: str


@dataclass(frozen=True)
class ChangeSetting:
    """Change a field of ``ChatSettings``; None shows it, except that it removes the system prompt.

    Of ``sampling``, the value has the fields that change.
    """

    field: str
    value: bool | int | str | Mapping[str, float] | None


@dataclass(frozen=True)
class Compare:
    """Answer one prompt with the target, the drafter and drafting."""

    prompt: str


@dataclass(frozen=True)
class Save:
    """Write the transcript and the measurements to a file."""

    path: Path


class Action(Enum):
    """A command without an argument."""

    CLEAR = "start a new conversation"
    STATS = "show the measurements so far"
    HELP = "show this list"
    QUIT = "leave; Ctrl-D does the same"


Command = Say | ChangeSetting | Compare | Save | Action


class Usage(NamedTuple):
    """How a command is written, what it does, and the function that parses its argument."""

    words: str
    description: str
    read: Callable[[str], Command]
    values: tuple[str, ...] = ()  # arguments for completion


_SAMPLER_KEYS: Mapping[str, tuple[str, kinds.Kind]] = {
    "temp": ("temperature", kinds.Number(0)),
    "top_k": ("top_k", kinds.Count(0)),
    "top_p": ("top_p", kinds.Number(0, 1)),
    "min_p": ("min_p", kinds.Number(0, 1)),
    "seed": ("seed", kinds.Count(0)),
}
"""What is typed -> the field of ``Sampling``, and its values."""


def parse_line(line: str) -> Command:
    """Return the command of a line. ``//`` at the start stands for a prompt that begins with a slash.

    Raises:
        GgufspecError: the command or its argument is unknown; the hint shows the usage.
    """
    if not line.startswith("/"):
        return Say(line)
    if line.startswith("//"):
        return Say(line[1:])
    name, _, argument = line[1:].strip().partition(" ")
    usage = COMMANDS.get(name.lower())
    if usage is None:
        close = get_close_matches(name.lower(), COMMANDS, n=1, cutoff=0.5)
        prefixed = [command for command in COMMANDS if name and command.startswith(name.lower())]
        suggestion = next(iter(prefixed or close), None)
        advice = "/help lists the commands; write // to begin a prompt with a slash"
        hint = f"did you mean /{suggestion}?" if suggestion else advice
        raise GgufspecError(f"there is no command /{name}", hint)
    try:
        return usage.read(argument.strip())
    except ValueError as error:
        raise GgufspecError(str(error).rstrip("."), f"usage: {usage.words}") from error


def complete(text: str) -> tuple[tuple[str, str], ...]:
    """Return completions for the last word of a line, each with its description."""
    if not text.startswith("/") or text.startswith("//"):
        return ()
    name, blank, rest = text[1:].partition(" ")
    if not blank:
        return tuple(
            (f"/{command}", usage.description)
            for command, usage in COMMANDS.items()
            if command.startswith(name)
        )
    usage = COMMANDS.get(name)
    last = rest.rpartition(" ")[2]
    return tuple((value, "") for value in (usage.values if usage else ()) if value.startswith(last))


def _read_drafting(argument: str) -> Command:
    on = kinds.Word("on", "off").parse(argument.lower()) == "on" if argument else None
    return ChangeSetting("drafts", on)


def _read_count(field: str, kind: kinds.Count, argument: str) -> Command:
    return ChangeSetting(field, kind.parse(argument) if argument else None)


def _read_sampler(argument: str) -> Command:
    changes: dict[str, float] = {}
    for word in argument.split():
        name, equals, text = word.partition("=")
        key = {"temperature": "temp"}.get(name, name).replace("-", "_")
        if key not in _SAMPLER_KEYS or not equals:
            raise ValueError(f"{word!r} is not a sampler setting")
        field, kind = _SAMPLER_KEYS[key]
        changes[field] = kind.parse(text)
    return ChangeSetting("sampling", changes)


def _read_compare(argument: str) -> Command:
    if not argument:
        raise ValueError("the prompt is missing")
    return Compare(argument)


def _read_save(argument: str) -> Command:
    path = paths.with_home(argument)
    if path.suffix.lower() not in {".md", ".json"}:
        raise ValueError(f"{argument!r} is not a .md or .json file" if argument else "the file is missing")
    return Save(path)


def _usage(action: Action) -> Usage:
    """Return the usage of a command without an argument."""

    def read(argument: str) -> Command:
        if argument:
            raise ValueError(f"/{action.name.lower()} takes no argument")
        return action

    return Usage(f"/{action.name.lower()}", action.value, read)


COMMANDS: Mapping[str, Usage] = {
    "draft": Usage("/draft on|off", "switch drafting on or off", _read_drafting, ("on", "off")),
    "gamma": Usage(
        "/gamma N",
        "draft at most N tokens per round",
        partial(_read_count, "draft_size", kinds.Count(1, MOST_DRAFT)),
    ),
    "sampler": Usage(
        "/sampler temp=0.8 top_k=40 top_p=0.95 min_p=0.05 seed=1",
        "set the sampler; temp=0 is greedy",
        _read_sampler,
        tuple(f"{name}=" for name in _SAMPLER_KEYS),
    ),
    "length": Usage(
        "/length N",
        "answer with at most N tokens",
        partial(_read_count, "n_predict", kinds.Count(_LEAST_LENGTH)),
    ),
    "system": Usage(
        "/system TEXT",
        "set the system prompt; without TEXT, remove it",
        lambda text: ChangeSetting("system", text or None),
    ),
    "compare": Usage(
        "/compare PROMPT", "answer with target, drafter and drafting side by side", _read_compare
    ),
    "clear": _usage(Action.CLEAR),
    "save": Usage("/save PATH", "write the transcript and measurements: .md or .json", _read_save),
    "stats": _usage(Action.STATS),
    "help": _usage(Action.HELP),
    "quit": _usage(Action.QUIT),
}
"""Name -> how it is written and read, in the order of the help."""
