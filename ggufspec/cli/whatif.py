"""``ggufspec whatif``: would drafting pay, before anything is downloaded or run?"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ggufspec.cli.entry.output import echo
from ggufspec.cli.options import completions
from ggufspec.cli.options.axes import Axis
from ggufspec.cli.options.shared import Count, Number, emit, output_options
from ggufspec.cli.steps import projecting

_PROGRAMS = ("server", "speculative-simple", "speculative")


@click.command()
@click.option("--accept", metavar="A", help="Acceptance: 0.7, 0.708@3, 0.5-0.9, 0.9,0.8,0.7.")
@click.option(
    "--draft", type=Axis("draft sizes", least=1, most=64), default="1-16", show_default=True, help="γ."
)
@click.option("--target-tps", type=Number(0, min_open=True), help="The target's tokens/s alone.")
@click.option("--drafter-tps", type=Number(0, min_open=True), help="The drafter's, likewise.")
@click.option(
    "--verify-cost", type=projecting.Numbers(), help="The target's time for 1,2,… tokens over one's."
)
@click.option("--verify-ratio", type=Number(1), help="The same for every draft, whatever its size.")
@click.option("--observed", type=Number(0, min_open=True), help="Tokens/s measured while drafting.")
@click.option(
    "--pair",
    metavar="NAME",
    shell_complete=completions.pairs,
    help="Compute the costs of this pair of the catalogue.",
)
@click.option(
    "-m",
    "--target",
    metavar="REF",
    shell_complete=completions.models,
    help="Or of this target: a path, user/repo:QUANT.",
)
@click.option(
    "-md", "--draft-model", metavar="REF", shell_complete=completions.models, help="With this drafter."
)
@click.option(
    "--profile", metavar="ID", help="Take costs that `tune` has measured: last; `--profile list` shows them."
)
@click.option("--machine", metavar="NAME", help="For this machine; `--machine list` shows them.")
@click.option("--bandwidth", type=projecting.Quantity(), help="Or for one with this memory bandwidth: 936G.")
@click.option("--flops", type=projecting.Quantity(), help="And this arithmetic: 71T.")
@click.option("-c", "--ctx", type=Count(0), default=1024, show_default=True, help="Tokens before.")
@click.option("--overhead", type=Number(0), default=0.0, help="Milliseconds per round besides.")
@click.option(
    "--program", type=click.Choice(_PROGRAMS), default="server", show_default=True, help="Who drafts."
)
@click.option("--offline", is_flag=True, help="Use what is cached, ask nobody.")
@output_options
def command(*, output: str, out: Path | None, **asked: Any) -> None:
    """Say what drafting would gain over γ, the best γ, and the acceptance it takes.

    An acceptance is the chance of each token (0.7), accepted over drafted tokens at a draft size (0.708@3),
    a range (0.5-0.9, 0.5-0.9+0.05), or the shares of rounds that accept each position (0.9,0.8,0.7).

    Costs come from two rates, from headers and a machine's published peaks, or from a profile that `tune` has
    measured, at the depth nearest to --ctx. With --observed, the speed
    that was measured at one --draft tells what verification costs there.

    \b
    ggufspec whatif --target-tps 2.01 --drafter-tps 87.02 --accept 0.5-0.9 --verify-ratio 1.5
    ggufspec whatif --target-tps 2.01 --drafter-tps 87.02 --accept 0.708 --observed 2.58 --draft 3 \\
        --program speculative
    ggufspec whatif --pair llama-3-70b --machine h100 --accept 0.8
    ggufspec whatif --profile last --accept 0.5-0.9
    """
    from ggufspec.domain import Program
    from ggufspec.forecast import costs, whatif
    from ggufspec.report.frames import forecasts
    from ggufspec.report.text import formats, projections, tables

    if asked["machine"] == "list":
        emit("".join(f"{key:12} {projecting.peaks(each)}\n" for key, each in costs.DEVICES.items()), out)
        return
    if asked["profile"] == "list":
        stored = projecting.profiles_list()
        if not stored:
            echo("no costs of a pair are stored yet: `ggufspec tune` measures and keeps them", err=True)
        emit(stored, out)
        return
    if asked["accept"] is None:
        raise click.UsageError("give an acceptance: --accept 0.7")
    sizes = [size for size in asked["draft"] if isinstance(size, int)]
    program = Program(asked["program"])
    try:
        acceptances = projecting.acceptances(asked["accept"], sizes[0] if asked["observed"] else 1)
        known = [size for size in sizes if size <= min(each.most or size for each in acceptances)]
        curve = projecting.curve(asked, known, acceptances, program) if known else None
        known = [size for size in known if curve is not None and size < curve.most_tokens]
        found = [
            whatif.outlook(
                curve, acceptance, n_max=size, depth=projecting.depth(asked, curve), program=program
            )
            for acceptance in acceptances
            for size in known
            if curve is not None
        ]
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    if not found:
        raise click.UsageError("nothing is known about drafts of these sizes")
    if len(known) < len(sizes):
        echo(f"note: nothing is known about drafts of more than {max(known)} tokens", err=True)
    if output in tables.FOR_PEOPLE:
        emit(projections.surface(found, output), out)
    else:
        emit(formats.render(forecasts.outlooks(found), output), out)
