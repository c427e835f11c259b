"""``ggufspec config``: show and change the settings of all commands."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

import click

from ggufspec.cli.entry.output import echo, echo_json
from ggufspec.cli.options.shared import text_or_json

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from ggufspec.settings import Setting, Value

_CHECKED_BY = {"offline": "plan"}  # the command whose option checks a key's value; bench for the others


def _complete_keys(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from click.shell_completion import CompletionItem

    from ggufspec import settings

    return [CompletionItem(key) for key in settings.KEYS if key.startswith(incomplete)]


_KEY = click.argument("key", shell_complete=_complete_keys)


@click.group(invoke_without_command=True)
@text_or_json
@click.pass_context
def command(ctx: click.Context, /, *, output: str) -> None:
    """Show and change the settings of all commands, with their sources.

    The command line has precedence over the environment (GGUFSPEC_PAIR and so on), and the environment over
    the file. Keys: pair, llama, engine, suite, threads, offline, output. A setting is the default of the
    option with its name; llama also applies to commands without that option, and in notebooks.

    \b
    ggufspec config
    ggufspec config set engine server
    ggufspec config set llama ~/llama.cpp/build/bin
    """
    if ctx.invoked_subcommand is None:
        _print_settings(output)


@command.command("list")
@text_or_json
def listed(*, output: str) -> None:
    """List every key with its value and source.

    \b
    ggufspec config list
    ggufspec config list -o json
    """
    _print_settings(output)


@command.command()
@_KEY
def get(*, key: str) -> None:
    """Print the value of KEY; nothing if it is not set.

    \b
    ggufspec config get engine
    ggufspec config get pair
    """
    from ggufspec import settings

    settings.refuse_unknown(key, "config get")
    value = settings.read_settings()[key].value
    if value is not None:
        echo(_format_value(value))


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
    from ggufspec.settings import Setting, SettingSource

    settings.refuse_unknown(key, settings.SET)
    parsed = settings.parse_setting(key, value, settings.SET)
    if key == "pair":
        catalog.find_pair(value)
    if key == "llama":
        parsed = str(paths.expanded(value, settings.SET))
    checking = importlib.import_module(f"ggufspec.cli.{_CHECKED_BY.get(key, 'bench')}").command
    param = next(param for param in checking.params if param.name == key)
    defaults.check_setting(
        param, Setting(key=key, value=parsed, source=SettingSource.FILE, where=settings.SET)
    )
    settings.change(paths.config_file(), key, parsed)
    _warn_of_environment(key)


@command.command()
@_KEY
def unset(*, key: str) -> None:
    """Remove KEY from the settings file.

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
    """Print the path of the settings file, even if it does not exist.

    \b
    ggufspec config path
    $EDITOR "$(ggufspec config path)"
    """
    from ggufspec import paths

    echo(paths.config_file())


def _print_settings(output: str) -> None:
    from ggufspec import paths, settings

    current = settings.read_settings()
    if output == "json":
        rows = {
            key: {"value": setting.value, "source": setting.source, "where": setting.where}
            for key, setting in current.items()
        }
        echo_json(rows)
        return
    cells = [
        (key, _describe_value(setting), setting.where or str(setting.source))
        for key, setting in current.items()
    ]
    widths = [max(len(row[column]) for row in cells) for column in (0, 1)]
    for key, value, source in cells:
        echo(f"{key:<{widths[0]}}  {value:<{widths[1]}}  {source}")
    echo(f"file: {paths.config_file()}", err=True)
    for name, similar in settings.strange_variables().items():
        guess = f"; did you mean {similar}?" if similar else ""
        echo(f"note: the variable {name} is not a setting{guess}", err=True)


def _describe_value(setting: Setting) -> str:
    from ggufspec import settings

    return settings.KEYS[setting.key][1] if setting.value is None else _format_value(setting.value)


def _format_value(value: Value) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _warn_of_environment(key: str) -> None:
    import os

    from ggufspec import settings

    variable = settings.PREFIX + key.upper()
    if os.environ.get(variable):
        echo(f"note: the variable {variable} is set and has precedence over the file", err=True)
