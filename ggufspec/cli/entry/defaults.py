"""Defaults for a command's options from the environment and the settings file: click's default map."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

import click

from ggufspec import paths
from ggufspec.choices import OutputFormat
from ggufspec.cli.entry import verbosity
from ggufspec.cli.entry.parameters import FieldArgument, FieldOption, positional_source
from ggufspec.errors import CatalogError, GgufspecError
from ggufspec.options import Option, settings

_SEARCHED = ("llama", "folders")
"""Keys that the searches for llama.cpp and for models read themselves, in notebooks, too."""


def read_defaults(command: click.Command) -> Mapping[str, Any]:
    """Return the defaults that settings give to the options of a command, and to those of its subcommands.

    Raises:
        GgufspecError: the file, a variable or a value is wrong; the message says where.
    """
    values: dict[str, object] = {}
    current = settings.read_settings()
    for param in command.params:
        option = param.option if isinstance(param, FieldOption | FieldArgument) else None
        if option is None or option.setting is None or option.python_name in _SEARCHED:
            continue
        setting = current[option.python_name]
        if setting.value is None or (setting.key == "output" and not _has_format(option, setting)):
            continue
        check_setting(option, setting)
        values[setting.key] = _make_default(option, setting, is_many=param.multiple)
    if isinstance(command, click.Group):
        values |= {name: read_defaults(inner) for name, inner in command.commands.items()}
    return values


def check_setting(option: Option, setting: settings.Setting) -> None:
    """Check a setting with the kind of its option.

    Raises:
        GgufspecError: the value is wrong; the message says where it was set.
    """
    try:
        if not isinstance(setting.value, bool):
            option.kind.parse(_format_value(setting))
    except ValueError as error:
        raise _make_error(setting, str(error)) from error


def log_settings(ctx: click.Context) -> None:
    """Log the settings that apply to this command, and where they were set."""
    log = logging.getLogger(verbosity.LOG)
    current = settings.read_settings()
    for key in settings.KEYS.keys() & ctx.params.keys():
        source = ctx.get_parameter_source(key)
        where = "command line" if source is click.core.ParameterSource.COMMANDLINE else current[key].where
        value = current[key].value if key in _SEARCHED and not ctx.params[key] else ctx.params[key]
        if value is not None:
            log.info("%s: %s (%s)", key, value, where or settings.SettingSource.DEFAULT)


def _format_value(setting: settings.Setting) -> str:
    if setting.key == "llama":
        return str(paths.expanded(str(setting.value), setting.where or setting.key))
    return str(setting.value)


def _has_format(option: Option, setting: settings.Setting) -> bool:
    """Return whether the command has this output format; it ignores formats of other commands.

    Raises:
        GgufspecError: no command has it.
    """
    formats = (*OutputFormat, "text")
    if setting.value not in formats:
        raise _make_error(setting, f"{setting.value!r} is not one of {', '.join(formats)}")
    return setting.value in option.kind.words


def _make_default(option: Option, setting: settings.Setting, *, is_many: bool) -> Callable[[], Any]:
    """Return a default that is None if one of the other options was given; click parses those first."""

    def default() -> Any:
        ctx, typed = click.get_current_context(), click.core.ParameterSource.COMMANDLINE
        if any(
            typed in {ctx.get_parameter_source(name), positional_source(ctx, name)}
            for name in option.replaced_by
        ):
            return None
        if setting.key == "pair":
            _check_pair(setting)
        value: Any = setting.value if isinstance(setting.value, bool) else _format_value(setting)
        return [value] if is_many else value

    return default


def _check_pair(setting: settings.Setting) -> None:
    """Raise if no pair has this name; the catalogue is read only if the setting applies."""
    from ggufspec.modelfiles import catalog

    try:
        catalog.find_pair(str(setting.value))
    except CatalogError as error:
        raise CatalogError(
            f"{setting.where}: {error.message}", f"{error.hint}; {settings.remedy('pair', setting.where)}"
        ) from error


def _make_error(setting: settings.Setting, message: str) -> GgufspecError:
    return GgufspecError(
        f"{setting.where}: {setting.key}: {message}", settings.remedy(setting.key, setting.where)
    )
