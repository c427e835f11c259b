"""Values with every field set to something that is not its default, whatever fields there are."""

from __future__ import annotations

import types
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from itertools import count
from pathlib import Path
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

Value = TypeVar("Value")


def filled(kind: type[Value]) -> Value:
    """Return a dataclass of this kind with no two numbers or texts alike."""
    value: Value = _make(kind, count(1))
    return value


def _make(kind: Any, numbers: Iterator[int]) -> Any:
    if is_dataclass(kind):
        hints = get_type_hints(kind)
        return kind(**{field.name: _make(hints[field.name], numbers) for field in fields(kind)})  # type: ignore[operator]
    if hasattr(kind, "_fields"):
        return kind(*(_make(each, numbers) for each in get_type_hints(kind).values()))
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in {Union, types.UnionType}:
        return _make(arguments[0], numbers)
    if origin is tuple:
        return tuple(_make(arguments[0], numbers) for _ in range(2))
    if origin is Mapping:
        return {_make(arguments[0], numbers): _make(arguments[1], numbers)}
    if origin is Literal:
        return arguments[-1]
    return _plain(kind, next(numbers))


def _plain(kind: type, number: int) -> Any:
    if issubclass(kind, Enum):
        return list(kind)[-1]
    if kind is bool:
        return True
    if kind is Path:
        return Path(f"/models/{number}")
    return {int: number, float: number + 0.25, str: f"naïve ☃\n\u2028{number}"}[kind]
