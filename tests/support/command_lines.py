"""Commands and their options without running them."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from typing import Any

import click

from ggufspec.cli import COMMANDS, cli
from ggufspec.cli.entry.command import Command
from ggufspec.cli.entry.parameters import read_options


@functools.cache  # making all of them takes 20 ms
def commands() -> Mapping[str, Command]:
    """Return every command that has options as one value, by its path: ``bench``, ``fleet sweep``, …"""
    return {path: command for path, command in _commands() if isinstance(command, Command)}


def options() -> Iterator[tuple[str, click.Option]]:
    """Yield every option that a help shows, after the path of its command or group of commands."""
    for path, command in _commands():
        for param in command.params:
            if isinstance(param, click.Option) and not param.hidden:
                yield path, param


def _commands() -> Iterator[tuple[str, click.Command]]:
    context = click.Context(cli)
    todo = [(name, cli.get_command(context, name)) for name in COMMANDS]
    while todo:
        path, command = todo.pop(0)
        assert command is not None
        yield path, command
        if isinstance(command, click.Group):
            todo += [(f"{path} {name}", inner) for name, inner in command.commands.items()]


def read(path: str, *words: str) -> Any:
    """Return the options that a command's words are read as."""
    command = commands()[path]
    with command.make_context(path, [*words], **cli.context_settings) as context:
        return read_options(command.options, context.params)
