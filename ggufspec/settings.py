"""What a user set for every command: a TOML file in the configuration folder, and environment variables.

The command line wins over the environment, the environment over the file, the file over the default.
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

from ggufspec import paths
from ggufspec.errors import GgufspecError

Value = str | int | bool

PREFIX = "GGUFSPEC_"
SET = "config set"
KEYS: Mapping[str, tuple[type[Value], str, str]] = {
    "pair": (str, "the pair fetched last, else the embedded one", "llama-3-70b"),
    "llama": (str, "our newest build, else the PATH", "~/llama.cpp/build/bin"),
    "engine": (str, "binary", "server"),
    "suite": (str, "the prompts that fit the pair", "domains"),
    "threads": (int, "all physical cores", "8"),
    "offline": (bool, "false", "true"),
    "output": (str, "md, or text", "json"),
}
"""Key -> its type, what holds without it, and an example. Keys are named as the options they stand for."""

_WORDS = {
    "1": True,
    "true": True,
    "yes": True,
    "on": True,
    "0": False,
    "false": False,
    "no": False,
    "off": False,
}
_LONGEST_NUMBER = 18  # digits
_AT = re.compile(r"\s*\(at (?:line (\d+), column \d+|end of document)\)$")


class SettingSource(StrEnum):
    """Who set a value."""

    DEFAULT = "default"
    FILE = "file"
    ENVIRONMENT = "environment"


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One value; ``where`` is the file and line, or the variable, and None for a default."""

    key: str
    value: Value | None
    source: SettingSource = SettingSource.DEFAULT
    where: str | None = None


def read_settings(
    environ: Mapping[str, str] | None = None, file: Path | None = None
) -> Mapping[str, Setting]:
    """Return every key's setting, in the order of KEYS.

    Args:
        environ: the environment; this process's own without it.
        file: the TOML file; the user's own without it.

    Raises:
        GgufspecError: the file or a value is wrong; the message says where.
    """
    environ = os.environ if environ is None else environ
    found = defaults() | read_file(file or paths.config_file())
    return found | {key: setting for key in KEYS if (setting := _variable(key, environ))}


def one(key: str) -> Setting:
    """Return one key's setting; what the variables of other keys say does not matter.

    Raises:
        GgufspecError: the file is wrong, or the value of this key is.
    """
    return _variable(key, os.environ) or (defaults() | read_file(paths.config_file()))[key]


def defaults() -> dict[str, Setting]:
    """Return every key as it is where nobody set anything."""
    return {key: Setting(key=key, value=None) for key in KEYS}


def read_file(file: Path) -> dict[str, Setting]:
    """Return what a file sets; nothing where there is none.

    Raises:
        GgufspecError: it cannot be read, is no TOML, or holds a wrong key or value.
    """
    try:
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise GgufspecError(f"{file} cannot be read: {reason}", _edit(file)) from error
    import tomllib  # only where there is a file: every command starts through here

    try:
        table = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # also a number of 5,000 digits, or 1,000 brackets
        at = _AT.search(str(error))
        line = at[1] if at and at[1] else str(max(1, len(text.splitlines())))
        raise GgufspecError(f"{file}:{line}: {_AT.sub('', str(error))}", _edit(file)) from error
    return {key: _setting(key, value, f"{file}:{_line(text, key)}") for key, value in table.items()}


def parse_setting(key: str, text: str, where: str) -> Value:
    """Return a key's value as the command line or the environment spells it.

    Raises:
        GgufspecError: it is of another type; ``where`` opens the message.
    """
    kind = KEYS[key][0]
    if kind is bool and text.lower() in _WORDS:
        return _WORDS[text.lower()]
    if kind is int and text.isascii() and text.isdecimal() and len(text) <= _LONGEST_NUMBER:
        return int(text)
    if kind is str:
        return text
    raise GgufspecError(f"{where}: {key} is {_spoken(kind)}, not {text!r}", remedy(key, where))


def remedy(key: str, where: str | None) -> str:
    """Return the commands that replace a wrong value, or take it away.

    Args:
        key: one of KEYS.
        where: what ``Setting.where`` says, or the command that was given the value.
    """
    variable, example = PREFIX + key.upper(), KEYS[key][2]
    if where == variable:
        return f"export {variable}={example} sets another value, unset {variable} removes it"
    assign = f"`ggufspec config set {key} {example}`"
    if where == SET:
        return f"for example {assign}"
    return f"{assign} sets another value, `ggufspec config unset {key}` removes it"


def refuse_unknown(key: str, where: str) -> None:
    """Raise for a key that is none, and name the one that was probably meant."""
    if key in KEYS:
        return
    from difflib import get_close_matches

    close = get_close_matches(key, KEYS, n=1)
    known = f"the keys are {', '.join(KEYS)}"
    raise GgufspecError(
        f"{where}: there is no key {key!r}" + (f"; did you mean {close[0]}?" if close else ""),
        known if where.startswith("config ") else f"`ggufspec config unset {key}` removes it; {known}",
    )


def keys_in(file: Path) -> tuple[str, ...]:
    """Return every key of a file, wrong ones included; none where it cannot be read."""
    import tomllib

    try:
        return tuple(tomllib.loads(file.read_text(encoding="utf-8")))
    except (OSError, ValueError, RecursionError):  # what is not TOML or not UTF-8 is a ValueError
        return ()


def change(file: Path, key: str, value: Value | None) -> None:
    """Write a value into a file, or take the key out with None; comments and order stay.

    Raises:
        GgufspecError: the file cannot be read or written.
    """
    import tomlkit
    from tomlkit.exceptions import ParseError

    try:
        try:
            document = tomlkit.parse(file.read_text(encoding="utf-8"))
        except FileNotFoundError:
            document = tomlkit.document()
        if value is None:
            document.pop(key, None)
        else:
            document[key] = value
        real = Path(os.path.realpath(file))  # a link stays one: its target is written
        real.parent.mkdir(parents=True, exist_ok=True)
        new = real.with_name(f".{real.name}.{os.getpid()}")
        new.write_text(tomlkit.dumps(document), encoding="utf-8")
        if real.exists():
            shutil.copymode(real, new)
        new.replace(real)
    except (ParseError, UnicodeDecodeError) as error:
        at = f":{error.line}" if isinstance(error, ParseError) else ""
        raise GgufspecError(f"{file}{at}: it is not TOML", _edit(file)) from error
    except OSError as error:
        raise GgufspecError(
            f"cannot write {file}: {error.strerror}", "GGUFSPEC_CONFIG names another folder"
        ) from error


def strange_variables() -> Mapping[str, str | None]:
    """Return variables that are named like settings and are none, each with the one that may be meant."""
    from difflib import get_close_matches

    known = {PREFIX + name.upper() for name in (*KEYS, *paths.PLACES)}
    named = {name for name in os.environ if name.startswith(PREFIX) and not name.startswith(f"{PREFIX}TEST_")}
    return {
        name: next(iter(get_close_matches(name, known, n=1, cutoff=0.8)), None)
        for name in sorted(named - known)
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
    kind = KEYS[key][0]
    if type(value) is not kind:  # a bool would pass for an int
        raise GgufspecError(f"{where}: {key} is {_spoken(kind)}, not {value!r}", remedy(key, where))
    return Setting(key=key, value=value, source=SettingSource.FILE, where=where)


def _spoken(kind: type[Value]) -> str:
    return {str: "a text", int: "a whole number", bool: "true or false"}[kind]


def _line(text: str, key: str) -> int:
    """Return the line of a top-level key; tomllib does not tell."""
    found = re.search(rf"""^[ \t]*(?:\[+[ \t]*)?["']?{re.escape(key)}["']?[ \t]*[=.\]]""", text, re.MULTILINE)
    return text.count("\n", 0, found.start()) + 1 if found else 1


def _edit(file: Path) -> str:
    return f"edit it (${{EDITOR:-vi}} {shlex.quote(str(file))}), or remove it"
