"""The one place where commands print: what strangers wrote cannot take over the terminal."""

from __future__ import annotations

from typing import Any

import click

from ggufspec.harmless import harmless, to_json


def echo(message: object = "", *, err: bool = False, nl: bool = True) -> None:
    """Print a text without control characters.

    Args:
        message: what to print; anything but a text is printed as ``str`` shows it.
        err: print to standard error.
        nl: end the line.
    """
    click.echo(harmless(str(message)), err=err, nl=nl)


def echo_json(value: Any) -> None:
    """Print a value as JSON, indented; its control characters become escapes."""
    click.echo(to_json(value, indent=2))
