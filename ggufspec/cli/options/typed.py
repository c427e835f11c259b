"""From click's keyword arguments to a dataclass: the edge between option names and typed values."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import fields
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
    return options_class(**{field.name: values[field.name] for field in fields(options_class) if field.init})


def pass_options(
    options_class: type[Options],
) -> Callable[[Callable[Concatenate[Options, ...], None]], Callable[..., None]]:
    """Pass the options that a dataclass names as one value, before the other options."""
    names = {field.name for field in fields(options_class)}

    def decorate(command: Callable[Concatenate[Options, ...], None]) -> Callable[..., None]:
        @functools.wraps(command)
        def call(**values: Any) -> None:
            options = build_options(options_class, values)
            command(options, **{name: value for name, value in values.items() if name not in names})

        return call

    return decorate
