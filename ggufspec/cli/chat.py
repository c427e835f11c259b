"""``ggufspec chat``: chat with a pair; shows drafted tokens and their rate."""

from __future__ import annotations

import sys
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ggufspec.choices import Method
from ggufspec.cli.options import completions
from ggufspec.cli.options.axes import Methods
from ggufspec.cli.options.bench import ngram_option, sampling_options
from ggufspec.cli.options.placement import layer_options, placement_options, rpc_option
from ggufspec.cli.options.references import model_options
from ggufspec.cli.options.runtime import runtime_options
from ggufspec.cli.options.shared import Count, pass_options
from ggufspec.cli.options.tuned import tuned_option, with_configuration
from ggufspec.domain import Failure

if TYPE_CHECKING:
    from ggufspec.cli.options.values import RunOptions


@click.command()
@tuned_option("Chat with the configuration of this tuning.")
@model_options(fetches=True)
@click.option(
    "--method",
    metavar="METHOD",
    type=Methods().single(),
    help=f"Drafting method: {', '.join(Method)}; or a chain, such as ngram-mod+draft-mtp. "
    "[default: the pair's own]",
)
@ngram_option(many=False)
@click.option(
    "--draft",
    type=click.IntRange(1, 64),
    help="Draft size γ in tokens. [default: 3; depends on the method without a drafter]",
)
@layer_options()
@placement_options
@rpc_option(many=False)
@runtime_options(many=False)
@click.option(
    "-c", "--ctx", type=Count(16), help="Context size in tokens. [default: the models' own, at most 4096]"
)
@click.option(
    "-t", "--threads", type=click.IntRange(1, 1024), help="CPU threads. [default: all physical cores]"
)
@click.option(
    "-n",
    "--n-predict",
    type=Count(2),
    default=512,
    show_default=True,
    help="Maximum tokens in an answer.",
)
@sampling_options
@click.option("-s", "--seed", type=Count(0), default=1, show_default=True, help="Random seed for sampling.")
@click.option(
    "--chat/--raw",
    default=None,
    help="Apply the target's chat template, or use the text as it is. [default: --chat if there is one]",
)
@click.option("--system", help="System prompt for the chat template.")
@click.option(
    "--llama",
    type=click.Path(path_type=Path),
    shell_complete=completions.installs,
    help="Folder of a llama.cpp installation.",
)
@click.option("--force", is_flag=True, help="Run even if the models do not fit into memory.")
@click.option("--once", metavar="PROMPT", help="ChatAnswer this prompt and exit; - reads standard input.")
@click.option(
    "-o",
    "--output",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="Format of the answer to --once.",
)
@pass_options
def command(options: RunOptions, *, tuned: str | None, once: str | None, output: str) -> None:
    """Chat with a pair of models, and see which tokens were drafted and the tokens per second.

    \b
    ggufspec chat                         the pair fetched last, or the embedded one
    ggufspec chat --tuned last            what the last tuning recommends
    ggufspec chat --once "Why is the sky blue?" -o json
    """
    from ggufspec import paths
    from ggufspec.cli.steps import hub_access
    from ggufspec.engines import failures

    if once is None and not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise click.UsageError(
            "a chat needs a terminal; use --once PROMPT, or --once - to read standard input"
        )
    from ggufspec.console import talk as talks

    prompt = _read_prompt() if once == "-" else once
    request = with_configuration(options.to_request(), tuned)
    with closing(talks.begin(hub_access.fetch_models(request, yes=options.yes))) as talk:
        try:
            if prompt is None:
                from ggufspec.console import terminal

                terminal.Terminal(talk, history=paths.data_dir() / "chat-history").run()
            else:
                from ggufspec.console import once as answer

                answer.show(talk, prompt, talk.facts(), as_json=output == "json")
        except Failure as failure:
            raise failures.failure_error(failure.status, failure.reason) from failure


def _read_prompt() -> str:
    """Return the text on standard input, without the line ends after it."""
    from ggufspec import prompts

    return prompts.decode(sys.stdin.buffer.read(), "standard input").rstrip("\n")
