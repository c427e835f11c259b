"""How far a bench has come, and the command that goes on with it."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence

import click

from ggufspec.results import ResultSet

_NAMING = ("--name", "--resume")  # options that say which bench is meant; both take a value


def incomplete(results: ResultSet) -> str:
    """Return what stands above the table of a bench without all of its runs; nothing for a complete one."""
    if results.is_complete is not False:
        return ""
    command = command_line(results.meta.command, results.meta.id)
    return f"Incomplete: {progress(results)}.{continued(command)}\n\n"


def progress(results: ResultSet) -> str:
    """Return how many runs there are: ``3 of 24 runs``; ``3 runs`` where nobody recorded the plan."""
    planned = results.meta.planned_runs
    return f"{len(results.current)}{'' if planned is None else f' of {planned}'} runs"


def continued(command: str | None) -> str:
    """Return a sentence with the command that goes on with a bench; nothing where none can."""
    return "" if command is None else f" Continue with: {command}"


def command_line(argv: Sequence[str], name: str) -> str | None:
    """Return the command that goes on with a bench, ready to paste into a shell.

    Args:
        argv: the command line that began it.
        name: the bench.

    Returns:
        The command; None where a notebook began it, or a command that cannot go on, such as ``tune``.
    """
    commands = click.get_current_context().find_root()
    assert isinstance(commands.command, click.Group)
    words = argv[1:]
    command = next((word for word in words if not word.startswith("-")), None)  # only flags stand before it
    found = commands.command.get_command(commands, command) if command else None
    options = [] if found is None else [param for param in found.params if isinstance(param, click.Option)]
    if not any(_NAMING[1] in option.opts for option in options):
        return None
    return shlex.join(["ggufspec", *_without_name(words, options), _NAMING[1], name])


def _without_name(words: Sequence[str], options: Sequence[click.Option]) -> Iterator[str]:
    """Yield the words of a command line but the options that name a bench, and their values."""
    with_value = {flag for option in options if not option.is_flag for flag in option.opts}
    rest = iter(words)
    for word in rest:
        values = [next(rest, "")] if word in with_value else []  # it may look like an option
        if word.partition("=")[0] not in _NAMING:
            yield word
            yield from values
