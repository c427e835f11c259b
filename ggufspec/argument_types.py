"""Whether a value fits a type annotation, for calls from notebooks, which no type checker sees."""

from __future__ import annotations

import collections.abc
import types
from collections.abc import Iterator, Mapping
from numbers import Integral, Real
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin

_SEVERAL = {tuple, collections.abc.Sequence, collections.abc.Collection, list, set, frozenset}


def find_fitting(value: object, annotation: str, names: Mapping[str, Any]) -> tuple[bool, Any]:
    """Return whether a value fits an annotation, and the value: as it is, or as a tuple or a path.

    Args:
        value: any.
        annotation: as it is written in the code.
        names: of the module in which it is written; an annotation with others is taken to fit.
    """
    try:
        hint = _evaluate(annotation, names)
    except NameError:
        return True, value
    for candidate in _candidates(value):
        if fits(candidate, hint):
            return True, candidate
    return False, value


_evaluated: dict[tuple[str, str], Any] = {}


def _evaluate(annotation: str, names: Mapping[str, Any]) -> Any:
    key = (names["__name__"], annotation)
    if key not in _evaluated:
        _evaluated[key] = eval(annotation, dict(names))  # noqa: S307  # the text is from our own code
    return _evaluated[key]


def _candidates(value: Any) -> Iterator[object]:
    """Yield a value, and what may be meant by it."""
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
