"""How much a command says: ``-q``, ``-v`` and ``--debug``, before a command's name or after it.

Data goes to standard output, everything else to standard error. ``-q`` leaves nothing of that but errors,
``-v`` adds what was chosen, started and asked for, ``--debug`` all that libraries log, and tracebacks.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass

import click

from ggufspec.cli.entry.output import echo

LOG = "ggufspec"
"""The logger of everything that ``-v`` shows of our own."""


@dataclass
class Manners:
    """What was asked for so far; it changes while the command line is read."""

    quiet: bool = False
    verbose: bool = False
    debug: bool = False


def of(ctx: click.Context) -> Manners:
    """Return the manners of this start of the program."""
    return ctx.ensure_object(Manners)


def apply(ctx: click.Context, name: str) -> None:
    """Do what one of the flags says, until the program ends.

    Raises:
        UsageError: the command is to be quiet and to say more.
    """
    manners = of(ctx)
    if getattr(manners, name):
        return
    setattr(manners, name, True)
    if manners.quiet and (manners.verbose or manners.debug):
        raise click.UsageError("--quiet and --verbose or --debug contradict each other", ctx)
    root = ctx.find_root()
    if name == "quiet":
        nowhere = root.with_resource(open(os.devnull, "w", encoding="utf-8"))  # noqa: PTH123, SIM115
        root.with_resource(contextlib.redirect_stderr(nowhere))  # main() shows errors after it was restored
    else:
        _log(root, debug=manners.debug)


def options() -> list[click.Option]:
    """Return the options that every command has besides its own."""
    return [
        _flag("Say nothing but the result and errors.", "-q", "--quiet"),
        _flag("Say what is chosen, started and asked for.", "-v", "--verbose"),
        _flag("Say everything, and show tracebacks.", "--debug"),
    ]


def _flag(text: str, *names: str) -> click.Option:
    return click.Option(names, is_flag=True, expose_value=False, callback=_take, help=text)


def _take(ctx: click.Context, param: click.Parameter, value: object) -> None:
    if value and not ctx.resilient_parsing:
        assert param.name is not None
        apply(ctx, param.name)


def _log(root: click.Context, *, debug: bool) -> None:
    import logging

    from ggufspec.redaction import redact

    class Said(logging.Handler):
        """Writes where standard error goes at that moment, so that progress bars stay whole."""

        def emit(self, record: logging.LogRecord) -> None:
            """Write one line, without what gives access: libraries log addresses and headers."""
            echo(redact(f"{record.name}: {record.getMessage()}"), err=True)

    logger, handler, level = logging.getLogger(), Said(), logging.getLogger().level
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG if debug else logging.INFO)

    @root.call_on_close
    def end() -> None:
        logger.removeHandler(handler)
        logger.setLevel(level)
