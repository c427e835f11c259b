"""Functions that take options: as one value, or as keyword arguments that are documented by the fields."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Concatenate, ParamSpec, TypeVar

from ggufspec import notebooks
from ggufspec.options.fields import Option, Options, annotation_of
from ggufspec.steps import SILENT

T = TypeVar("T", bound=Options)
P = ParamSpec("P")
R = TypeVar("R")

_SINK = "sink"
_ABOUT_SINK = "gets what the function says while it works; by default nothing is shown"


def takes(options: type[T], *positional: str) -> Callable[[Callable[Concatenate[T, P], R]], Callable[..., R]]:
    """Return a decorator for a function of options, so that it takes keyword arguments, too.

    Its signature and the ``Args`` of its docstring follow from the fields. A function that says what it does
    has a second parameter, ``sink``.

    Args:
        options: their class.
        positional: options that may stand first, without their names; by default the arguments of the
            command.
    """
    known = {name: option for name, option in options.options.items() if option.python}
    first = positional or tuple(name for name, option in known.items() if option.is_argument)

    def make(function: Callable[Concatenate[T, P], R]) -> Callable[..., R]:
        name, says = function.__name__, _SINK in inspect.signature(function).parameters
        run: Callable[..., R] = function

        @functools.wraps(function)
        def call(*arguments: Any, **values: Any) -> R:
            given = {_SINK: values.pop(_SINK)} if says and _SINK in values else {}
            if arguments and isinstance(arguments[0], Options):
                notebooks.check_options(name, values, ())
                return run(arguments[0], **given)
            if len(arguments) > len(first):
                raise TypeError(f"{name}() takes its options by their names")
            values |= dict(zip(first, arguments, strict=False))
            notebooks.check_options(name, values, known)
            asked = options(**values)
            asked.refuse_several()
            return run(asked, **given)

        documented = _documented(inspect.cleandoc(function.__doc__ or ""), known, says=says)
        call.__doc__ = "\n".join(documented)
        parameters = [
            inspect.Parameter(
                key,
                inspect.Parameter.POSITIONAL_OR_KEYWORD if key in first else inspect.Parameter.KEYWORD_ONLY,
                default=inspect.Parameter.empty if option.required else option.default,
                annotation=annotation_of(options, key),
            )
            for key, option in sorted(known.items(), key=lambda item: item[0] not in first)
        ]
        if says:
            silent = inspect.Parameter(
                _SINK, inspect.Parameter.KEYWORD_ONLY, default=SILENT, annotation="Sink"
            )
            parameters.append(silent)
        vars(call)["__signature__"] = inspect.Signature(parameters)
        return call

    return make


def _documented(text: str, known: Mapping[str, Option], *, says: bool) -> Iterator[str]:
    """Yield the lines of a docstring with one for each option, before what is returned and raised."""
    about, separator, rest = text.partition("\n\nRe" if "\n\nReturns:" in text else "\n\nRaises:")
    yield about
    yield ""
    yield "Args:"
    for name, option in known.items():
        shown = f" [default: {option.shown}]" if option.shown else ""
        yield f"    {name}: {option.help or option.metavar or name}{shown}"
    if says:
        yield f"    {_SINK}: {_ABOUT_SINK}."
    if separator:
        yield f"{separator.removeprefix(chr(10))}{rest}"
