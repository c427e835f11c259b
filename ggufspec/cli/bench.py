"""``ggufspec bench``: target alone, drafter alone and drafting, measured by llama.cpp's own programs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from ggufspec.cli._options import DraftSizes, Layers, emit, output_options

_FILE = click.Path(dir_okay=False, path_type=Path)
_ENGINES = ("binary", "binary-simple")


@click.command()
@click.option("--pair", metavar="NAME", help="A pair of the catalogue; `ggufspec fetch` it first.")
@click.option("-m", "--target", type=_FILE, help="The target's GGUF.")
@click.option("-md", "--draft-model", type=_FILE, help="The drafter's GGUF.")
@click.option(
    "-ngl", "--ngl", type=Layers(), default="auto", help="Target layers on the GPU: 45, all or auto."
)
@click.option("-ngld", "--ngld", type=Layers(), default="auto", help="Drafter layers on the GPU, likewise.")
@click.option(
    "--draft", type=DraftSizes(), default="3", show_default=True, help="Draft sizes γ: 3 or 3,5,8 or 1-8."
)
@click.option(
    "-n", "--n-predict", type=click.IntRange(2), default=250, show_default=True, help="Tokens per run."
)
@click.option("-c", "--ctx", type=click.IntRange(16), help="Context in tokens; what is needed without it.")
@click.option("-t", "--threads", type=click.IntRange(1), help="Threads; all physical cores without it.")
@click.option(
    "--temp", type=click.FloatRange(0), default=0.0, show_default=True, help="Temperature; 0 is greedy."
)
@click.option("--top-k", type=click.IntRange(0), help="Keep the k likeliest tokens; 1 if greedy, else 40.")
@click.option(
    "--top-p", type=click.FloatRange(0, 1), default=1.0, show_default=True, help="Nucleus sampling."
)
@click.option("--min-p", type=click.FloatRange(0, 1), default=0.0, show_default=True, help="Min-p sampling.")
@click.option(
    "-s", "--seed", type=click.IntRange(0), default=1, show_default=True, help="The sampler's seed."
)
@click.option("-p", "--prompt", multiple=True, help="A text to continue; may be repeated.")
@click.option("-f", "--prompt-file", multiple=True, type=_FILE, help="A prompt, or a TOML suite of them.")
@click.option(
    "-r", "--repeats", type=click.IntRange(1), default=3, show_default=True, help="Runs per prompt."
)
@click.option("--warmup", type=click.IntRange(0), default=1, show_default=True, help="Discarded first runs.")
@click.option(
    "--timeout", type=click.FloatRange(1), default=3600.0, show_default=True, help="Seconds per run."
)
@click.option("--llama", type=click.Path(path_type=Path), help="Folder of an installed llama.cpp.")
@click.option(
    "--engine",
    type=click.Choice(_ENGINES),
    default=_ENGINES[0],
    show_default=True,
    help="Draft with `speculative` or with `speculative-simple`.",
)
@click.option("--dry-run", is_flag=True, help="Print the commands, ready to paste, and run nothing.")
@output_options
def command(*, dry_run: bool, output: str, out: Path | None, **asked: Any) -> None:
    """Measure a target alone, its drafter alone, and drafting, and print the table.

    \b
    ggufspec bench                     the last fetched pair, else the embedded one
    ggufspec bench --ngl 45 --draft 3  the measurement of the Llama-3 notebook
    ggufspec bench -m big.gguf -md small.gguf --draft 1-8 -o json
    """
    from ggufspec.cli import _benching
    from ggufspec.request import Request, prepare

    session = prepare(Request(**asked))
    click.echo(f"pair: {session.suite.pair.name} ({session.why})", err=True)
    click.echo(
        f"llama.cpp: {session.install.version or 'unknown version'} in {session.install.root}", err=True
    )
    if dry_run:
        emit(_benching.commands(session), out)
        return
    results = _benching.measure(session, command=tuple(sys.argv), output=output, out=out)
    _benching.raise_for_failures(results)
