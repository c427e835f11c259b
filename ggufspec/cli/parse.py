"""``ggufspec parse``: read llama.cpp logs into a table."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from ggufspec.cli.entry.command import command_of
from ggufspec.cli.entry.output import echo
from ggufspec.cli.entry.tables import choose_columns, emit
from ggufspec.options import ParseOptions

if TYPE_CHECKING:
    from pathlib import Path


@command_of(ParseOptions)
def command(asked: ParseOptions) -> None:
    """Read logs of any version of llama.cpp into a table.

    Accepts the logs of main, llama-cli, speculative, speculative-simple and server, with or without the
    answer, as files or as people paste them: quoted, indented, numbered, in Markdown, HTML or a notebook,
    with prefixes of other programs and with other text around them. Each run has a row; a server's requests
    are added up. Also accepts the JSON answers of llama-server: each "timings" object has a row, of a stream
    its last one. Use - to read standard input.

    Exits with code 14 if a log has no figures. The rows of the others are printed.

    \b
    ggufspec parse run.log other.log -o csv
    ggufspec parse notebook.ipynb --columns lines,gen_tps,accept_rate
    llama-speculative -m big.gguf -md small.gguf -p Hi 2>&1 | ggufspec parse -
    """
    from ggufspec.errors import LogError
    from ggufspec.llama.logs import read
    from ggufspec.report import frames
    from ggufspec.report.text import formats

    readings = [(str(log), read(_load(log), str(log))) for log in asked.logs]
    runs = [run for _, reading in readings for run in reading.runs]
    if runs:
        table = frames.logs(runs)
        if asked.columns is not None:
            table = table[choose_columns(asked.columns, list(table.columns))]
        emit(formats.render(table, asked.output, title="logs"), asked.out)
    for name, reading in readings:
        for note in reading.notes:
            echo(f"note: {name}: {note}", err=True)
    problems = [(name, reading.problem) for name, reading in readings if reading.problem is not None]
    if problems:
        raise LogError(
            "; ".join(f"{name}: {problem.message}" for name, problem in problems), problems[0][1].hint
        )


def _load(log: Path) -> bytes:
    return sys.stdin.buffer.read() if str(log) == "-" else log.read_bytes()
