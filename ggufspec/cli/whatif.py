"""``ggufspec whatif``: forecast what drafting would gain, without downloading or running a model."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ggufspec.choices import Program
from ggufspec.cli.entry.output import echo
from ggufspec.cli.options import completions
from ggufspec.cli.options.axes import Axis
from ggufspec.cli.options.shared import Count, Number, emit, output_options, pass_options

if TYPE_CHECKING:
    from ggufspec.cli.options.values import WhatIfOptions

_QUANTITY = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([MGTP])\s*(?:B(?:/s)?|FLOPS)?\s*", re.IGNORECASE)
_MOST = 1e6
_MOST_PER_S = 1e21  # bytes or operations: a million times what the fastest machines do
_POWERS = {"M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}
_PROGRAMS = [program.value for program in (Program.SERVER, Program.SIMPLE, Program.TREE)]


class Quantity(click.ParamType[float]):
    """Bytes or operations per second such as ``936G``, in powers of ten as in data sheets."""

    name = "quantity"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the number."""
        match = _QUANTITY.fullmatch(str(value))
        quantity = float(match[1]) * _POWERS[match[2].upper()] if match else 0.0
        if not 0 < quantity <= _MOST_PER_S:
            self.fail(f"{value!r} is not a quantity; examples: 936G, 71T", param, ctx)
        return quantity


class Numbers(click.ParamType[tuple[float, ...]]):
    """Positive numbers, separated by commas."""

    name = "numbers"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[float, ...]:
        """Return the numbers in their order."""
        try:
            numbers = tuple(float(part) for part in str(value).split(","))
        except ValueError:
            numbers = ()
        if not numbers or not all(1 / _MOST <= number <= _MOST for number in numbers):  # NaN fails, too
            self.fail(f"{value!r} is not a list of positive numbers; example: 1,1.1,1.25", param, ctx)
        return numbers


@click.command()
@click.option(
    "--accept",
    metavar="A",
    help="Acceptance rate at every γ: 0.7, 0.5-0.9; at one γ: 0.708@3; by position: 0.9,0.8,0.7.",
)
@click.option("--alpha", metavar="A", help="Probability that each drafted token is accepted: 0.8 or 0.5-0.9.")
@click.option(
    "--draft",
    type=Axis("draft sizes", least=1, most=64),
    metavar="SIZES",
    default="1-16",
    show_default=True,
    help="Draft sizes γ in tokens: 3 or 3,5,8 or 1-8.",
)
@click.option("--target-tps", type=Number(0, min_open=True), help="Tokens/s of the target alone.")
@click.option("--drafter-tps", type=Number(0, min_open=True), help="Tokens/s of the drafter alone.")
@click.option(
    "--verify-cost", type=Numbers(), help="Relative cost of verifying 1, 2, … tokens, such as 1,1.1,1.25."
)
@click.option("--verify-ratio", type=Number(1), help="Relative cost of verifying a draft of any size.")
@click.option("--observed", type=Number(0, min_open=True), help="Tokens/s measured with drafting.")
@click.option(
    "--pair",
    metavar="NAME",
    shell_complete=completions.pairs,
    help="Compute costs for this pair of the catalogue.",
)
@click.option(
    "-m",
    "--target",
    metavar="REF",
    shell_complete=completions.models,
    help="Compute costs for this target: a path, user/repo:QUANT.",
)
@click.option(
    "-md",
    "--draft-model",
    metavar="REF",
    shell_complete=completions.models,
    help="Drafter, in the same forms.",
)
@click.option(
    "--profile",
    metavar="ID",
    help="Use the costs of a profile of `tune`: its id, or last; `list` prints them all.",
)
@click.option("--machine", metavar="NAME", help="Compute costs for this machine; `list` prints them all.")
@click.option("--bandwidth", type=Quantity(), help="Memory bandwidth in bytes/s, such as 936G.")
@click.option("--flops", type=Quantity(), help="Arithmetic in operations/s, such as 71T.")
@click.option("-c", "--ctx", type=Count(0), default=1024, show_default=True, help="Context depth in tokens.")
@click.option(
    "--overhead",
    type=Number(0),
    default=0.0,
    show_default=True,
    help="Other time per round, in milliseconds.",
)
@click.option(
    "--program",
    type=click.Choice(_PROGRAMS),
    default="server",
    show_default=True,
    help="Program that drafts.",
)
@click.option("--offline", is_flag=True, help="Use only cached files; do not connect to the Hub.")
@output_options
@pass_options
def command(options: WhatIfOptions, *, output: str, out: Path | None) -> None:
    """Forecast the speed-up from drafting for each γ, the best γ, and the acceptance needed to break even.

    --accept is the acceptance rate: accepted over drafted tokens, as llama.cpp prints it. 0.708 is the
    rate at every γ of the table. 0.708@3 is the rate at γ = 3; other γ then have the same α. 0.9,0.8,0.7
    are the shares of rounds that accept each position. --alpha is α, the probability that a drafted token
    is accepted. Use it to compare draft sizes: a drafter's acceptance rate falls as γ grows. Both take
    ranges, such as 0.5-0.9 and 0.5-0.9+0.05.

    Costs come from two rates, from headers and a machine's published peak rates, or from a profile of `tune`
    at the depth nearest to --ctx. With --observed, they come from the rate measured at one --draft.

    \b
    ggufspec whatif --target-tps 2.01 --drafter-tps 87.02 --alpha 0.5-0.9 --verify-ratio 1.5
    ggufspec whatif --target-tps 2.01 --drafter-tps 87.02 --accept 0.708 --observed 2.58 --draft 3 \\
        --program speculative
    ggufspec whatif --pair llama-3-70b --machine h100 --alpha 0.8
    ggufspec whatif --profile last --alpha 0.5-0.9
    """
    from ggufspec.cli.steps import projecting
    from ggufspec.forecast import costs, whatif
    from ggufspec.report.frames import forecasts
    from ggufspec.report.text import formats, projections, tables

    if options.machine == "list":
        lines = (f"{key:12} {projecting.describe_device(device)}\n" for key, device in costs.DEVICES.items())
        emit("".join(lines), out)
        return
    if options.profile == "list":
        stored = projecting.list_profiles()
        if not stored:
            echo("no profile of a pair is stored yet; `ggufspec tune` measures one", err=True)
        emit(stored, out)
        return
    sizes = list(options.draft)
    program = Program(options.program)
    try:
        acceptances = projecting.parse_acceptances(options.accept, options.alpha)
        known = [size for size in sizes if size <= min(acceptance.most or size for acceptance in acceptances)]
        curve = projecting.make_curve(options, known, acceptances, program) if known else None
        known = [size for size in known if curve is not None and size < curve.most_tokens]
        outlooks = [
            whatif.outlook(
                curve,
                acceptance,
                n_max=size,
                depth=projecting.choose_depth(options, curve),
                program=program,
            )
            for acceptance in acceptances
            for size in known
            if curve is not None
        ]
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    if not outlooks:
        raise click.UsageError("no acceptance or cost is known for drafts of these sizes")
    if len(known) < len(sizes):
        echo(f"note: no acceptance or cost is known for drafts of more than {max(known)} tokens", err=True)
    if projecting.is_rate_at_every_size(acceptances, known):
        echo("note: the same acceptance rate is assumed at every γ; --alpha compares draft sizes", err=True)
    if output in tables.FOR_PEOPLE:
        emit(projections.surface(outlooks, output), out)
    else:
        emit(formats.render(forecasts.outlooks(outlooks), output), out)
