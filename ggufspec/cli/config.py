"""``ggufspec config``: show and change the settings of all commands."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ggufspec.cli.entry.command import command_of, group_of
from ggufspec.cli.entry.output import echo, echo_json
from ggufspec.options import AnswerOptions, KeyArgument, Options, SetOptions

if TYPE_CHECKING:
    from ggufspec.options import settings


@group_of(AnswerOptions)
def command(asked: AnswerOptions) -> None:
    """Show and change the settings of all commands, with their sources.

    The command line has precedence over the environment (GGUFSPEC_PAIR and so on), and the environment over
    the file. Keys: pair, llama, engine, suite, threads, offline, output. A setting is the default of the
    option with its name; llama also applies to commands without that option, and in notebooks.

    \b
    ggufspec config
    ggufspec config set engine server
    ggufspec config set llama ~/llama.cpp/build/bin
    """
    _print_settings(asked.output)


@command_of(AnswerOptions, group=command, name="list")
def listed(asked: AnswerOptions) -> None:
    """List every key with its value and source.

    \b
    ggufspec config list
    ggufspec config list -o json
    """
    _print_settings(asked.output)


@command_of(KeyArgument, group=command, name="get")
def get(asked: KeyArgument) -> None:
    """Print the value of KEY; nothing if it is not set.

    \b
    ggufspec config get engine
    ggufspec config get pair
    """
    from ggufspec.options import settings

    settings.refuse_unknown(asked.key, "config get")
    value = settings.read_settings()[asked.key].value
    if value is not None:
        echo(_format_value(value))


@command_of(SetOptions, group=command, name="set")
def assign(asked: SetOptions) -> None:
    """Write VALUE for KEY into the settings file.

    \b
    ggufspec config set pair llama-3-70b
    ggufspec config set threads 8
    """
    from ggufspec import paths
    from ggufspec.cli.entry import defaults
    from ggufspec.modelfiles import catalog
    from ggufspec.options import settings

    settings.refuse_unknown(asked.key, settings.SET)
    parsed = settings.parse_setting(asked.key, asked.value, settings.SET)
    if asked.key == "pair":
        catalog.find_pair(asked.value)
    if asked.key == "llama":
        parsed = str(paths.expanded(asked.value, settings.SET))
    source = settings.SettingSource.FILE
    setting = settings.Setting(key=asked.key, value=parsed, source=source, where=settings.SET)
    defaults.check_setting(settings.KEYS[asked.key], setting)
    settings.change(paths.config_file(), asked.key, parsed)
    _warn_of_environment(asked.key)


@command_of(KeyArgument, group=command, name="unset")
def unset(asked: KeyArgument) -> None:
    """Remove KEY from the settings file.

    \b
    ggufspec config unset engine
    ggufspec config unset threads
    """
    from ggufspec import paths
    from ggufspec.options import settings

    if asked.key not in settings.KEYS and asked.key not in settings.keys_in(paths.config_file()):
        settings.refuse_unknown(asked.key, "config unset")
    settings.change(paths.config_file(), asked.key, None)
    _warn_of_environment(asked.key)


@command_of(Options, group=command, name="path")
def path(asked: Options) -> None:
    """Print the path of the settings file, even if it does not exist.

    \b
    ggufspec config path
    $EDITOR "$(ggufspec config path)"
    """
    from ggufspec import paths

    echo(paths.config_file())


def _print_settings(output: str) -> None:
    from ggufspec import paths
    from ggufspec.options import settings

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


def _describe_value(setting: settings.Setting) -> str:

    return _describe_default(setting.key) if setting.value is None else _format_value(setting.value)


def _describe_default(key: str) -> str:
    from ggufspec.options import settings

    option = settings.KEYS[key]
    return option.shown or _format_value(option.default)


def _format_value(value: settings.Value) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _warn_of_environment(key: str) -> None:
    import os

    from ggufspec.options import settings

    variable = settings.PREFIX + key.upper()
    if os.environ.get(variable):
        echo(f"note: the variable {variable} is set and has precedence over the file", err=True)
