"""The command line: a table of commands, loaded when they are called, and errors turned into exit codes."""

from __future__ import annotations

import importlib
import io
import os
import signal
import sys
from contextlib import suppress
from types import TracebackType
from typing import NoReturn

import click

from ggufspec.cli.entry import output, signals, verbosity
from ggufspec.cli.entry.command import Command
from ggufspec.cli.entry.output import echo
from ggufspec.cli.entry.signals import SIGNALLED
from ggufspec.errors import GgufspecError
from ggufspec.harmless import one_line

__all__ = ["COMMANDS", "cli", "main"]

COMMANDS = {
    "bench": "Measure target, drafter and drafting, and print the table.",
    "build": "Build llama.cpp, or list what is built and found.",
    "cache": "Show what builds, models and results take, and free it.",
    "chat": "Talk to a pair; accepted draft tokens are coloured.",
    "check": "Say whether llama.cpp accepts a drafter for a target.",
    "compare": "Compare two benches row by row; fail where one is slower.",
    "completion": "Print the script that lets a shell complete commands.",
    "config": "Show and change what is set for every command.",
    "doctor": "Say what is here, what is missing, and how to mend it.",
    "fetch": "Download a pair of models, checked before and after.",
    "pairs": "List the pairs that are known by name.",
    "parse": "Read llama.cpp logs of any era into a table.",
    "plan": "Plan memory: how many layers fit on the GPU?",
    "report": "Make a page of a past bench: verdict, charts, exact commands.",
    "show": "Print the table of a past bench again.",
    "suggest": "Find drafters for a target, on the Hub or in the cache.",
    "sweep": "Measure every combination of draft sizes, drafters, layers, …",
    "tune": "Find the fastest drafter, draft size and offload here.",
    "whatif": "Say what drafting would gain, from rates or headers alone.",
}
"""Command name -> one line of help; ``ggufspec/cli/<name>.py`` holds a click command named ``command``."""

_UNCONFIGURED = {"completion", "config", "doctor"}
"""They work with settings that are wrong, too: they are there to mend them."""
_HELP = {"-h", "--help"}


class LazyGroup(click.Group):
    """A group whose commands are imported only when they run, so that ``--help`` stays fast."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the commands in the order of the table."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the command's module and return its command; None for an unknown name."""
        if cmd_name not in COMMANDS:
            return None
        command = importlib.import_module(f"ggufspec.cli.{cmd_name}").command
        assert isinstance(command, click.Command)
        command.name = cmd_name
        return Command.of(command)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command and what is set for it; a mistyped one is told what was probably meant."""
        if args[0] not in COMMANDS and not args[0].startswith("-") and not ctx.resilient_parsing:
            raise click.NoSuchCommand(args[0], possibilities=COMMANDS, ctx=ctx)
        name, command, rest = super().resolve_command(ctx, args)
        helps = ctx.resilient_parsing or _HELP & {*rest}  # both work with settings that are wrong
        if command is not None and name not in {None, *_UNCONFIGURED} and not helps:
            from ggufspec.cli.entry import defaults

            ctx.default_map = {str(name): defaults.defaults(command)}
        return name, command, rest

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands from the table, without importing any of them."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="ggufspec")
@click.option("-q", "--quiet", is_flag=True, help="Say nothing but the result and errors.")
@click.option("-v", "--verbose", is_flag=True, help="Say what is chosen, started and asked for.")
@click.option("--debug", is_flag=True, help="Say everything, and show tracebacks.")
@click.pass_context
def cli(ctx: click.Context, /, **flags: bool) -> None:
    """Measure, tune and plan speculative decoding with llama.cpp.

    \b
    ggufspec build                     build llama.cpp for this machine
    ggufspec bench --ngl 45 --draft 3  target alone, drafter alone, drafting
    ggufspec tune                      the fastest way to run the pair, or why not to draft
    """
    for name, given in flags.items():
        if given:
            verbosity.apply(ctx, name)


def main() -> NoReturn:
    """Run the command line; every error becomes a message, a hint and its exit code."""
    sys.excepthook = _print_traceback
    if isinstance(sys.stdout, io.TextIOWrapper):  # a path need not be text in the terminal's encoding
        sys.stdout.reconfigure(errors="backslashreplace")
    manners = verbosity.Manners()
    with signals.ending() as received:
        try:
            code = _run(manners)
        except BaseException:
            if not received:
                raise
        finally:
            _drop_output()
    sys.exit(SIGNALLED + received[0] if received else code)


def _run(manners: verbosity.Manners) -> int:
    """Run the command line and return the exit code.

    Raises:
        GgufspecError: any, with --debug.
    """
    try:
        cli.main(prog_name="ggufspec", standalone_mode=False, obj=manners)
        output.flush()
    except click.ClickException as error:
        shown = io.StringIO()
        error.show(shown)
        echo(shown.getvalue(), err=True, nl=False)
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        return SIGNALLED + signal.SIGINT
    except BrokenPipeError:
        return SIGNALLED + signal.SIGPIPE
    except SystemExit as error:  # click's: 0 after it has completed words for a shell, 1 for a broken pipe
        return SIGNALLED + signal.SIGPIPE if error.code else 0
    except (GgufspecError, OSError) as error:
        if manners.debug:
            raise
        return _tell(error if isinstance(error, GgufspecError) else output.of_system(error))
    return 0


def _tell(error: GgufspecError) -> int:
    """Print an error and its hint; return its exit code."""
    with suppress(OSError):  # standard error may be the reason
        echo(f"error: {one_line(error.message)}", err=True)
        if error.hint:
            echo(f"hint: {one_line(error.hint)}", err=True)
    return error.exit_code


def _print_traceback(
    error_class: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    """Print a traceback, without what gives access: messages of libraries contain addresses and headers."""
    import traceback

    from ggufspec.redaction import redact

    echo(redact("".join(traceback.format_exception(error_class, error, trace))), err=True, nl=False)


def _drop_output() -> None:
    """Drop what could not be written, or the interpreter tries again at its end and fails with code 120."""
    for stream in filter(None, (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__)):
        try:
            stream.flush()
        except OSError:
            with suppress(OSError), open(os.devnull, "wb") as nowhere:  # noqa: PTH123
                os.dup2(nowhere.fileno(), stream.fileno())
