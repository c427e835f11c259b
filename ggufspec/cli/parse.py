"""``ggufspec parse``: read llama.cpp logs into a table."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from ggufspec.cli.options.shared import File, emit, output_options


@click.command()
@click.argument(
    "logs",
    metavar="LOG...",
    nargs=-1,
    required=True,
    type=File(allow_dash=True),
)
@output_options
def command(*, logs: tuple[Path, ...], output: str, out: Path | None) -> None:
    """Read logs of any version of llama.cpp into a table.

    Accepts the logs of main, speculative, speculative-simple and server, with or without the answer, colours
    and prefixes, and as JSONL. Use - to read standard input.

    \b
    ggufspec parse run.log other.log -o csv
    llama-speculative -m big.gguf -md small.gguf -p Hi 2>&1 | ggufspec parse -
    """
    from ggufspec.errors import LogError
    from ggufspec.llama.logs import parse
    from ggufspec.report import frames
    from ggufspec.report.text import formats

    samples, errors = [], []
    for log in logs:
        data = sys.stdin.buffer.read() if str(log) == "-" else log.read_bytes()
        try:
            samples.append((str(log), parse(data)))
        except LogError as error:
            errors.append((log, error))
    if samples:
        emit(formats.render(frames.logs(samples), output, title="logs"), out)
    if errors:
        names = ", ".join(str(log) for log, _ in errors)
        _, first = errors[0]
        raise LogError(f"{names}: {first.message}", first.hint)
