"""What the environment and the settings file give to a command's options: click's default map."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

import click

from ggufspec import paths, settings
from ggufspec.cli.entry import verbosity
from ggufspec.errors import CatalogError, GgufspecError
from ggufspec.report.text import formats
from ggufspec.settings import Setting, Source

_YIELDS = {"pair": ("target", "fit"), "suite": ("prompt", "prompt_file")}
"""A set value stands back where one of these options is given: it says the same thing otherwise."""
_NOT_OF = {("pair", "whatif"), ("engine", "tune"), ("engine", "chat")}
"""Commands that do without: a what-if has rates instead, the others need an engine of their own choice."""
_SEARCHED = "llama"  # the search for llama.cpp reads this key itself: commands without --llama search, too


def defaults(command: click.Command) -> Mapping[str, Any]:
    """Return the values for the options of a command that the command line leaves open.

    Raises:
        GgufspecError: the file, a variable or a value is wrong; the message says where.
    """
    params = {param.name: param for param in command.params}
    found: dict[str, Any] = {}
    for key, setting in settings.read().items():
        param = params.get(key)
        if param is None or setting.value is None or key == _SEARCHED or (key, command.name) in _NOT_OF:
            continue
        if key == "output" and not _prints(param, setting):
            continue
        check(param, setting)
        found[key] = _unless(_YIELDS.get(key, ()), param, setting)
    return found


def check(param: click.Parameter, setting: Setting) -> None:
    """Let an option judge a value that did not come from the command line.

    Raises:
        GgufspecError: it refuses; the message says where the value stands.
    """
    try:
        param.type.convert(_text(setting), None, None)
    except click.BadParameter as error:
        raise _wrong(setting, error.message) from error


def tell(ctx: click.Context) -> None:
    """Log the settings that hold for this command, and who set them."""
    log = logging.getLogger(verbosity.LOG)
    found = settings.read()
    for key in settings.KEYS.keys() & ctx.params.keys():
        source = ctx.get_parameter_source(key)
        who = "command line" if source is click.core.ParameterSource.COMMANDLINE else found[key].where
        value = found[key].value if key == _SEARCHED and ctx.params[key] is None else ctx.params[key]
        if value is not None:
            log.info("%s: %s (%s)", key, value, who or Source.DEFAULT)


def _text(setting: Setting) -> str:
    if setting.key == "llama":
        return str(paths.expanded(str(setting.value), setting.where or setting.key))
    return str(setting.value)


def _prints(param: click.Parameter, setting: Setting) -> bool:
    """Return whether the command knows this format; those of other commands do not concern it.

    Raises:
        GgufspecError: no command knows it.
    """
    if setting.value not in {*formats.FORMATS, "text"}:
        raise _wrong(setting, f"{setting.value!r} is not one of {', '.join((*formats.FORMATS, 'text'))}")
    return isinstance(param.type, click.Choice) and setting.value in param.type.choices


def _unless(others: tuple[str, ...], param: click.Parameter, setting: Setting) -> Callable[[], Any]:
    """Return a default that is None where one of the other options was given; click reads those first."""

    def default() -> Any:
        ctx, typed = click.get_current_context(), click.core.ParameterSource.COMMANDLINE
        if any(ctx.get_parameter_source(name) is typed for name in others):
            return None
        if setting.key == "pair":
            _check_pair(setting)
        value: Any = setting.value if isinstance(setting.value, bool) else _text(setting)
        return [value] if param.multiple else value

    return default


def _check_pair(setting: Setting) -> None:
    """Raise where no pair has this name; the catalogue is read only where the setting holds."""
    from ggufspec.modelfiles import catalog

    try:
        catalog.find(str(setting.value))
    except CatalogError as error:
        raise CatalogError(
            f"{setting.where}: {error.message}", f"{error.hint}; {settings.remedy('pair', setting.where)}"
        ) from error


def _wrong(setting: Setting, message: str) -> GgufspecError:
    return GgufspecError(
        f"{setting.where}: {setting.key}: {message}", settings.remedy(setting.key, setting.where)
    )
