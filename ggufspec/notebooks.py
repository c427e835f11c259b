"""What notebooks need: the HTML that they show for a value, and checked options.

The package registers the renderer of ``report`` here, so that values in lower rooms can have a
``_repr_html_`` without importing it. Whether a value fits a type annotation is asked here, because no type
checker sees a notebook.
"""

from __future__ import annotations

import collections.abc
import functools
import inspect
import math
import sys
import types
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from numbers import Integral, Real
from typing import Any, Literal, ParamSpec, TypeVar, Union, get_args, get_origin

from ggufspec.errors import GgufspecError

P = ParamSpec("P")
R = TypeVar("R")

_LONGEST_SHOWN = 60  # characters

_renderers: list[Callable[[object], str]] = []


def register(renderer: Callable[[object], str]) -> None:
    """Set the function that renders values for notebooks."""
    _renderers[:] = [renderer]


class Shown:
    """A value that notebooks show as HTML."""

    def _repr_html_(self) -> str:
        """Return the HTML that a notebook shows."""
        return _renderers[-1](self)


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
    try:
        hint = _evaluate(annotation, names)
    except NameError:
        return value
    for candidate in _candidates(value):
        if fits(candidate, hint):
            return candidate
    shown = repr(value)
    shown = shown if len(shown) <= _LONGEST_SHOWN else f"{shown[:_LONGEST_SHOWN]}…"
    load = "; ggufspec.load(NAME) reads a stored bench" if "ResultSet" in annotation else ""
    raise GgufspecError(f"{name} is {shown}, a {type(value).__name__}", f"it takes {annotation}{load}")


def check_finite(name: str, value: object) -> None:
    """Raise where a value, a part of it or a field of it is a number that is not finite.

    Raises:
        GgufspecError: naming the value.
    """
    import dataclasses  # not earlier: it takes longer than the rest of what ``--help`` needs from here

    if dataclasses.is_dataclass(value):
        for field, part in vars(value).items():
            check_finite(field, part)

    if isinstance(value, tuple):
        for part in value:
            check_finite(name, part)
    elif isinstance(value, Real) and not math.isfinite(value):
        raise GgufspecError(f"{name} is {value}", f"give a finite number for {name}, or leave it out")


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


_SEVERAL = {tuple, collections.abc.Sequence, collections.abc.Collection, list, set, frozenset}


_evaluated: dict[tuple[str, str], Any] = {}


def _evaluate(annotation: str, names: Mapping[str, Any]) -> Any:
    key = (names["__name__"], annotation)
    if key not in _evaluated:
        _evaluated[key] = eval(annotation, dict(names))  # noqa: S307  # the text is from our own code
    return _evaluated[key]


def _candidates(value: Any) -> Iterator[object]:
    """Yield a value, and what may be meant by it."""
    from pathlib import Path  # slow to import, and `--help` needs it nowhere

    value = _plain(value)
    yield value
    if isinstance(value, str):
        yield Path(value)
    if isinstance(value, list | tuple):
        value = tuple(map(_plain, value))
        yield value
        yield (value,)
        yield tuple(Path(part) if isinstance(part, str) else part for part in value)
    else:
        yield (value,)
        if isinstance(value, str):
            yield (Path(value),)


def _plain(value: Any) -> Any:
    """Return numpy's whole numbers as Python's: those cannot be stored."""
    is_foreign = issubclass(type(value), Integral) and not isinstance(value, int)
    return int(value) if is_foreign else value


def fits(value: Any, hint: Any) -> bool:
    """Return whether a value is of a type; what is no type that is known here is taken to fit."""
    origin, arguments = get_origin(hint), get_args(hint)
    if hint is None or hint is type(None):
        return value is None
    if origin in {Union, types.UnionType}:
        return any(fits(value, part) for part in arguments)
    if origin is Literal:
        return any(type(value) is type(part) and value == part for part in arguments)
    if hint in {int, float}:  # numpy's numbers are of these classes; True is 1 by accident only
        return isinstance(value, Integral if hint is int else Real) and not isinstance(value, bool)
    if origin is tuple and Ellipsis not in arguments:
        same_length = isinstance(value, tuple) and len(value) == len(arguments)
        return same_length and all(map(fits, value, arguments))
    if origin in _SEVERAL:
        is_several = isinstance(value, origin) and not isinstance(value, str | bytes)
        return is_several and all(fits(part, arguments[0]) for part in value)
    if origin is not None:
        return callable(value) if origin is collections.abc.Callable else isinstance(value, origin)
    return isinstance(value, hint) if isinstance(hint, type) else True
