"""The options of commands that serve a tuned configuration."""

from __future__ import annotations

import functools
from typing import Any

import click

from ggufspec.cli.options.shared import Command, Count


def server_words(command: Command) -> Command:
    """Add the options for llama-server, which follow ``--``."""

    @functools.wraps(command)
    def check_and_run(*, words: tuple[str, ...], **values: Any) -> None:
        if words and not words[0].startswith("-"):
            raise click.UsageError(f"unexpected argument {words[0]!r}: options for llama-server follow --")
        command(words=words, **values)

    argument = click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="[-- OPTIONS]")
    return argument(check_and_run)


def capacity_options(command: Command) -> Command:
    """Add what a configuration is to serve: the context of a request, and requests at once.

    With --parallel, it is also measured so.
    """
    context = click.option(
        "--serve-ctx",
        type=Count(256),
        help="Context that each request may use, in tokens. [default: the largest of 4096, 8192, … that fits "
        "and the models were trained for]",
    )
    slots = click.option(
        "--serve-parallel",
        type=Count(1),
        default=1,
        help="Requests to serve at once (slots of llama-server), measured one after another. "
        "[default: those of --parallel, or 1]",
    )
    users = click.option(
        "-np",
        "--parallel",
        type=Count(1),
        metavar="USERS",
        help="Choose for this many users at once: forecast, and measured with as many slots and clients. "
        "[default: one request after another]",
    )
    return users(context(slots(command)))
