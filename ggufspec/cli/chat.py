"""``ggufspec chat``: talk to a pair, and see which tokens were drafted and how fast they come."""

from __future__ import annotations

import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import click

from ggufspec.cli.options import completions
from ggufspec.cli.options.bench import given
from ggufspec.cli.options.shared import Count, Layers, Number, placing_options

_FILE = click.Path(dir_okay=False, path_type=Path)


@click.command()
@click.option("--pair", metavar="NAME", shell_complete=completions.pairs, help="A pair of the catalogue.")
@click.option("-m", "--target", type=_FILE, shell_complete=completions.files, help="The target's GGUF.")
@click.option("-md", "--draft-model", type=_FILE, shell_complete=completions.files, help="The drafter's.")
@click.option(
    "--draft",
    type=click.IntRange(1, 64),
    help="Draft size γ. [default: 3; without a drafter, the method's own]",
)
@click.option("-ngl", "--ngl", type=Layers(), help="Target layers on the GPU: 45, all, auto.")
@click.option("-ngld", "--ngld", type=Layers(), help="Drafter layers there, likewise.")
@placing_options
@click.option("-c", "--ctx", type=Count(16), help="Context in tokens; up to 4096 without it.")
@click.option("-t", "--threads", type=click.IntRange(1, 1024), help="Threads; else all physical cores.")
@click.option(
    "-n",
    "--n-predict",
    type=Count(2),
    default=512,
    show_default=True,
    help="Tokens of an answer.",
)
@click.option("--temp", type=Number(0), help="Temperature; 0, the default, is greedy.")
@click.option("--top-k", type=Count(0), help="Keep the k likeliest tokens; 1 if greedy, else 40.")
@click.option("--top-p", type=Number(0, 1), help="Nucleus sampling.")
@click.option("--min-p", type=Number(0, 1), help="Min-p sampling.")
@click.option("-s", "--seed", type=Count(0), help="Of the sampler.")
@click.option("--chat/--raw", default=None, help="Use the target's chat template, or the text as it is.")
@click.option("--system", help="The system prompt for the chat template.")
@click.option(
    "--llama",
    type=click.Path(path_type=Path),
    shell_complete=completions.installs,
    help="Folder of an installed llama.cpp.",
)
@click.option("--force", is_flag=True, help="Run even what will not fit into memory.")
@click.option("--once", metavar="PROMPT", help="Answer this alone, for scripts; - reads standard input.")
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", help="Of --once.")
def command(*, once: str | None, output: str, **asked: Any) -> None:
    """Talk to a pair of models, and see which tokens were drafted and how fast they come.

    \b
    ggufspec chat                         the last fetched pair, else the embedded one
    ggufspec chat --once "Why is the sky blue?" -o json
    """
    from ggufspec import paths
    from ggufspec.engines import ending
    from ggufspec.measure import request

    if once is None and not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise click.UsageError("this is no terminal: give a prompt with --once, or --once - to read it")
    from ggufspec.console import talk as talks

    said = _read() if once == "-" else once
    with closing(talks.begin(request.Request(**given(asked)))) as talk:
        try:
            if said is None:
                from ggufspec.console import terminal

                terminal.Terminal(talk, history=paths.data_dir() / "chat-history").run()
            else:
                from ggufspec.console import once as answer

                answer.show(talk, said, talk.facts(), as_json=output == "json")
        except ending.Failure as failure:
            raise ending.error(failure.status, failure.reason) from failure


def _read() -> str:
    """Return what stands on standard input, without its last line end."""
    from ggufspec import prompts

    return prompts.decode(sys.stdin.buffer.read(), "standard input").rstrip("\n")
