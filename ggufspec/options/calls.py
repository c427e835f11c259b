"""Functions that take options: as one value, or as keyword arguments that are documented by the fields."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from ggufspec import notebooks
from ggufspec.options.fields import Options, annotation_of

T = TypeVar("T", bound=Options)
R = TypeVar("R")


def takes(options: type[T], *positional: str) -> Callable[[Callable[[T], R]], Callable[..., R]]:
    """Return a decorator for a function of options, so that it takes keyword arguments, too.

    Its signature and the ``Args`` of its docstring follow from the fields.

    Args:
        options: their class.
        positional: options that may stand first, without their names; by default the arguments of the
            command.
    """
    known = {name: option for name, option in options.options.items() if option.python}
    first = positional or tuple(name for name, option in known.items() if option.is_argument)

    def make(function: Callable[[T], R]) -> Callable[..., R]:
        @functools.wraps(function)
        def call(*arguments: Any, **values: Any) -> R:
            if arguments and isinstance(arguments[0], Options):
                notebooks.check_options(function.__name__, values, ())
                return function(arguments[0])  # type: ignore[arg-type]  # of another class only by mistake
            if len(arguments) > len(first):
                raise TypeError(f"{function.__name__}() takes its options by their names")
            values |= dict(zip(first, arguments, strict=False))
            notebooks.check_options(function.__name__, values, known)
            return function(options(**values))

        call.__doc__ = "\n".join(_documented(inspect.cleandoc(function.__doc__ or ""), options, known))
        vars(call)["__signature__"] = inspect.Signature(
            [
                inspect.Parameter(
                    name,
                    inspect.Parameter.POSITIONAL_OR_KEYWORD
                    if name in first
                    else inspect.Parameter.KEYWORD_ONLY,
                    default=inspect.Parameter.empty if option.required else option.default,
                    annotation=annotation_of(options, name),
                )
                for name, option in sorted(known.items(), key=lambda item: item[0] not in first)
            ]
        )
        return call

    return make


def _documented(text: str, options: type[Options], known: Any) -> Iterator[str]:
    """Yield the lines of a docstring with one for each option, before what is returned and raised."""
    about, separator, rest = text.partition("\n\nRe" if "\n\nReturns:" in text else "\n\nRaises:")
    yield about
    yield ""
    yield "Args:"
    for name, option in known.items():
        shown = f" [default: {option.shown}]" if option.shown else ""
        yield f"    {name}: {option.help or option.metavar or name}{shown}"
    if separator:
        yield f"{separator.removeprefix(chr(10))}{rest}"
