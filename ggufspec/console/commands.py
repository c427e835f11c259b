"""What is typed into the console -> frozen values: a text to say, or a slash command."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import NamedTuple, NoReturn

from ggufspec.errors import GgufspecError

MOST_DRAFT = 64
_LEAST_LENGTH = 2


@dataclass(frozen=True)
class Say:
    """A text for the model; an empty one lets it go on."""

    text: str


@dataclass(frozen=True)
class Draft:
    """Switch drafting on or off; None asks which it is."""

    on: bool | None


@dataclass(frozen=True)
class Gamma:
    """Draft at most so many tokens per round; None asks how many."""

    size: int | None


@dataclass(frozen=True)
class Sampler:
    """Change some of the sampler's settings, under the names that Sampling has; none asks for them."""

    changes: tuple[tuple[str, float], ...]


@dataclass(frozen=True)
class Length:
    """Answer with at most so many tokens; None asks how many."""

    tokens: int | None


@dataclass(frozen=True)
class System:
    """Take a system prompt; None takes it away."""

    text: str | None


@dataclass(frozen=True)
class Compare:
    """Let target, drafter and both together answer the same prompt."""

    prompt: str


@dataclass(frozen=True)
class Save:
    """Write the transcript and what was measured."""

    path: Path


@dataclass(frozen=True)
class Clear:
    """Forget the conversation."""


@dataclass(frozen=True)
class Stats:
    """Show what was measured so far."""


@dataclass(frozen=True)
class Help:
    """Show what can be typed."""


@dataclass(frozen=True)
class Quit:
    """Leave."""


Command = Say | Draft | Gamma | Sampler | Length | System | Compare | Save | Clear | Stats | Help | Quit


class Usage(NamedTuple):
    """How a command is written, what it does, and what reads its argument."""

    words: str
    does: str
    read: Callable[[str], Command]
    values: tuple[str, ...] = ()  # what may come next, for completion


class _Key(NamedTuple):
    field: str  # of Sampling
    kind: type[int] | type[float]
    most: float | None


_KEYS: Mapping[str, _Key] = {
    "temp": _Key("temperature", float, None),
    "top_k": _Key("top_k", int, None),
    "top_p": _Key("top_p", float, 1),
    "min_p": _Key("min_p", float, 1),
    "seed": _Key("seed", int, None),
}


def parse_line(line: str) -> Command:
    """Return what a line means. A text that begins with a slash is written with two.

    Raises:
        GgufspecError: no such command, or it cannot be read; the hint says how it is written.
    """
    if not line.startswith("/"):
        return Say(line)
    if line.startswith("//"):
        return Say(line[1:])
    name, _, argument = line[1:].strip().partition(" ")
    usage = COMMANDS.get(name.lower())
    if usage is None:
        close = get_close_matches(name.lower(), COMMANDS, n=1, cutoff=0.5)
        begun = [known for known in COMMANDS if name and known.startswith(name.lower())]
        meant = next(iter(begun or close), None)
        otherwise = "/help lists the commands; a text that begins with a slash is written with two"
        hint = f"did you mean /{meant}?" if meant else otherwise
        raise GgufspecError(f"there is no command /{name}", hint)
    return usage.read(argument.strip())


def complete(text: str) -> tuple[tuple[str, str], ...]:
    """Return what may stand in place of the last word of a line, each with a word of explanation."""
    if not text.startswith("/") or text.startswith("//"):
        return ()
    name, blank, rest = text[1:].partition(" ")
    if not blank:
        return tuple((f"/{known}", usage.does) for known, usage in COMMANDS.items() if known.startswith(name))
    usage = COMMANDS.get(name)
    last = rest.rpartition(" ")[2]
    return tuple((value, "") for value in (usage.values if usage else ()) if value.startswith(last))


def _draft(argument: str) -> Command:
    states = {"": None, "on": True, "off": False}
    if argument.lower() not in states:
        _misread("draft", f"drafting is on or off, not {argument!r}")
    return Draft(states[argument.lower()])


def _gamma(argument: str) -> Command:
    return Gamma(_whole("gamma", argument, least=1, most=MOST_DRAFT) if argument else None)


def _length(argument: str) -> Command:
    return Length(_whole("length", argument, least=_LEAST_LENGTH, most=None) if argument else None)


def _whole(name: str, text: str, *, least: int, most: int | None) -> int:
    number = int(text) if text.isdecimal() and text.isascii() and len(text) < 10 else -1
    if number < least or (most is not None and number > most):
        bound = f"from {least}" + (f" to {most}" if most is not None else "")
        _misread(name, f"{text!r} is no whole number {bound}")
    return number


def _sampler(argument: str) -> Command:
    changes: dict[str, float] = {}
    for word in argument.split():
        name, equals, text = word.partition("=")
        key = _KEYS.get({"temperature": "temp"}.get(name, name).replace("-", "_"))
        if key is None or not equals:
            _misread("sampler", f"{word!r} is no setting of the sampler")
        try:
            value = key.kind(text)
        except ValueError:
            _misread("sampler", f"{text!r} is no number for {name}")
        if not 0 <= value <= (key.most or float("1e9")):
            _misread("sampler", f"{name} goes from 0" + (f" to {key.most:g}" if key.most else ""))
        changes[key.field] = value
    return Sampler(tuple(changes.items()))


def _compare(argument: str) -> Command:
    if not argument:
        _misread("compare", "there is nothing to compare on")
    return Compare(argument)


def _save(argument: str) -> Command:
    path = Path(argument).expanduser()
    if path.suffix.lower() not in {".md", ".json"}:
        _misread("save", f"{argument or 'nothing'!r} names no .md or .json file")
    return Save(path)


def _alone(name: str, command: Command) -> Callable[[str], Command]:
    def read(argument: str) -> Command:
        if argument:
            _misread(name, f"/{name} stands alone")
        return command

    return read


def _misread(name: str, what: str) -> NoReturn:
    raise GgufspecError(what, f"it is written {COMMANDS[name].words}")


COMMANDS: Mapping[str, Usage] = {
    "draft": Usage("/draft on|off", "draft, or let the target write alone", _draft, ("on", "off")),
    "gamma": Usage("/gamma N", "draft at most N tokens per round", _gamma),
    "sampler": Usage(
        "/sampler temp=0.8 top_k=40 top_p=0.95 min_p=0.05 seed=1",
        "choose tokens like this; temp=0 is greedy",
        _sampler,
        tuple(f"{name}=" for name in _KEYS),
    ),
    "length": Usage("/length N", "answer with at most N tokens", _length),
    "system": Usage(
        "/system TEXT", "use this system prompt; without TEXT, none", lambda text: System(text or None)
    ),
    "compare": Usage("/compare PROMPT", "target, drafter and drafting side by side", _compare),
    "clear": Usage("/clear", "forget the conversation", _alone("clear", Clear())),
    "save": Usage("/save PATH", "write transcript and figures: .md or .json", _save),
    "stats": Usage("/stats", "show what was measured so far", _alone("stats", Stats())),
    "help": Usage("/help", "show this", _alone("help", Help())),
    "quit": Usage("/quit", "leave; so does Ctrl-D", _alone("quit", Quit())),
}
"""Name -> how it is written and read, in the order of the help."""
