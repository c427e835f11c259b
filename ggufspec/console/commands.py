"""Lines typed into the console, parsed into frozen values: a prompt or a slash command."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from enum import Enum
from functools import partial
from pathlib import Path
from typing import NamedTuple, NoReturn

from ggufspec import paths
from ggufspec.errors import GgufspecError

MOST_DRAFT = 64
_LEAST_LENGTH = 2
_MOST = 10**9  # tokens; no text is longer


@dataclass(frozen=True)
class Say:
    """A prompt. An empty one lets the model continue."""

    text: str


@dataclass(frozen=True)
class ChangeSetting:
    """Change a field of ``ChatSettings``; None shows it, except that it removes the system prompt."""

    field: str
    value: bool | int | str | None


@dataclass(frozen=True)
class SetSampler:
    """Change sampler settings, named like the fields of Sampling; without changes, show them."""

    changes: tuple[tuple[str, float], ...]


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


Command = Say | ChangeSetting | SetSampler | Compare | Save | Action


class Usage(NamedTuple):
    """How a command is written, what it does, and the function that parses its argument."""

    words: str
    description: str
    read: Callable[[str], Command]
    values: tuple[str, ...] = ()  # arguments for completion


class _SamplerKey(NamedTuple):
    field: str  # of Sampling
    number_type: type[int] | type[float]
    most: float | None


_SAMPLER_KEYS: Mapping[str, _SamplerKey] = {
    "temp": _SamplerKey("temperature", float, None),
    "top_k": _SamplerKey("top_k", int, None),
    "top_p": _SamplerKey("top_p", float, 1),
    "min_p": _SamplerKey("min_p", float, 1),
    "seed": _SamplerKey("seed", int, None),
}


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
    return usage.read(argument.strip())


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
    states = {"": None, "on": True, "off": False}
    if argument.lower() not in states:
        _raise_misuse("draft", f"{argument!r} is not on or off")
    return ChangeSetting("drafts", states[argument.lower()])


def _read_count(name: str, field: str, least: int, most: int, argument: str) -> Command:
    if not argument:
        return ChangeSetting(field, None)
    number = int(argument) if argument.isdecimal() and argument.isascii() and len(argument) < 10 else -1
    if not least <= number <= most:
        bound = f"from {least}" + (f" to {most}" if most < _MOST else "")
        _raise_misuse(name, f"{argument!r} is not a whole number {bound}")
    return ChangeSetting(field, number)


def _read_sampler(argument: str) -> Command:
    changes: dict[str, float] = {}
    for word in argument.split():
        name, equals, text = word.partition("=")
        key = _SAMPLER_KEYS.get({"temperature": "temp"}.get(name, name).replace("-", "_"))
        if key is None or not equals:
            _raise_misuse("sampler", f"{word!r} is not a sampler setting")
        try:
            value = key.number_type(text)
        except ValueError:
            _raise_misuse("sampler", f"{text!r} is not a number for {name}")
        if not 0 <= value <= (key.most or float("1e9")):
            _raise_misuse(
                "sampler", f"{name} must be at least 0" + (f" and at most {key.most:g}" if key.most else "")
            )
        changes[key.field] = value
    return SetSampler(tuple(changes.items()))


def _read_compare(argument: str) -> Command:
    if not argument:
        _raise_misuse("compare", "the prompt is missing")
    return Compare(argument)


def _read_save(argument: str) -> Command:
    try:
        path = paths.with_home(argument)
    except ValueError as error:
        _raise_misuse("save", str(error))
    if path.suffix.lower() not in {".md", ".json"}:
        _raise_misuse(
            "save", f"{argument!r} is not a .md or .json file" if argument else "the file is missing"
        )
    return Save(path)


def _usage(action: Action) -> Usage:
    """Return the usage of a command without an argument."""
    name = action.name.lower()

    def read(argument: str) -> Command:
        if argument:
            _raise_misuse(name, f"/{name} takes no argument")
        return action

    return Usage(f"/{name}", action.value, read)


def _raise_misuse(name: str, problem: str) -> NoReturn:
    raise GgufspecError(problem, f"usage: {COMMANDS[name].words}")


COMMANDS: Mapping[str, Usage] = {
    "draft": Usage("/draft on|off", "switch drafting on or off", _read_drafting, ("on", "off")),
    "gamma": Usage(
        "/gamma N",
        "draft at most N tokens per round",
        partial(_read_count, "gamma", "draft_size", 1, MOST_DRAFT),
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
        partial(_read_count, "length", "n_predict", _LEAST_LENGTH, _MOST),
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
