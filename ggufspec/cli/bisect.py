"""``ggufspec bisect``: find the version of llama.cpp that changed a speed or the acceptance rate."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from ggufspec.cli.options.bench import measure_options
from ggufspec.cli.options.shared import Count, LazyChoice, output_options, pass_options

if TYPE_CHECKING:
    from ggufspec.cli.options.values import BisectOptions


def _quantities() -> list[str]:
    from ggufspec.tuning.bisect import Quantity

    return [quantity.value for quantity in Quantity]


def _backends() -> list[str]:
    from ggufspec.llama.install import Backend

    return ["auto", *(backend.value for backend in Backend)]


@click.command()
@click.argument("good")
@click.argument("bad")
@click.option(
    "--quantity",
    type=LazyChoice("quantity", _quantities),
    default="speed-up",
    show_default=True,
    help="What became worse: speed-up; tokens/s of target, drafter or drafting; or acceptance.",
)
@click.option(
    "--source",
    type=click.Path(file_okay=False, path_type=Path),
    help="Git repository of llama.cpp on this machine: GOOD and BAD are its commits, tags or branches. "
    "[default: releases of llama-cpp-python]",
)
@click.option(
    "--backend",
    type=LazyChoice("backend", _backends),
    default="auto",
    show_default=True,
    help="Compute backend to build: cpu, cuda, metal, vulkan, hip or auto.",
)
@click.option("-j", "--jobs", type=Count(1), help="Parallel compiler jobs. [default: as memory allows]")
@click.option(
    "--max-repeats",
    type=Count(4),
    default=28,
    show_default=True,
    help="Most repeats of one comparison.",
)
@click.option("--resume", metavar="NAME", help="Continue an interrupted bisection.")
@measure_options(many=False, repeating=False, llama=False)
@output_options
@pass_options
def command(
    options: BisectOptions,
    *,
    good: str,
    bad: str,
    name: str | None,
    resume: str | None,
    output: str,
    out: Path | None,
) -> None:
    """Find the version of llama.cpp between GOOD and BAD at which drafting became slower or accepted less.

    GOOD and BAD are releases of llama-cpp-python, or with --source commits. First, the two are compared. Then
    versions between them are built and measured in turn with both, until the step is found. At most 5 % of
    bisections end with a wrong verdict. Versions that cannot be built or measured are skipped and named.

    \b
    ggufspec bisect 0.3.9 0.3.36
    ggufspec bisect b4000 b4500 --source ~/llama.cpp --quantity acceptance --draft 8
    """
    from ggufspec.cli.steps import bisecting

    bisecting.run_bisection(options, good, bad, name=name, resume=resume, output=output, out=out)
