"""How much a command prints: ``-q``, ``-v`` and ``--debug``, before or after a command's name.

Data goes to standard output, everything else to standard error. ``-q`` leaves only errors of the latter,
``-v`` adds what is chosen, started and downloaded, ``--debug`` the logs of libraries, and tracebacks.
"""

from __future__ import annotations

import contextlib
import os
import time

import click

from ggufspec.cli.entry.output import echo

LOG = "ggufspec"
"""The logger of this package's own messages under ``-v``."""


class Verbosity:
    """The flags read so far; they change while the command line is parsed.

    ``begun_s`` is when the command began, by the monotonic clock: time limits count from there.
    """

    def __init__(self, *, quiet: bool = False, verbose: bool = False, debug: bool = False) -> None:
        self.quiet, self.verbose, self.debug = quiet, verbose, debug
        self.begun_s = time.monotonic()


def current(ctx: click.Context) -> Verbosity:
    """Return the verbosity of this process."""
    return ctx.ensure_object(Verbosity)


def options() -> list[click.Option]:
    """Return the options that every command shares, and that may stand before its name, too."""
    return [
        _flag("Print only results and errors.", "-q", "--quiet"),
        _flag("Print what is chosen, started and downloaded.", "-v", "--verbose"),
        _flag("Print everything, including tracebacks.", "--debug"),
    ]


def _flag(text: str, *names: str) -> click.Option:
    return click.Option(names, is_flag=True, expose_value=False, callback=_apply_flag, help=text)


def _apply_flag(ctx: click.Context, param: click.Parameter, value: object) -> None:
    """Apply a flag until the program ends.

    Raises:
        UsageError: --quiet contradicts another flag.
    """
    level, flag = current(ctx), str(param.name)
    if not value or ctx.resilient_parsing or getattr(level, flag):
        return
    setattr(level, flag, True)
    root = ctx.find_root()
    if level.quiet and (level.verbose or level.debug):
        # click does not close the context of flags that are refused, and stderr would stay at /dev/null
        root.close()
        raise click.UsageError("--quiet contradicts --verbose and --debug", ctx)
    if level.quiet:
        null = root.with_resource(open(os.devnull, "w", encoding="utf-8"))  # noqa: PTH123, SIM115
        root.with_resource(contextlib.redirect_stderr(null))  # main() prints errors after this ends
    else:
        _log_to_stderr(root, debug=level.debug)


def _log_to_stderr(root: click.Context, *, debug: bool) -> None:
    import logging

    from ggufspec.redaction import redact

    class EchoHandler(logging.Handler):
        """Writes to the present standard error, so that progress bars are not broken."""

        def emit(self, record: logging.LogRecord) -> None:
            """Write one line without credentials, which libraries may log."""
            echo(redact(f"{record.name}: {record.getMessage()}"), err=True)

    logger, handler = logging.getLogger(), EchoHandler()
    previous_level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG if debug else logging.INFO)

    @root.call_on_close
    def restore() -> None:
        logger.removeHandler(handler)
        logger.setLevel(previous_level)
