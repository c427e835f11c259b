"""``ggufspec config``: what is set for every command, and who set it."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

import click

from ggufspec.cli.entry.output import echo, echo_json

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from ggufspec.settings import Setting, Value

_JUDGES = {"offline": "plan"}  # the command whose option judges a key's value; bench for all others


def _keys(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from click.shell_completion import CompletionItem

    from ggufspec import settings

    return [CompletionItem(key) for key in settings.KEYS if key.startswith(incomplete)]


_KEY = click.argument("key", shell_complete=_keys)


@click.group(invoke_without_command=True)
@click.option("-o", "--output", type=click.Choice(("text", "json")), default="text", help="The form.")
@click.pass_context
def command(ctx: click.Context, /, *, output: str) -> None:
    """Show what is set for every command, and who set it; or change it.

    The command line wins over the environment (GGUFSPEC_PAIR and so on), the environment over the file.
    Keys: pair, llama, engine, suite, threads, offline, output. They are the defaults of the options of that
    name; llama holds wherever llama.cpp is looked for, without such an option and in notebooks, too.

    \b
    ggufspec config
    ggufspec config set engine server
    ggufspec config set llama ~/llama.cpp/build/bin
    """
    if ctx.invoked_subcommand is None:
        _show(output)


@command.command("list")
@click.option("-o", "--output", type=click.Choice(("text", "json")), default="text", help="The form.")
def listed(*, output: str) -> None:
    """List every key with its value and who set it.

    \b
    ggufspec config list
    ggufspec config list -o json
    """
    _show(output)


@command.command()
@_KEY
def get(*, key: str) -> None:
    """Print the value of KEY; nothing where none is set.

    \b
    ggufspec config get engine
    ggufspec config get pair
    """
    from ggufspec import settings

    settings.refuse_unknown(key, "config get")
    value = settings.read()[key].value
    if value is not None:
        echo(_spelt(value))


@command.command("set")
@_KEY
@click.argument("value")
def assign(*, key: str, value: str) -> None:
    """Write VALUE for KEY into the settings file.

    \b
    ggufspec config set pair llama-3-70b
    ggufspec config set threads 8
    """
    from ggufspec import paths, settings
    from ggufspec.cli.entry import defaults
    from ggufspec.modelfiles import catalog
    from ggufspec.settings import Setting, Source

    settings.refuse_unknown(key, settings.SET)
    parsed = settings.parse(key, value, settings.SET)
    if key == "pair":
        catalog.find(value)
    if key == "llama":
        parsed = str(paths.expanded(value, settings.SET))
    judge = importlib.import_module(f"ggufspec.cli.{_JUDGES.get(key, 'bench')}").command
    param = next(param for param in judge.params if param.name == key)
    defaults.check(param, Setting(key=key, value=parsed, source=Source.FILE, where=settings.SET))
    settings.change(paths.config_file(), key, parsed)
    _warn_of_environment(key)


@command.command()
@_KEY
def unset(*, key: str) -> None:
    """Take KEY out of the settings file.

    \b
    ggufspec config unset engine
    ggufspec config unset threads
    """
    from ggufspec import paths, settings

    if key not in settings.KEYS and key not in settings.keys_in(paths.config_file()):
        settings.refuse_unknown(key, "config unset")
    settings.change(paths.config_file(), key, None)
    _warn_of_environment(key)


@command.command()
def path() -> None:
    """Print where the settings file is, or would be.

    \b
    ggufspec config path
    $EDITOR "$(ggufspec config path)"
    """
    from ggufspec import paths

    echo(paths.config_file())


def _show(output: str) -> None:
    from ggufspec import paths, settings

    found = settings.read()
    if output == "json":
        rows = {
            key: {"value": each.value, "source": each.source, "where": each.where}
            for key, each in found.items()
        }
        echo_json(rows)
        return
    cells = [(key, _value(each), each.where or str(each.source)) for key, each in found.items()]
    widths = [max(len(row[column]) for row in cells) for column in (0, 1)]
    for key, value, source in cells:
        echo(f"{key:<{widths[0]}}  {value:<{widths[1]}}  {source}")
    echo(f"file: {paths.config_file()}", err=True)
    for name, meant in settings.strange_variables().items():
        guess = f"; did you mean {meant}?" if meant else ""
        echo(f"note: {name} is set and is not a setting{guess}", err=True)


def _value(setting: Setting) -> str:
    from ggufspec import settings

    return settings.KEYS[setting.key][1] if setting.value is None else _spelt(setting.value)


def _spelt(value: Value) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _warn_of_environment(key: str) -> None:
    import os

    from ggufspec import settings

    variable = settings.PREFIX + key.upper()
    if os.environ.get(variable):
        echo(f"note: {variable} is set and wins over the file", err=True)
