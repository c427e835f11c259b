"""Which command of a text is meant, from wherever the text comes."""

from __future__ import annotations

from pathlib import Path

from ggufspec import paths, userfiles
from ggufspec.errors import GgufspecError
from ggufspec.pasting.reading import PastedCommand, read_command
from ggufspec.pasting.texts import FoundCommand, find_commands


def paste(text: str | Path, name: str | None = None) -> PastedCommand:
    """Read the command of llama.cpp that you run today, as ``ggufspec bench --from`` does; nothing is run.

    Its ``options`` are a bench of it, ``tuning`` a tuning, and ``notes`` say what was translated, left out
    and not read. Variables that may change its speed are in ``variables``.

    Args:
        text: a command, script, systemd unit, Compose or llama-swap file, or a line of ps; a Path is a file.
        name: which of its commands, where there are several.

    Raises:
        GgufspecError: it cannot be read, or holds no such command, or several.
    """
    if isinstance(text, Path):
        return read_command(choose_command(read_text(text), text.absolute().parent, name, source=str(text)))
    return read_command(choose_command(text, None, name, source="the text"))


def read_text(path: Path) -> str:
    """Return the text of a file.

    Raises:
        GgufspecError: it cannot be read.
    """
    try:
        return userfiles.read_text(path)
    except OSError as error:
        raise GgufspecError(
            f"{paths.shown(path)} cannot be read: {error.strerror}", "check the path"
        ) from error


def choose_command(text: str, folder: Path | None, name: str | None, *, source: str) -> FoundCommand:
    """Return the command of a text; of several the one with a name.

    Args:
        text: with commands of llama.cpp.
        folder: of its file.
        name: of the command; None where the text has one.
        source: what the text is called in messages.

    Raises:
        GgufspecError: there is none, or more than one.
    """
    commands = find_commands(text, folder)
    if name is not None:
        commands = tuple(command for command in commands if command.name == name)
    if not commands:
        raise GgufspecError(
            f"{source} has no command of llama.cpp" + (f" named {name}" if name else ""),
            "its programs are llama-server, llama-cli, llama-completion and llama-speculative",
        )
    if len(commands) > 1:
        names = ", ".join(command.name for command in commands)
        raise GgufspecError(
            f"{source} has {len(commands)} commands of llama.cpp: {names}",
            f"choose one: --from {source}#{commands[0].name}, or in Python name={commands[0].name!r}",
        )
    return commands[0]
