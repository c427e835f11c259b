"""The option --tuned of the commands that run or show a tuned configuration."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any

import click

from ggufspec.cli.options import completions
from ggufspec.cli.options.shared import Command

if TYPE_CHECKING:
    from ggufspec.measure import Request

_GROUPS = ("offload", "runtime")  # fields of a request that stand for several options


def tuned_option(text: str, *, decides: bool = True) -> Callable[[Command], Command]:
    """Add --tuned.

    Args:
        text: what the command does with the configuration.
        decides: refuse options that the configuration decides; otherwise it decides none.
    """

    def add(command: Command) -> Command:
        @functools.wraps(command)
        def check_and_run(*, tuned: str | None, **values: Any) -> None:
            if tuned is not None and decides:
                _refuse_decided()
            command(tuned=tuned, **values)

        return click.option("--tuned", metavar="NAME", shell_complete=completions.tunings, help=text)(
            check_and_run
        )

    return add


def with_configuration(request: Request, tuned: str | None) -> Request:
    """Return a request that measures a tuned configuration; without one, the request itself.

    What the configuration decides is left to it, also where settings have a default for that.
    """
    from dataclasses import replace

    from ggufspec.measure import DECIDED

    if tuned is None:
        return request
    default = type(request)()
    left = {name: getattr(default, name) for name in (*DECIDED, "engine")}
    return replace(request, tuned=tuned, **left)


def _refuse_decided() -> None:
    """Raise where the command line has an option that the configuration decides."""
    from dataclasses import fields

    from ggufspec.cli.options.values import PlacementOptions, RuntimeOptions
    from ggufspec.measure import DECIDED

    grouped = (field.name for group in (PlacementOptions, RuntimeOptions) for field in fields(group))
    refuse_typed({*DECIDED, "engine", *grouped} - {*_GROUPS}, "--tuned")


def refuse_typed(names: Collection[str], decider: str) -> None:
    """Raise where the command line of the current command has one of the options.

    Args:
        names: of options, as click names them.
        decider: what decides them instead.

    Raises:
        click.UsageError: naming the option.
    """
    ctx = click.get_current_context()
    for param in ctx.command.params:
        source = ctx.get_parameter_source(param.name or "")
        if param.name in names and source is click.core.ParameterSource.COMMANDLINE:
            raise click.UsageError(f"{decider} decides {param.opts[-1]}: leave one of them out")
