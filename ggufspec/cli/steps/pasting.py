"""The command of llama.cpp that follows ``--``, or stands in a file: read, shown, and measured as options."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import click

from ggufspec import pasting, paths
from ggufspec.cli.entry.output import echo, echo_sentence
from ggufspec.cli.entry.terminal import READ_AS, read_standard_input
from ggufspec.errors import GgufspecError
from ggufspec.options import BenchOptions, TuneOptions
from ggufspec.pasting import FoundCommand, PastedCommand
from ggufspec.report.text import judgements
from ggufspec.results import ResultSet

T = TypeVar("T", BenchOptions, TuneOptions)

_STANDARD_INPUT = "-"
_COMMANDS: Mapping[type, str] = {BenchOptions: "bench", TuneOptions: "tune"}
"""What measures options; `why` runs a bench."""

_TYPED = "-- "  # begins a command that stands on this command line


def read_asked(asked: T) -> tuple[T, PastedCommand | None]:
    """Return options with those of the pasted command, and what it was read as; None without a command.

    Options that stand on this command line win over those of the pasted one; settings do not.

    Raises:
        GgufspecError: the text cannot be read, or holds no command, or several.
    """
    found = _find(asked)
    if found is None:
        return asked, None
    pasted = pasting.read_command(found)
    for note in pasted.notes:
        echo_sentence(note)
    os.environ.update(pasted.variables)
    typed = typed_options()
    values = _values(pasted, asked, typed)
    merged: T = asked.replace(
        **{name: value for name, value in values.items() if name not in typed},
        from_text=None,
    )
    command = _COMMANDS[type(merged)]
    shown: T = merged if "output" in typed else merged.replace(output="")  # that of the terminal
    words = ("ggufspec", command, *shown.to_argv())  # which have no secrets
    click.get_current_context().meta[READ_AS] = words
    echo(f"read as: {shlex.join(words)}", err=True)
    return merged, pasted


def print_advice(results: ResultSet, pasted: PastedCommand, asked: BenchOptions) -> None:
    """Print on standard error whether the command's drafting pays, and what to change in it."""
    users = asked.parallel if asked.parallel is not None and len(asked.parallel) == 1 else None
    tuning = asked.to(
        TuneOptions,
        draft=(),
        p_min=TuneOptions().p_min,
        method=None,
        ngram=None,
        parallel=users,
        name=None,
        output="",
        out=None,
    )
    command = shlex.join(["ggufspec", "tune", *tuning.to_argv()])
    for line in judgements.advise_on_pasted(results, pasted, command):
        echo(line, err=True)


def typed_options() -> set[str]:
    """Return the options that stand on this command line."""
    context = click.get_current_context()
    typed = click.core.ParameterSource.COMMANDLINE
    return {name.partition("__")[0] for name in context.params if context.get_parameter_source(name) is typed}


def _find(asked: BenchOptions | TuneOptions) -> FoundCommand | None:
    """Return the command that follows ``--`` or stands in a file; None without either."""
    if asked.from_text is None:
        return None
    if asked.from_text.startswith(_TYPED):
        command = pasting.command_of_words(shlex.split(asked.from_text.removeprefix(_TYPED)))
        if command is None:
            raise GgufspecError(
                "the words after -- name no program of llama.cpp",
                "begin with its name: -- llama-server -m big.gguf …",
            )
        return command
    source = asked.from_text
    if source.partition("#")[0] == _STANDARD_INPUT:
        name = source.partition("#")[2] or None
        text = read_standard_input()
        return pasting.choose_command(text, None, name, source="standard input", asked=_STANDARD_INPUT)
    path, name = paths.expanded(source, "text"), None
    if not path.exists() and "#" in source:
        source, _, name = source.rpartition("#")
        path = paths.expanded(source, "text")
    text = pasting.read_text(path)
    return pasting.choose_command(text, path.absolute().parent, name, source=source, asked=source)


def _values(pasted: PastedCommand, asked: BenchOptions | TuneOptions, typed: set[str]) -> dict[str, Any]:
    """Return the options that a pasted command gives to this command."""
    values = pasted.values_for(type(asked))
    if isinstance(asked, TuneOptions) and pasted.values.get("draft_min"):
        echo_sentence("left out: --draft-min (a tuning verifies drafts of every length)")
    if pasted.folder is not None and "llama" not in typed:
        is_typed = (asked.from_text or "").startswith(_TYPED)
        if is_typed and Path(pasted.folder).is_dir():
            values["llama"] = (Path(pasted.folder),)
        else:  # a text never decides which program is started
            folder = pasted.folder
            note = f"llama.cpp: the command runs that in {folder}; --llama {folder} measures it"
            echo_sentence(note)
    for name, option in asked.options.items():  # of settings
        if name not in typed and not values.keys().isdisjoint(option.replaced_by):
            values[name] = option.default
    return values
