"""``ggufspec bench``: target alone, drafter alone and drafting, measured by llama.cpp's own programs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ggufspec.cli.options.bench import asking
from ggufspec.cli.options.shared import output_options


@click.command()
@asking(many=False)
@click.option("--dry-run", is_flag=True, help="Print the commands, ready to paste, and run nothing.")
@output_options
def command(
    *, dry_run: bool, name: str | None, resume: str | None, output: str, out: Path | None, **asked: Any
) -> None:
    """Measure a target alone, its drafter alone, and drafting, and print the table.

    \b
    ggufspec bench                     the last fetched pair, else the embedded one
    ggufspec bench --ngl 45 --draft 3  the measurement of the Llama-3 notebook
    ggufspec bench -m big.gguf -md small.gguf --draft 1-8 --precision 2% -o json
    """
    from ggufspec.cli.steps import measuring

    session = measuring.prepare(asked)
    if dry_run:
        measuring.show_commands(session, out)
        return
    measuring.run(session, name=name, resume=resume, output=output, out=out)
