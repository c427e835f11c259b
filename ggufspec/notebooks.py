"""What notebooks need: the HTML that they show for a value, checked names of options, and steps run silently.

The package registers the renderer of ``report`` here, so that values in lower rooms can have a
``_repr_html_`` without importing it.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Collection, Generator, Iterable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

_renderers: list[Callable[[object], str]] = []


def register(renderer: Callable[[object], str]) -> None:
    """Set the function that renders values for notebooks."""
    _renderers[:] = [renderer]


def html(value: object) -> str:
    """Return the HTML of a value."""
    return _renderers[-1](value)


def finish(steps: Generator[object, None, R]) -> R:
    """Run steps to their end without showing their progress; return what they return."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: R = end.value
            return result


def named_options(function: Callable[P, R]) -> Callable[P, R]:
    """Let a call with an unknown option fail with the most similar name, as newer Pythons do."""
    known = [*inspect.signature(function).parameters]

    @functools.wraps(function)
    def call(*arguments: P.args, **options: P.kwargs) -> R:
        check_options(function.__name__, options, known)
        return function(*arguments, **options)

    return call


def check_options(function: str, options: Iterable[str], known: Collection[str]) -> None:
    """Refuse names that are not options of a function.

    Raises:
        TypeError: naming the first that is unknown, and the most similar option.
    """
    for option in options:
        if option not in known:
            import difflib  # only where a name is wrong

            close = difflib.get_close_matches(option, known, n=1, cutoff=0.5)
            meant = f"; did you mean {close[0]!r}?" if close else f"; its options are {', '.join(known)}"
            raise TypeError(f"{function}() has no option {option!r}{meant}")
