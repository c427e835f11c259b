"""A command: its options are the fields of a class, in sections, with the flags that all commands share."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ggufspec.cli.entry import verbosity
from ggufspec.cli.entry.output import check_output, default_output, echo
from ggufspec.cli.entry.parameters import DASHES, FieldOption, make_parameters, read_options
from ggufspec.options import Options, TableOptions

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

_MOST_WITHOUT_SECTIONS = 9  # options
_MOST_LINES = 60  # of --help; of longer ones, it shows what most people need, and --help-all the rest
_SEVERAL_LETTERS = "-[A-Za-z]{2}"
_GENERAL = "General"
_IS_SHORT = "ggufspec.is_short"  # a key of click's context

T = TypeVar("T", bound=Options)
Maker = Callable[[str], click.Command]
"""Makes the command of a name."""


class Command(click.Command):
    """A command whose parameters are the fields of a class of options.

    Args:
        name: of the command.
        function: takes the options; its docstring is the help.
        options: their class.
    """

    def __init__(self, name: str, function: Callable[[T], None], options: type[T]) -> None:
        self.options = options
        parameters = [*make_parameters(options)]
        taken = {spelling for parameter in parameters for spelling in parameter.opts}
        shared = [flag for flag in verbosity.options() if not taken & set(flag.opts)]
        shared.append(_all_option())

        def call(**values: Any) -> None:
            asked = read_options(options, values)
            if isinstance(asked, TableOptions):  # before anything is measured for a table
                output = asked.output or default_output(asked.out)
                check_output(output, asked.out)
                asked = asked.replace(output=output)
            function(asked)

        super().__init__(name=name, callback=call, params=[*parameters, *shared], help=function.__doc__)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments; those after ``--`` are for llama.cpp if the command passes such on.

        Raises:
            NoSuchOption: an unknown option such as -ot. Click would read it as -o with the value t.
        """
        fields = self.options.options.values()
        if any(field.divided for field in fields):  # click would drop the ``--``
            return super().parse_args(ctx, [DASHES if word == "--" else word for word in args])
        spellings = {
            name: param for param in self.get_params(ctx) for name in (*param.opts, *param.secondary_opts)
        }
        end = _find_end(args, spellings, ctx)
        is_command = "--from" in spellings and end + 1 < len(args) and not args[end + 1].startswith("-")
        if end < len(args) and (is_command or "--args" in spellings):
            import shlex

            # the command that is measured begins with the name of its program
            args = [*args[:end], "--from" if is_command else "--args", shlex.join(args[end:])]
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            raise _UnknownOption(error.option_name, spellings, ctx) from error

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Offer the names that the help shows; llama.cpp's spellings where nothing else begins so."""
        offered = super().shell_complete(ctx, incomplete)
        shown = {
            name
            for param in self.get_params(ctx)
            for name in (param.option.names if isinstance(param, FieldOption) else param.opts)
            for name in name.split("/")
        }
        return [item for item in offered if item.value in shown] or offered

    def get_help(self, ctx: click.Context) -> str:
        """Return the complete help if it is short enough, otherwise what most people need."""
        shown = [option for option in self.options.options.values() if option.names]
        sections = {option.section for option in shown} if len(shown) > _MOST_WITHOUT_SECTIONS else ()
        # each option takes a line or more, and each section two: to render both helps takes twice as long
        if len(shown) + 2 * len(sections) < _MOST_LINES:
            complete = super().get_help(ctx)
            if complete.count("\n") < _MOST_LINES:
                return complete
        ctx.meta[_IS_SHORT] = True
        return super().get_help(ctx)

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write what the command does; in short its first paragraph and its examples."""
        paragraphs = inspect.cleandoc(self.help or "").split("\n\n")
        if ctx.meta.get(_IS_SHORT):
            paragraphs = [text for place, text in enumerate(paragraphs) if not place or text[0] == "\b"]
        formatter.write_paragraph()
        with formatter.indentation():
            formatter.write_text("\n\n".join(paragraphs))

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the options by section, in the order of the fields; a few options need no sections."""
        format_options(self, ctx, formatter)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; with ``-v``, log first which settings apply and where they were set."""
        level = verbosity.current(ctx)
        if level.verbose or level.debug:
            from ggufspec.cli.entry import defaults

            defaults.log_settings(ctx)
        return super().invoke(ctx)


class Group(click.Group):
    """Commands with a common name; without one of them, it does something itself if it has options."""

    def __init__(
        self, name: str, function: Callable[[T], None], options: type[T], commands: Mapping[str, Maker]
    ) -> None:
        def call(**values: Any) -> None:
            if click.get_current_context().invoked_subcommand is None:
                function(read_options(options, values))

        super().__init__(
            name=name,
            commands={name: make(name) for name, make in commands.items()},
            callback=call,
            params=[*make_parameters(options)],
            help=function.__doc__,
            invoke_without_command=bool(options.options),
        )

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the options, and then the commands."""
        format_options(self, ctx, formatter)
        self.format_commands(ctx, formatter)


def command_of(options: type[T]) -> Callable[[Callable[[T], None]], Maker]:
    """Return a decorator for the function of a command, which takes its options.

    A command is made when it is asked for: the parameters of all in a file would take longer than ``--help``.
    """
    return lambda function: partial(Command, function=function, options=options)


def group_of(options: type[T], **commands: Maker) -> Callable[[Callable[[T], None]], Maker]:
    """Return a decorator for the function of a group of commands, which takes the group's own options."""
    return lambda function: partial(Group, function=function, options=options, commands=commands)


@contextmanager
def usage_errors() -> Iterator[None]:
    """Turn a ValueError, by which functions refuse options that contradict each other, into one of click.

    Raises:
        UsageError: with the same message.
    """
    try:
        yield
    except ValueError as error:
        raise click.UsageError(str(error)) from error


def format_options(command: click.Command, ctx: click.Context, formatter: click.HelpFormatter) -> None:
    """Write the options of a command by section; of many options those that most people need."""
    params = command.get_params(ctx)
    options = [param for param in params if isinstance(param, click.Option) and not param.hidden]
    grouped = len(options) > _MOST_WITHOUT_SECTIONS
    is_short = ctx.meta.get(_IS_SHORT, False)
    sections: dict[str, list[tuple[str, str]]] = {}
    for option in options:
        field = option.option if isinstance(option, FieldOption) else None
        if field is not None and is_short and not field.common:
            continue
        title = (field.section if field is not None else _GENERAL) if grouped else ""
        record = option.get_help_record(ctx)
        if record is not None:
            sections.setdefault(title or "Options", []).append(record)
    if is_short:
        sections[_GENERAL].insert(0, ("--help-all", f"Show all {len(options)} options."))
    if _GENERAL in sections:
        sections[_GENERAL] = sections.pop(_GENERAL)  # last
    for title, records in sections.items():
        with formatter.section(title):
            formatter.write_dl(records)


def _all_option() -> click.Option:
    def show(ctx: click.Context, param: click.Parameter, value: bool) -> None:  # click's form
        if value and not ctx.resilient_parsing:
            echo(click.Command.get_help(ctx.command, ctx))
            ctx.exit()

    return click.Option(
        ["--help-all"],
        is_flag=True,
        is_eager=True,
        expose_value=False,
        hidden=True,
        callback=show,
        help="Show all options.",
    )


def _find_end(args: Sequence[str], options: Mapping[str, click.Parameter], ctx: click.Context) -> int:
    """Return how many arguments stand before ``--``, or how many there are.

    Raises:
        UsageError: one of them is an option of llama.cpp for which there is another one here.
        NoSuchOption: one of them has one dash and several letters, and is not an option of the command.
    """
    place = 0
    while place < len(args) and args[place] != "--":
        option, name = options.get(args[place]), args[place].partition("=")[0]
        if option is not None:
            # its value may look like an option
            place += isinstance(option, FieldOption) and option.option.needs_value(name, args[place + 1 :])
        elif name in _OF_LLAMA_CPP and name not in options and _OF_LLAMA_CPP[name][0] in options:
            raise click.UsageError(f"{name} is llama.cpp's spelling: say {_OF_LLAMA_CPP[name][1]}", ctx=ctx)
        elif re.match(_SEVERAL_LETTERS, name) and name not in options:
            raise _UnknownOption(name, options, ctx)
        place += 1
    return min(place, len(args))


_OF_LLAMA_CPP = {
    **dict.fromkeys(("-hff", "--hf-file"), ("-m", "-m user/repo/FILE.gguf")),
    **dict.fromkeys(("-dr", "--docker-repo"), ("-m", "-m user/repo:QUANT, with a repository of the Hub")),
    **dict.fromkeys(("-lm", "--load-mode"), ("--no-mmap", "--no-mmap for none, or --mlock")),
    **dict.fromkeys(
        ("--draft-min", "--draft-n-min", "--spec-draft-n-min"),
        ("--p-min", "nothing, as drafts of every length are verified, or --p-min to end drafts early"),
    ),
    **dict.fromkeys(
        ("--grammar", "--grammar-file", "--json-schema", "-jf", "--json-schema-file"),
        ("--prompt-file", "grammar or json_schema of a prompt, in a --prompt-file"),
    ),
    "--chat-template": ("--chat-template-file", "--chat-template-file FILE, with the template itself"),
    "--chat-template-kwargs": ("--reasoning", "--reasoning, or chat_template_kwargs of a prompt"),
    "--spec-synth-len": ("--synthetic-accept", "--synthetic-accept"),
}
"""llama.cpp's spellings without an option of the same values -> the option of the same kind, and what to
say."""


class _UnknownOption(click.NoSuchOption):
    """An unknown option; of those that are meant, whatever their spelling, the names here are suggested."""

    def __init__(self, name: str, options: Mapping[str, click.Parameter], ctx: click.Context | None) -> None:
        from difflib import get_close_matches

        super().__init__(name, ctx=ctx)
        begins = [other for other in options if name[1:2] != "-" and other.lower().startswith(name.lower())]
        self._elsewhere = _name_elsewhere(name)
        meant = () if self._elsewhere else begins or get_close_matches(name, options, n=1)
        self._meant = tuple(dict.fromkeys(_name_here(options[other], other) for other in meant))
        self._passed_on = "--args" in options

    def format_message(self) -> str:
        message = self.message
        if self._meant:
            message += f" Did you mean {' or '.join(self._meant)}?"
        if self._elsewhere:
            spelled = "" if self._elsewhere == self.option_name else f", as {self._elsewhere}"
            message += f" `ggufspec bench` has it{spelled}."
        if self._passed_on:
            message += f" If it is an option of llama.cpp, add it after --: -- {self.option_name}"
        return message


def _name_elsewhere(spelling: str) -> str | None:
    """Return the name of an option of a bench, which has most of them; None where it has no such one."""
    from ggufspec.options import BenchOptions

    fields = BenchOptions.options.values()
    return next((field.name for field in fields if spelling in field.spellings), None)


def _name_here(option: click.Parameter, spelling: str) -> str:
    """Return the name of an option that the help shows, for any of its spellings."""
    if not isinstance(option, FieldOption) or option.constant is not None or option.option.is_argument:
        return spelling
    names = [*option.option.names]
    is_shown = any(spelling in name.split("/") for name in names)
    return spelling if is_shown or not names else names[0].partition("/")[0]
