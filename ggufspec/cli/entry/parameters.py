"""Fields of options -> click's parameters, and what click has parsed -> options."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ggufspec.errors import GgufspecError
from ggufspec.options import Option, Options, kinds

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

T = TypeVar("T", bound=Options)

_POSITIONAL = "positional"  # ends the name of the parameter of values without a name
_NAMED = "named"  # ends that of an argument's value behind a name

DASHES = "\0--\0"
"""What stands for ``--`` while click reads it as a value; no command line can hold this."""


class FieldType(click.ParamType[Any]):
    """The type of a parameter: its kind parses the texts."""

    def __init__(self, kind: kinds.Kind, complete: str | None, elsewhere: str | None = None) -> None:
        self.name = kind.placeholder or "flag"
        self._kind, self._complete, self._elsewhere = kind, complete, elsewhere

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the value that a text stands for."""
        try:
            return self._kind.parse(value) if isinstance(value, str) else value
        except ValueError as error:
            said = str(error)
            self.fail(f"{said.rstrip('.')}. {self._elsewhere}" if self._elsewhere else said, param, ctx)

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Offer words, what the option names, or files."""
        from click.shell_completion import CompletionItem

        if self._complete is not None:
            from ggufspec.cli.entry import completions

            offered: list[CompletionItem] = []
            with suppress(GgufspecError, OSError):
                offered = getattr(completions, self._complete)(incomplete)
            return offered
        if isinstance(self._kind, kinds.FilePath):
            is_folder = self._kind.placeholder == "FOLDER"
            return [CompletionItem(incomplete, type="dir" if is_folder else "file")]
        return [CompletionItem(word) for word in self._kind.words if word.startswith(incomplete)]


class FieldOption(click.Option):
    """A field as an option of a command.

    Args:
        option: what is known of it.
        names: spellings, and the name of its value in click.
        is_many: the command takes several values.
        constant: of the spellings without a value, the one that this parameter is; None for the field itself.
        told: what click is told otherwise of this parameter.
    """

    def __init__(
        self,
        option: Option,
        names: Sequence[str],
        *,
        is_many: bool = False,
        constant: str | None = None,
        **told: Any,
    ) -> None:
        self.option, self.is_many, self.constant = option, is_many, constant
        usual: dict[str, Any] = {"help": option.help, "hidden": not option.names, "required": option.required}
        super().__init__([*names], **{**usual, **told})

    @property
    def section(self) -> str:
        """The title under which the help lists it."""
        return self.option.section

    def get_error_hint(self, ctx: click.Context | None) -> str:
        """Return the names that the help shows, without all of llama.cpp's."""
        return " / ".join(f"'{name}'" for name in self.option.names) or super().get_error_hint(ctx)

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        """Return its names and what they mean, with the default and the range of values."""
        if self.hidden:
            return None
        option = self.option
        names = (self.constant or "").split() or sorted(option.names, key=lambda name: name.startswith("--"))
        shown = ", ".join(" / ".join(name.split("/")) for name in names)
        if self.constant is not None:
            return shown, option.constant[self.constant][1]
        placeholder = option.metavar or option.kind.placeholder
        default = option.shown
        if default is None and option.default not in {None, (), False}:
            default = option.kind.format(option.default)
        extra = "; ".join(text for text in (default and f"default: {default}", option.kind.bounds) if text)
        return f"{shown} {placeholder}".rstrip(), f"{option.help} [{extra}]" if extra else option.help


class FieldArgument(click.Argument):
    """A field as a positional argument.

    Args:
        option: what is known of it; where it has a name, its values may also stand without it.
        is_many: several values may.
    """

    def __init__(self, option: Option, *, is_many: bool) -> None:
        self.option = option
        is_unnamed = option.is_argument
        kind = click.UNPROCESSED if option.passed_on else FieldType(option.kind, option.complete)
        super().__init__(
            [option.python_name if is_unnamed else f"{option.python_name}__{_POSITIONAL}"],
            type=kind,
            nargs=-1 if is_many else 1,
            required=option.required and not option.hidden,
            metavar=option.metavar if is_unnamed else "[MODEL]..." if is_many else "[MODEL]",
            callback=_restore_dashes if option.divided else None,
        )


def _join_values(ctx: click.Context, param: click.Parameter, value: Any) -> Any:
    """Return the value of a field: of an axis a tuple, in which each value stands once."""
    assert isinstance(param, FieldOption)
    option = param.option
    if not (param.is_many or option.axis) or value is None or value == ():
        return value
    given = value if param.is_many else (value,)
    values = tuple(part for one in given for part in (one if isinstance(one, tuple) else (one,)))
    if not option.axis:
        return values
    if not param.is_many and len({*values}) != 1:
        text = option.kind.format(value)
        raise click.BadParameter(
            f"{text!r} is more than one value; `ggufspec sweep` accepts several", ctx, param
        )
    return tuple(dict.fromkeys(values))


def _restore_dashes(ctx: click.Context, param: click.Parameter, value: Any) -> Any:
    """Return the value of an argument with ``--`` where it stood."""
    return value and tuple("--" if word == DASHES else word for word in value)


def make_parameters(options: type[Options]) -> Iterator[click.Parameter]:
    """Yield the parameters of a command with these options; what follows ``--`` comes last."""
    has_argument = any(option.is_argument for option in options.options.values())
    for name, option in sorted(options.options.items(), key=lambda item: item[1].passed_on):
        if option.is_argument:
            yield FieldArgument(option, is_many=option.repeated)
            if option.hidden:
                kind, names = FieldType(option.kind, option.complete), (*option.hidden, f"{name}__{_NAMED}")
                yield FieldOption(
                    option, names, type=kind, required=False, hidden=True, help="The argument, behind a name."
                )
            continue
        is_many = option.repeated or (option.axis and (options.several is None or name in options.several))
        yield from _other_spellings(option, is_many=is_many)
        yield _field_option(option, is_many=is_many)
        if option.positional and not has_argument:
            yield FieldArgument(option, is_many=is_many)


def _other_spellings(option: Option, *, is_many: bool) -> Iterator[FieldOption]:
    """Yield the spellings of a field without a value, and those whose values llama.cpp writes otherwise."""
    name = option.python_name
    for place, (spelling, (value, text)) in enumerate(option.constant.items()):
        about: dict[str, Any] = {"flag_value": value, "help": text or option.help, "hidden": not text}
        yield FieldOption(option, (*spelling.split(), f"{name}__{place}"), constant=spelling, **about)
    for place, (spelling, kind) in enumerate(option.written.items()):
        names = (*spelling.split(), f"{name}__written_{place}")
        yield FieldOption(option, names, type=FieldType(kind, None), multiple=is_many, hidden=True)


def _field_option(option: Option, *, is_many: bool) -> FieldOption:
    """Return the option of a field under its own names."""
    names = (*option.names, *option.hidden, option.python_name)
    if isinstance(option.kind, kinds.Flag):
        return FieldOption(option, names, is_flag=True, default=None if "/" in option.names[0] else False)
    kind = FieldType(option.kind, option.complete, option.elsewhere)
    alone: dict[str, Any] = {} if option.alone is None else {"is_flag": False, "flag_value": option.alone}
    return FieldOption(
        option, names, is_many=is_many, type=kind, multiple=is_many, callback=_join_values, **alone
    )


def positional_source(ctx: click.Context, name: str) -> click.core.ParameterSource | None:
    """Return where the values of a field that stand without its name come from."""
    return ctx.get_parameter_source(f"{name}__{_POSITIONAL}")


def _join_positional(named: tuple[Any, ...] | None, value: Any) -> tuple[Any, ...]:
    """Return the values of a field, with those that stand without its name last.

    Raises:
        UsageError: the command takes one, and another one was named.
    """
    if isinstance(value, tuple):
        return (*(named or ()), *value)
    return (_only(named[0] if named else value, value, "; `ggufspec sweep` takes several"),)


def _only(named: Any, value: Any, hint: str = "") -> Any:
    if named != value:
        raise click.UsageError(f"two models are named, {named} and {value}{hint}")
    return value


def _read_written(options: type[Options], values: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the fields whose values were written as llama.cpp writes them, with these values."""
    for name, option in options.options.items():
        parts: list[Any] = []
        for place in range(len(option.written)):
            value = values.get(f"{name}__written_{place}")
            parts += value if isinstance(value, tuple) else [value] if value is not None else []
        if parts:
            kind = next(iter(option.written.values()))
            yield name, kind.join(parts)


def read_options(options: type[T], values: Mapping[str, Any]) -> T:
    """Return what click has parsed as one value.

    Raises:
        UsageError: two options contradict each other.
    """
    given: dict[str, Any] = {}
    for key, value in values.items():
        name, _, place = key.partition("__")
        is_unset = value is None or value == () or (place and value is False)  # a flag of a constant
        if is_unset or name not in options.options or place.startswith("written"):
            continue
        if place not in {_POSITIONAL, _NAMED}:
            given[name] = value
    for name, option in options.options.items():
        value = values.get(f"{name}__{_POSITIONAL}")
        if value is not None and value != ():
            given[name] = _join_positional(given.get(name), value)
        if (named := values.get(f"{name}__{_NAMED}")) is not None:
            given[name] = _only(named, given.get(name, named))
        if option.required and name not in given:
            raise click.MissingParameter(param_hint=f"'{option.metavar}'", param_type="argument")
    given |= _read_written(options, values)
    try:
        return options(**given)
    except GgufspecError as error:
        raise click.UsageError(f"{error.message}: {error.hint}") from error
