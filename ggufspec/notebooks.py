"""What notebooks need: the HTML that they show for a value, and checked options.

The package registers the renderer of ``report`` here, so that values in lower rooms can have a
``_repr_html_`` without importing it.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import math
import sys
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, ParamSpec, TypeVar

from ggufspec.errors import GgufspecError

P = ParamSpec("P")
R = TypeVar("R")

_LONGEST_SHOWN = 60  # characters

_renderers: list[Callable[[object], str]] = []


def register(renderer: Callable[[object], str]) -> None:
    """Set the function that renders values for notebooks."""
    _renderers[:] = [renderer]


def html(value: object) -> str:
    """Return the HTML of a value."""
    return _renderers[-1](value)


def named_options(function: Callable[P, R]) -> Callable[P, R]:
    """Check the options of each call: their names, as newer Pythons do, and their values by the annotations.

    The call raises TypeError for a name, and GgufspecError for a value.
    """
    parameters = inspect.signature(function).parameters
    parameter_names, names = [*parameters], vars(sys.modules[function.__module__])

    @functools.wraps(function)
    def call(*arguments: P.args, **options: P.kwargs) -> R:
        check_options(function.__name__, options, parameter_names)
        for name, value in (*zip(parameter_names, arguments, strict=False), *options.items()):
            annotation = str(parameters[name].annotation)
            fit_value(f"{function.__name__}(): {name}", value, annotation, names)
        return function(*arguments, **options)

    return call


def fit_value(name: str, value: object, annotation: str, names: Mapping[str, Any]) -> Any:
    """Return a value as its annotation wants it: a list becomes a tuple, a text a path, one value several.

    Args:
        name: for the message.
        value: of the caller.
        annotation: of the field or parameter, as it is written.
        names: of the module in which it is written. What only a type checker imports is not checked.

    Raises:
        GgufspecError: it does not fit.
    """
    from ggufspec.argument_types import find_fitting

    fitted, fitting = find_fitting(value, annotation, names)
    if fitted:
        return fitting
    shown = repr(value)
    shown = shown if len(shown) <= _LONGEST_SHOWN else f"{shown[:_LONGEST_SHOWN]}…"
    load = "; ggufspec.load(NAME) reads a stored bench" if "ResultSet" in annotation else ""
    raise GgufspecError(f"{name} is {shown}, a {type(value).__name__}", f"it takes {annotation}{load}")


def fit_fields(values: Any) -> None:
    """Let the fields of a frozen dataclass have what their annotations want; for its ``__post_init__``.

    Raises:
        GgufspecError: a value does not fit.
    """
    names = vars(sys.modules[type(values).__module__])
    for field in dataclasses.fields(values):
        value = getattr(values, field.name)
        object.__setattr__(values, field.name, fit_value(field.name, value, str(field.type), names))


def check_finite(name: str, value: object) -> None:
    """Raise where a value, a part of it or a field of it is a number that is not finite.

    Raises:
        GgufspecError: naming the value.
    """
    if dataclasses.is_dataclass(value):
        for field, part in vars(value).items():
            check_finite(field, part)
    from numbers import Real  # takes longer than the rest of what ``--help`` needs from here

    for number in value if isinstance(value, tuple) else (value,):
        if isinstance(number, Real) and not math.isfinite(number):
            raise GgufspecError(f"{name} is {number}", f"give a finite number for {name}, or leave it out")


def check_options(function: str, options: Iterable[str], names: Collection[str]) -> None:
    """Refuse names that are not options of a function.

    Raises:
        TypeError: naming the first that is unknown, and the most similar option.
    """
    for option in options:
        if option not in names:
            import difflib  # only where a name is wrong

            close = difflib.get_close_matches(option, names, n=1, cutoff=0.5)
            meant = f"; did you mean {close[0]!r}?" if close else f"; its options are {', '.join(names)}"
            raise TypeError(f"{function}() has no option {option!r}{meant}")
