"""Defaults for a command's options from the environment and the settings file: click's default map."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

import click

from ggufspec import paths, settings
from ggufspec.cli.entry import verbosity
from ggufspec.errors import CatalogError, GgufspecError
from ggufspec.report.text import formats
from ggufspec.settings import Setting, SettingSource

_REPLACED_BY = {"pair": ("target", "largest"), "suite": ("prompt", "prompt_file", "replay")}
"""Setting -> options that replace it, as they choose the same thing in another way."""
_IGNORED = {("pair", "whatif"), ("engine", "tune"), ("engine", "crossover"), ("engine", "chat")}
"""Settings that a command ignores: a what-if can do with rates, the others choose their own engine."""
_CONFIGURED_GROUPS = {"fleet"}
"""Groups whose subcommands take settings. The others have options of the same name that ask for something."""
_SEARCHED = "llama"  # the search for llama.cpp reads this key itself, also for commands without --llama


def read_defaults(command: click.Command) -> Mapping[str, Any]:
    """Return the defaults that settings give to the options of a command, and to those of its subcommands.

    Raises:
        GgufspecError: the file, a variable or a value is wrong; the message says where.
    """
    params = {param.name: param for param in command.params}
    values: dict[str, object] = {}
    for key, setting in settings.read_settings().items():
        param = params.get(key)
        if param is None or setting.value is None or key == _SEARCHED or (key, command.name) in _IGNORED:
            continue
        if key == "output" and not _has_format(param, setting):
            continue
        check_setting(param, setting)
        values[key] = _make_default(_REPLACED_BY.get(key, ()), param, setting)
    if isinstance(command, click.Group) and command.name in _CONFIGURED_GROUPS:
        values |= {name: read_defaults(inner) for name, inner in command.commands.items()}
    return values


def check_setting(param: click.Parameter, setting: Setting) -> None:
    """Check a setting with the type of its option.

    Raises:
        GgufspecError: the value is wrong; the message says where it was set.
    """
    try:
        param.type.convert(_format_value(setting), None, None)
    except click.BadParameter as error:
        raise _make_error(setting, error.message) from error


def log_settings(ctx: click.Context) -> None:
    """Log the settings that apply to this command, and where they were set."""
    log = logging.getLogger(verbosity.LOG)
    current = settings.read_settings()
    for key in settings.KEYS.keys() & ctx.params.keys():
        source = ctx.get_parameter_source(key)
        where = "command line" if source is click.core.ParameterSource.COMMANDLINE else current[key].where
        value = current[key].value if key == _SEARCHED and not ctx.params[key] else ctx.params[key]
        if value is not None:
            log.info("%s: %s (%s)", key, value, where or SettingSource.DEFAULT)


def _format_value(setting: Setting) -> str:
    if setting.key == "llama":
        return str(paths.expanded(str(setting.value), setting.where or setting.key))
    return str(setting.value)


def _has_format(param: click.Parameter, setting: Setting) -> bool:
    """Return whether the command has this output format; it ignores formats of other commands.

    Raises:
        GgufspecError: no command has it.
    """
    if setting.value not in {*formats.FORMATS, "text"}:
        raise _make_error(setting, f"{setting.value!r} is not one of {', '.join((*formats.FORMATS, 'text'))}")
    return isinstance(param.type, click.Choice) and setting.value in param.type.choices


def _make_default(others: tuple[str, ...], param: click.Parameter, setting: Setting) -> Callable[[], Any]:
    """Return a default that is None if one of the other options was given; click parses those first."""

    def default() -> Any:
        ctx, typed = click.get_current_context(), click.core.ParameterSource.COMMANDLINE
        if any(ctx.get_parameter_source(name) is typed for name in others):
            return None
        if setting.key == "pair":
            _check_pair(setting)
        value: Any = setting.value if isinstance(setting.value, bool) else _format_value(setting)
        return [value] if param.multiple else value

    return default


def _check_pair(setting: Setting) -> None:
    """Raise if no pair has this name; the catalogue is read only if the setting applies."""
    from ggufspec.modelfiles import catalog

    try:
        catalog.find_pair(str(setting.value))
    except CatalogError as error:
        raise CatalogError(
            f"{setting.where}: {error.message}", f"{error.hint}; {settings.remedy('pair', setting.where)}"
        ) from error


def _make_error(setting: Setting, message: str) -> GgufspecError:
    return GgufspecError(
        f"{setting.where}: {setting.key}: {message}", settings.remedy(setting.key, setting.where)
    )
