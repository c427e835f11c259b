"""From click's keyword arguments to a dataclass: the edge between option names and typed values."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Concatenate, TypeVar

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Options = TypeVar("Options", bound="DataclassInstance")


def build_options(options_class: type[Options], values: Mapping[str, Any]) -> Options:
    """Return the options of a command as one value.

    Args:
        options_class: a dataclass whose fields are named as the options.
        values: option name -> value; other options may be among them.
    """
    from dataclasses import fields

    return options_class(**{field.name: values[field.name] for field in fields(options_class) if field.init})


def pass_options(command: Callable[Concatenate[Options, ...], None]) -> Callable[..., None]:
    """Pass the options that a dataclass names as one value, before the other options.

    The dataclass is the type of the command's first parameter, by its name in ``values``. It is imported when
    the command runs: defining it takes longer than all else that ``--help`` needs.
    """
    class_name = next(iter(command.__annotations__.values()))

    @functools.wraps(command)
    def call(**arguments: Any) -> None:
        from ggufspec.cli.options import values

        options = build_options(getattr(values, class_name), arguments)
        others = {name: value for name, value in arguments.items() if not hasattr(options, name)}
        command(options, **others)

    return call
