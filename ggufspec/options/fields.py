"""The mechanism: an option is one field of a class, and what a person needs to know of it stands there.

Functions that take options take them as one value, or as keyword arguments that the fields document.
"""

from __future__ import annotations

import functools
import inspect
import re
import sys
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar, Concatenate, ParamSpec, Self, TypeVar

from ggufspec import notebooks
from ggufspec.errors import GgufspecError
from ggufspec.options.kinds import TEXT, Axis, Flag, Kind

T = TypeVar("T", bound="Options")


class Frozen:
    """A value that does not change, as of a frozen dataclass.

    It is none: to import ``dataclasses``, and to generate an ``__init__`` of 70 parameters, takes as long as
    everything else that ``--help`` needs.
    """

    def __setattr__(self, name: str, value: object) -> None:
        from dataclasses import FrozenInstanceError

        raise FrozenInstanceError(f"cannot assign to field {name!r}")

    def __delattr__(self, name: str) -> None:
        from dataclasses import FrozenInstanceError

        raise FrozenInstanceError(f"cannot delete field {name!r}")


class Option(Frozen):
    """An option of the command line, which is a field, a keyword argument and perhaps a setting.

    Attributes:
        python_name: its name in Python.
        section: of the help.
        default: its value where it is not given.
        names: as the help shows them; printed commands have the first one. ``--chat/--raw`` is a switch, and
            a name without dashes is that of a positional argument.
        hidden: further spellings, such as llama.cpp's, that are understood but not shown.
        kind: of its values.
        written: further hidden spellings, separated by spaces -> the kind of the values behind them, where
            llama.cpp writes a value otherwise, or in parts.
        alone: the text that its name stands for without a value; None where a value must follow.
        elsewhere: what llama.cpp means by one of its names, as a sentence, where that is something else.
        axis: whether its value is a tuple; how many values a command takes is said by ``Options.several``.
        repeated: whether it is a tuple because it can be repeated, in every command.
        positional: whether its values may stand without its name, too, where the command has no argument.
        constant: spellings without a value -> the value that each stands for, and its help; hidden without
            help.
        metavar: what stands for the value in the help; None for the kind's placeholder.
        help: one or two sentences.
        shown: the default in the help, where it is not the value itself; an empty text shows none.
        common: most people need it: ``--help`` shows it, and not only ``--help-all``.
        secret: never stored, printed or sent.
        setting: an example of a value, where the settings file can have its default.
        replaced_by: options that choose the same thing in another way, so that a setting gives way.
        required: whether it must be given.
        complete: what completes its values in a shell.
        python: whether it is a keyword argument of the function, too, and not only of the command.
        passed_on: whether it is the words after ``--``, which are for another program.
        divided: whether ``--`` is one of its values.
    """

    python_name: str = ""
    section: str = ""
    default: Any = None
    names: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()
    kind: Kind = TEXT
    written: Mapping[str, Kind] = MappingProxyType({})
    alone: str | None = None
    elsewhere: str | None = None
    positional: bool = False
    axis: bool = False
    repeated: bool = False
    constant: Mapping[str, tuple[Any, str]] = MappingProxyType({})
    metavar: str | None = None
    help: str = ""
    shown: str | None = None
    common: bool = False
    secret: bool = False
    setting: str | None = None
    replaced_by: tuple[str, ...] = ()
    required: bool = False
    complete: str | None = None
    python: bool = True
    passed_on: bool = False
    divided: bool = False

    def __init__(self, **known: Any) -> None:
        """Take what is known beside the defaults."""
        vars(self).update(known)

    @property
    def name(self) -> str:
        """Its name in messages and printed commands."""
        return (*self.names, *self.hidden)[0].partition("/")[0]

    @property
    def spellings(self) -> frozenset[str]:
        """Every name under which it is understood, llama.cpp's included."""
        names = (*self.names, *self.hidden, *self.constant, *self.written)
        return frozenset(word for name in names for word in re.split("[ /]", name))

    @property
    def is_argument(self) -> bool:
        """Whether it stands on the command line without a name."""
        return not self.name.startswith("-")

    def needs_value(self, spelling: str, rest: Sequence[str]) -> bool:
        """Whether the first of the words behind one of its spellings is its value."""
        if isinstance(self.kind, Flag) or not rest or any(spelling in name.split() for name in self.constant):
            return False
        return self.alone is None or not rest[0].startswith("-")

    def to_argv(self, value: Any) -> Iterator[str]:
        """Yield the words of a command line that give it a value."""
        if isinstance(self.kind, Flag):
            yes, _, no = self.names[0].partition("/")
            yield yes if value else no
            return
        for spelling, (constant, text) in self.constant.items():
            if text and value == constant:
                yield spelling.split()[0]
                return
        is_one_text = not self.repeated and not (self.axis and type(self.kind).format is Kind.format)
        for one in (value,) if is_one_text or not isinstance(value, tuple) else value:
            text = self.kind.format(one)
            yield from (text,) if self.is_argument else (self.name, text)


def option(names: str = "", default: Any = None, *, hidden: str = "", **known: Any) -> Any:
    """Return the field of an option; see ``Option`` for what can be said of it.

    A field that is declared again in a class of its own only says what differs, such as the default.

    Args:
        names: separated by spaces.
        default: its value where it is not given; a boolean makes it a flag.
        hidden: further spellings, separated by spaces.
        known: other attributes of ``Option``.
    """
    if isinstance(default, bool):
        known = {"kind": Flag(), **known}
    if isinstance(known.get("kind"), Axis):
        known = {"axis": True, **known}
    spellings = {"names": tuple(names.split()), "hidden": tuple(hidden.split())}
    return Option(default=default, **{key: value for key, value in spellings.items() if value}, **known)


class Options(Frozen):
    """Options as one value: what a command line or a call asks for. A class is declared as a dataclass is.

    ``Class(name=value)`` takes what is meant: a list for a tuple, one value for several, a text for a path.

    Attributes:
        options: of the class, in the order of its help.
        several: axes of which the command takes several values; None for all. Python takes them of all.
    """

    options: ClassVar[Mapping[str, Option]] = MappingProxyType({})
    several: ClassVar[frozenset[str] | None] = frozenset()

    def __init_subclass__(
        cls, section: str = "", several: str | None = "", without: str = "", **other: Any
    ) -> None:
        """Collect the options of a class and of those before it.

        Args:
            section: of the options that the class itself declares.
            several: the names of ``Options.several``; an empty text leaves those of the class before it.
            without: names of options of those classes that this one does not have.
            other: for other classes.
        """
        super().__init_subclass__(**other)
        if several != "":
            cls.several = None if several is None else frozenset(several.split())
        options: dict[str, Option] = {}
        for base in cls.__bases__:
            for name, option_ in getattr(base, "options", {}).items():
                options.setdefault(name, option_)
        for name in inspect.get_annotations(cls):
            declared = cls.__dict__.get(name)
            if isinstance(declared, Option):
                before = vars(options[name]) if name in options else {"python_name": name, "section": section}
                options[name] = Option(**{**before, **vars(declared)})
                setattr(cls, name, options[name].default)
        for name in without.split():
            del options[name]
        cls.options = MappingProxyType(options)

    def __init__(self, **values: Any) -> None:
        """Check the values as the command line does.

        Raises:
            TypeError: an option is unknown, and the most similar one is named; or a required one is missing.
            GgufspecError: a value has the wrong type, is NaN or infinite, or contradicts another one.
        """
        if values.keys() - self.options.keys():
            notebooks.check_options(type(self).__name__, values, self.options)
        for name, option_ in self.options.items():
            if option_.required and name not in values:
                raise TypeError(f"{type(self).__name__}() needs {name}")
            value = values.get(name, option_.default)
            if value is not option_.default:
                try:
                    value = option_.kind.meant(value)
                except ValueError as error:
                    raise GgufspecError(f"{name}: {error}") from error
                value = notebooks.fit_value(name, value, *_annotations(type(self))[name])
                notebooks.check_finite(name, value)
                if value == () and option_.default is None and (option_.axis or option_.repeated):
                    value = None
            object.__setattr__(self, name, value)
        self.check()

    def check_ranges(self) -> None:
        """Refuse values that no command line could give: numbers out of range, and unknown words.

        Raises:
            GgufspecError: naming the option.
        """
        for name, value in self.given.items():
            try:
                self.options[name].kind.check(value)
            except ValueError as error:
                raise GgufspecError(f"{name}: {str(error).rstrip('.')}", "give another value") from error

    def check(self) -> None:
        """Refuse values that contradict each other.

        Raises:
            GgufspecError: naming two of them.
        """

    def refuse_several(self) -> None:
        """Refuse several values of an axis of which the command takes one.

        Raises:
            GgufspecError: naming it.
        """
        for name, option_ in self.options.items():
            is_one = option_.axis and self.several is not None and name not in self.several
            if is_one and len(getattr(self, name) or ()) > 1:
                raise GgufspecError(f"{name} has several values", "give one")

    def refuse(self, names: Collection[str], what_decides: str) -> None:
        """Refuse options that something else decides; ``what_decides`` them is the begin of the message.

        Raises:
            GgufspecError: one of them is given.
        """
        for name in self.given:
            if name in names:
                raise GgufspecError(f"{what_decides} {self.options[name].name}", "leave one of them out")

    @property
    def given(self) -> dict[str, Any]:
        """The options that have another value than by default, and those that are required."""
        return {
            name: value
            for name, value in vars(self).items()
            if value != self.options[name].default or self.options[name].required
        }

    def replace(self, **changes: Any) -> Self:
        """Return the options with changes."""
        return type(self)(**{**vars(self), **changes})

    def to(self, other: type[T], **changes: Any) -> T:
        """Return the same options for another command, without those that it lacks, and with changes."""
        shared = {name: value for name, value in vars(self).items() if name in other.options}
        return other(**{**shared, **changes})

    def to_argv(self) -> tuple[str, ...]:
        """Return the words of a command line that are read as these options.

        Secret values are left out.
        """
        words: list[str] = []
        arguments: list[str] = []
        passed_on: list[str] = []
        for name, value in self.given.items():
            option_ = self.options[name]
            if not option_.secret and value is not None:
                place = passed_on if option_.passed_on else arguments if option_.is_argument else words
                place.extend(option_.to_argv(value))
        return (*words, *arguments, *(("--", *passed_on) if passed_on else ()))

    def __eq__(self, other: object) -> bool:
        return vars(self) == vars(other) if type(other) is type(self) else NotImplemented

    def __hash__(self) -> int:
        return hash((type(self), *vars(self).values()))

    def __repr__(self) -> str:
        shown = ", ".join(
            f"{name}={value!r}" for name, value in self.given.items() if not self.options[name].secret
        )
        return f"{type(self).__name__}({shown})"


def divide_words(
    words: Iterable[str], options: Iterable[Option]
) -> Iterator[tuple[Option | None, tuple[str, ...]]]:
    """Yield the words of a command line: each option with its value, and every other word by itself.

    A value may look like an option. Other words are arguments, options that are not known here, and what is
    passed on to another program.
    """
    known = {spelling: option_ for option_ in options for spelling in option_.spellings}
    rest = deque(words)
    while rest:
        word = rest.popleft()
        name, joined, _ = word.partition("=")
        if name not in known and re.match("-[^-]", word):
            name, joined = word[:2], word[2:]  # -n8
        option_ = known.get(name)
        if word == "--":
            yield from ((None, (other,)) for other in (word, *rest))
            return
        if option_ is None or joined or not option_.needs_value(name, rest):
            yield option_, (word,)
        else:
            yield option_, (word, rest.popleft())


def only(values: tuple[Any, ...] | None) -> Any:
    """Return the value of an axis of which a command takes one; None where it is not given."""
    return values[0] if values else None


def annotation_of(options: type[Options], name: str) -> str:
    """Return the annotation of a field, as it is written."""
    declared = (inspect.get_annotations(base).get(name) for base in options.__mro__)
    return str(next(annotation for annotation in declared if annotation is not None))


_resolved: dict[type, dict[str, tuple[str, Mapping[str, Any]]]] = {}


def _annotations(cls: type[Options]) -> Mapping[str, tuple[str, Mapping[str, Any]]]:
    """Return the annotation of each field, with the names in the module that declares it."""
    if cls not in _resolved:
        from pathlib import Path  # not earlier: both take longer than ``--help`` has

        from ggufspec import domain

        found: dict[str, tuple[str, Mapping[str, Any]]] = {}
        for base in reversed(cls.__mro__):
            names = {"Path": Path, **vars(domain), **vars(sys.modules[base.__module__])}
            found |= {name: (str(text), names) for name, text in inspect.get_annotations(base).items()}
        _resolved[cls] = found
    return _resolved[cls]


A = TypeVar("A", bound=Options)
P = ParamSpec("P")
R = TypeVar("R")

_SINK = "sink"
_ABOUT_SINK = "gets what the function says while it works; by default nothing is shown"


def takes(options: type[A], *positional: str) -> Callable[[Callable[Concatenate[A, P], R]], Callable[..., R]]:
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

    def make(function: Callable[Concatenate[A, P], R]) -> Callable[..., R]:
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
            asked.check_ranges()
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
            from ggufspec.steps import SILENT  # `--help` makes no function

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
