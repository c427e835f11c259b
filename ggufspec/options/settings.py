"""Settings for every command, from a TOML file in the configuration folder and from environment variables.

The command line overrides the environment, the environment the file, and the file the defaults.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from ggufspec import paths, userfiles
from ggufspec.errors import GgufspecError
from ggufspec.options import groups
from ggufspec.options.fields import Option

Value = str | int | bool

PREFIX = "GGUFSPEC_"
SET = "config set"
_DECLARED = (
    *(groups.PairOption, groups.LlamaOption, groups.EngineOption, groups.SuiteOption),
    *(groups.ThreadsOption, groups.HubOptions, groups.TableOptions, groups.FoldersOption),
)
KEYS: Mapping[str, Option] = {
    name: option
    for group in _DECLARED
    for name, option in group.options.items()
    if option.setting is not None
}
"""The options that have a setting. A key has the name of its option."""

_WORDS = {
    **dict.fromkeys(("1", "true", "yes", "on"), True),
    **dict.fromkeys(("0", "false", "no", "off"), False),
}
_TYPE_NAMES = {str: "text", int: "a whole number", bool: "true or false"}
_LONGEST_NUMBER = 18  # digits
_AT = re.compile(r"\s*\(at (?:line (\d+), column \d+|end of document)\)$")


class SettingSource(StrEnum):
    """Where a value was set."""

    DEFAULT = "default"
    FILE = "file"
    ENVIRONMENT = "environment"


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One setting; ``where`` is the file and line, or the variable; None for a default."""

    key: str
    value: Value | None
    source: SettingSource = SettingSource.DEFAULT
    where: str | None = None


def read_settings(
    environ: Mapping[str, str] | None = None, file: Path | None = None
) -> Mapping[str, Setting]:
    """Return the setting of every key, in the order of KEYS.

    Args:
        environ: the environment; None for this process's own.
        file: the TOML file; None for the user's own.

    Raises:
        GgufspecError: the file or a value is wrong; the message says where.
    """
    environ = os.environ if environ is None else environ
    settings = defaults() | read_file(file or paths.config_file())
    return settings | {key: setting for key in KEYS if (setting := _variable(key, environ))}


def one(key: str) -> Setting:
    """Return the setting of one key; variables of other keys are not read.

    Raises:
        GgufspecError: the file or this key's value is wrong.
    """
    return _variable(key, os.environ) or (defaults() | read_file(paths.config_file()))[key]


def defaults() -> dict[str, Setting]:
    """Return every key with its default."""
    return {key: Setting(key=key, value=None) for key in KEYS}


def read_file(file: Path) -> dict[str, Setting]:
    """Return the settings of a file; none if it does not exist.

    Raises:
        GgufspecError: it cannot be read, is not TOML, or has a wrong key or value.
    """
    try:
        text = userfiles.read_text(file)
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise GgufspecError(f"{file} cannot be read: {error.strerror}", _edit(file)) from error
    import tomllib  # only if there is a file: every command runs this

    try:
        table = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # also for a number of 5,000 digits, or 1,000 brackets
        at = _AT.search(str(error))
        line = at[1] if at and at[1] else str(max(1, len(text.splitlines())))
        raise GgufspecError(f"{file}:{line}: {_AT.sub('', str(error))}", _edit(file)) from error
    return {key: _setting(key, value, f"{file}:{_line(text, key)}") for key, value in table.items()}


def parse_setting(key: str, text: str, where: str) -> Value:
    """Return the value of a key from the text of the command line or the environment.

    Raises:
        GgufspecError: the value has the wrong type; ``where`` starts the message.
    """
    value_type = KEYS[key].kind.stored_as
    if value_type is bool and text.lower() in _WORDS:
        return _WORDS[text.lower()]
    if value_type is int and text.isascii() and text.isdecimal() and len(text) <= _LONGEST_NUMBER:
        return int(text)
    if value_type is str:
        return text
    raise GgufspecError(f"{where}: {key} must be {_TYPE_NAMES[value_type]}, not {text!r}", remedy(key, where))


def remedy(key: str, where: str | None) -> str:
    """Return the commands that replace or remove a wrong value.

    Args:
        key: one of KEYS.
        where: ``Setting.where``, or the command that got the value.
    """
    variable, example = PREFIX + key.upper(), KEYS[key].setting
    if where == variable:
        return f"export {variable}={example} sets another value, unset {variable} removes it"
    assign = f"`ggufspec config set {key} {example}`"
    if where == SET:
        return f"for example {assign}"
    return f"{assign} sets another value, `ggufspec config unset {key}` removes it"


def refuse_unknown(key: str, where: str) -> None:
    """Raise if a key does not exist; the message suggests the closest one."""
    if key in KEYS:
        return
    from difflib import get_close_matches

    close = get_close_matches(key, KEYS, n=1)
    keys = f"the keys are {', '.join(KEYS)}"
    raise GgufspecError(
        f"{where}: there is no key {key!r}" + (f"; did you mean {close[0]}?" if close else ""),
        keys if where.startswith("config ") else f"`ggufspec config unset {key}` removes it; {keys}",
    )


def keys_in(file: Path) -> tuple[str, ...]:
    """Return every key of a file, unknown ones included; none if it cannot be read."""
    import tomllib

    try:
        return tuple(tomllib.loads(userfiles.read_text(file)))
    except (OSError, ValueError, RecursionError):  # invalid TOML is a ValueError
        return ()


def change(file: Path, key: str, value: Value | None) -> None:
    """Write a value to a file, or remove the key if the value is None. Comments and order are kept.

    Raises:
        GgufspecError: the file cannot be read or written.
    """
    import tomlkit
    from tomlkit.exceptions import ParseError

    try:
        try:
            document = tomlkit.parse(userfiles.read_text(file))
        except FileNotFoundError:
            document = tomlkit.document()
        if value is None:
            document.pop(key, None)
        else:
            document[key] = value
        real = Path(os.path.realpath(file))  # a symbolic link stays: its target is written
        real.parent.mkdir(parents=True, exist_ok=True)
        new = real.with_name(f".{real.name}.{os.getpid()}")
        new.write_text(tomlkit.dumps(document), encoding="utf-8")
        if real.exists():
            shutil.copymode(real, new)
        new.replace(real)
    except ParseError as error:
        raise GgufspecError(f"{file}:{error.line}: not a TOML file", _edit(file)) from error
    except RecursionError as error:
        raise GgufspecError(f"{file}: its brackets are nested too deeply", _edit(file)) from error
    except userfiles.UnsuitableFileError as error:
        raise GgufspecError(f"{file} cannot be read: {error.strerror}", _edit(file)) from error
    except OSError as error:
        reason, hint = paths.explain(error, file, "GGUFSPEC_CONFIG")
        raise GgufspecError(f"cannot write {file}: {reason}", hint) from error


def strange_variables() -> Mapping[str, str | None]:
    """Return variables GGUFSPEC_… that are not settings, each with the closest known name or None."""
    from difflib import get_close_matches

    names = {PREFIX + name.upper() for name in (*KEYS, *paths.PLACES)}
    named = {name for name in os.environ if name.startswith(PREFIX) and not name.startswith(f"{PREFIX}TEST_")}
    return {
        name: next(iter(get_close_matches(name, names, n=1, cutoff=0.8)), None)
        for name in sorted(named - names)
    }


def _variable(key: str, environ: Mapping[str, str]) -> Setting | None:
    variable = PREFIX + key.upper()
    text = environ.get(variable)
    if not text:
        return None
    value = parse_setting(key, text, variable)
    return Setting(key=key, value=value, source=SettingSource.ENVIRONMENT, where=variable)


def _setting(key: str, value: object, where: str) -> Setting:
    refuse_unknown(key, where)
    value_type = KEYS[key].kind.stored_as
    if type(value) is not value_type:  # isinstance would accept a bool as an int
        raise GgufspecError(
            f"{where}: {key} must be {_TYPE_NAMES[value_type]}, not {value!r}", remedy(key, where)
        )
    return Setting(key=key, value=value, source=SettingSource.FILE, where=where)


def _line(text: str, key: str) -> int:
    """Return the line of a top-level key, which tomllib does not report."""
    match = re.search(rf"""^[ \t]*(?:\[+[ \t]*)?["']?{re.escape(key)}["']?[ \t]*[=.\]]""", text, re.MULTILINE)
    return text.count("\n", 0, match.start()) + 1 if match else 1


def _edit(file: Path) -> str:
    return f"edit it (${{EDITOR:-vi}} {shlex.quote(str(file))}), or remove it"
