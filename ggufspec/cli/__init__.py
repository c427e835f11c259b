"""The command line: commands imported when they run; errors and signals that become exit codes."""

from __future__ import annotations

import importlib
import io
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType, TracebackType
from typing import NoReturn

import click

from ggufspec.cli.entry import output, verbosity
from ggufspec.cli.entry.output import echo
from ggufspec.errors import GgufspecError
from ggufspec.harmless import one_line

__all__ = ["COMMANDS", "cli", "main"]

GROUPS = {
    "Models": {
        "fetch": "Download a pair of models and verify the files.",
        "convert": "Make a GGUF of a head in Hugging Face's format.",
        "models": "List the models on this machine, and what can draft for what.",
        "pairs": "List the known pairs of models.",
        "suggest": "Find drafters for a target.",
        "check": "Check whether llama.cpp accepts a drafter for a target.",
        "plan": "Plan memory: how many layers fit on the GPU.",
    },
    "Measure": {
        "bench": "Measure target, drafter and drafting.",
        "sweep": "Measure every combination of settings.",
        "tune": "Find the fastest drafter, draft size and offload.",
        "crossover": "Find for how many users and how long a context drafting pays.",
        "whatif": "Forecast what drafting would gain, without running a model.",
        "policy": "Replay rules for the draft size over a stored bench.",
        "chat": "Chat with a pair; accepted draft tokens are coloured.",
        "fleet": "Measure on several machines, or lend this one to another.",
        "prompts": "List the built-in prompt suites and their prompts.",
    },
    "Serve": {
        "auto": "Find drafters for a model, tune, and say how to serve it.",
        "serve": "Run llama-server at a tuned configuration.",
    },
    "Results": {
        "show": "Print or list stored benches.",
        "why": "Show where the time goes, and what would pay most.",
        "compare": "Compare two benches; optionally fail if one is slower.",
        "bisect": "Find the version of llama.cpp at which drafting became slower.",
        "report": "Write an HTML report or charts of a bench.",
        "issue": "Write a report for llama.cpp, with the command that shows a fault.",
        "publish": "Write a redacted bundle of benches that others can verify.",
        "verify": "Recompute a bundle's figures from its raw logs.",
        "board": "Write a page that compares the bundles of many machines.",
        "parse": "Read llama.cpp logs into a table.",
    },
    "Setup": {
        "demo": "Build llama.cpp if there is none, and measure the embedded pair.",
        "build": "Build llama.cpp, or list what is installed.",
        "doctor": "Check this machine, and show how to fix problems.",
        "config": "Show and change default settings.",
        "cache": "Show and free the disk space of builds, models and results.",
        "completion": "Print a shell completion script.",
    },
}
"""Title -> command name -> help."""

_FILES = {
    "comparing": "compare bisect issue",
    "fleet": "fleet",
    "forecasts": "plan whatif policy",
    "measuring": "bench sweep demo why",
    "models": "models fetch convert suggest check",
    "pairs": "pairs prompts",
    "reading": "show report parse publish verify board",
    "setup": "build doctor config completion cache",
    "tuning": "tune auto crossover serve chat",
}
"""File of this folder -> the commands that it defines, each as a function of its name."""

COMMANDS = {name: text for commands in GROUPS.values() for name, text in commands.items()}
"""Command name -> one line of help."""

_UNCONFIGURED = {"completion", "config", "doctor"}
"""Commands that ignore invalid settings, so that they can be used to fix them."""
_HELP = {"-h", "--help"}
_HELP_WIDTH = 110  # columns at most


class LazyGroup(click.Group):
    """A group that imports a command only when it runs, so that ``--help`` stays fast."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the commands in the order of GROUPS."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command's file and return the command; None for an unknown name."""
        if cmd_name not in COMMANDS:
            return None
        file = next(file for file, names in _FILES.items() if cmd_name in names.split())
        command = getattr(importlib.import_module(f"ggufspec.cli.{file}"), cmd_name)(cmd_name)
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find a command and its settings; the error for an unknown name suggests a similar one."""
        if args[0] not in COMMANDS and not args[0].startswith("-") and not ctx.resilient_parsing:
            raise click.NoSuchCommand(args[0], possibilities=COMMANDS, ctx=ctx)
        name, command, rest = super().resolve_command(ctx, args)
        needs_settings = not (ctx.resilient_parsing or _HELP & {*rest})  # completion and help do not
        if needs_settings:
            _check_working_folder()
        if command is not None and name not in {None, *_UNCONFIGURED} and needs_settings:
            from ggufspec.cli.entry import defaults

            ctx.default_map = {str(name): defaults.read_defaults(command)}
        return name, command, rest

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands by group, without importing them."""
        width = max(map(len, COMMANDS))
        for title, commands in GROUPS.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(width), text) for name, text in commands.items()])


@click.group(
    cls=LazyGroup,
    params=verbosity.options(),
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": _HELP_WIDTH},
)
@click.version_option(package_name="ggufspec")
def cli() -> None:
    """Measure, tune and plan speculative decoding with llama.cpp.

    \b
    ggufspec build                     build llama.cpp for this machine
    ggufspec bench --ngl 45 --draft 3  measure target alone, drafter alone, and drafting
    ggufspec tune                      find the fastest way to run a pair of models
    """


def _check_working_folder() -> None:
    """Raise if the folder in which the command was started does not exist any more: paths begin there."""
    try:
        os.getcwd()  # noqa: PTH109  # pathlib would be imported for it
    except FileNotFoundError as error:
        raise GgufspecError(
            "the working folder was deleted", "go to another one (cd ~), or make it again and enter it anew"
        ) from error


def main() -> NoReturn:
    """Run the command line; every error becomes a message, a hint and its exit code."""
    try:
        code = _main()
    except KeyboardInterrupt:  # before the command began, or after its end
        code = SIGNALLED + signal.SIGINT
    sys.exit(code)


def _main() -> int:
    """Run the command line, and return the exit code."""
    sys.excepthook = _print_traceback
    if sys.stdin is None:  # it was closed: the next file that is opened would be taken for it
        sys.stdin = open(os.devnull)  # noqa: PTH123, SIM115  # until the end of the command
    if isinstance(sys.stdout, io.TextIOWrapper):  # the terminal's encoding may lack characters of a path
        sys.stdout.reconfigure(errors="backslashreplace")
    level = verbosity.Verbosity()
    with exit_on_signals() as received:
        try:
            code = _run(level)
        except BaseException:
            if not received:
                raise
        finally:
            _discard_output()
    return SIGNALLED + received[0] if received else code


def _terminal_width() -> int:
    """Return the columns of a help. click would import shutil for them, which takes 2 ms."""
    try:
        columns = int(os.environ.get("COLUMNS", 0)) or os.get_terminal_size(1).columns
    except (ValueError, OSError):  # COLUMNS is no number, or this is no terminal
        columns = 80
    return max(min(columns, _HELP_WIDTH) - 2, 50)  # as click computes it


def _run(level: verbosity.Verbosity) -> int:
    """Run the command line and return the exit code.

    Raises:
        GgufspecError: any, with --debug.
    """
    try:
        cli.main(prog_name="ggufspec", standalone_mode=False, obj=level, terminal_width=_terminal_width())
        output.flush()
    except click.ClickException as error:
        message = io.StringIO()
        error.show(message)
        echo(message.getvalue(), err=True, nl=False)
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        return SIGNALLED + signal.SIGINT
    except BrokenPipeError:
        return SIGNALLED + signal.SIGPIPE
    except SystemExit as error:  # from click: 0 after a shell completion, 1 for a broken pipe
        return SIGNALLED + signal.SIGPIPE if error.code else 0
    except (GgufspecError, OSError) as error:
        if level.debug:
            raise
        return _print_error(error if isinstance(error, GgufspecError) else output.convert_error(error))
    return 0


def _print_error(error: GgufspecError) -> int:
    """Print an error and its hint; return its exit code."""
    with suppress(OSError):  # standard error may be what failed
        echo(f"error: {one_line(error.message)}", err=True)
        if error.hint:
            echo(f"hint: {one_line(error.hint)}", err=True)
    return error.exit_code


def _print_traceback(
    error_class: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    """Print a traceback without credentials, which messages of libraries may contain."""
    import traceback

    from ggufspec.redaction import redact

    echo(redact("".join(traceback.format_exception(error_class, error, trace))), err=True, nl=False)


def _discard_output() -> None:
    """Discard unwritten output; otherwise the interpreter tries again at exit and fails with code 120."""
    for stream in filter(None, (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__)):
        try:
            stream.flush()
        except OSError:
            with suppress(OSError), open(os.devnull, "wb") as null:  # noqa: PTH123
                os.dup2(null.fileno(), stream.fileno())


SIGNALLED = 128
"""Plus the signal's number: the exit code of a command that was ended by a signal, as in shells."""
_ENDING = (signal.SIGTERM, signal.SIGHUP)
_WAKING = signal.SIGURG  # no other program sends it


@contextmanager
def exit_on_signals() -> Iterator[list[int]]:
    """Let SIGTERM, and SIGHUP unless it is ignored (nohup), raise SystemExit in the main thread.

    Yields the received signals. Only the first one raises, so that no other interrupts the clean-up: a
    closing terminal or session sends several at once.
    """
    received: list[int] = []

    def end(number: int, frame: FrameType | None) -> None:
        received.append(number)
        if len(received) == 1:
            sys.exit(SIGNALLED + number)

    handlers = {number: signal.getsignal(number) for number in (*_ENDING, _WAKING)}
    for number in _ENDING:
        if handlers[number] is not signal.SIG_IGN:
            signal.signal(number, end)
    signal.signal(_WAKING, lambda *_: None)
    try:
        with _awake():
            yield received
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


@contextmanager
def _awake() -> Iterator[None]:
    """Wake the main thread whenever a signal arrives.

    The kernel delivers a signal to any thread that does not block it, and of two simultaneous signals often
    both to another thread, such as numpy's. Python runs handlers only in the main thread, which may be
    waiting for a server's answer, for up to an hour.
    """
    main = threading.main_thread().ident
    assert main is not None
    arrivals, notes = os.pipe()
    os.set_blocking(notes, False)

    def wake() -> None:
        while numbers := os.read(arrivals, 64):
            if any(number != _WAKING for number in numbers):
                signal.pthread_kill(main, _WAKING)

    waker = threading.Thread(target=wake, daemon=True)
    waker.start()
    previous = signal.set_wakeup_fd(notes, warn_on_full_buffer=False)
    try:
        yield
    finally:
        signal.set_wakeup_fd(previous)
        os.close(notes)
        waker.join()
        os.close(arrivals)
