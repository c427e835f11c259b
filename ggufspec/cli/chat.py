"""``ggufspec chat``: chat with a pair; shows drafted tokens and their rate."""

from __future__ import annotations

import sys
from contextlib import closing

import click

from ggufspec.cli.entry.command import command_of
from ggufspec.cli.entry.terminal import Terminal
from ggufspec.options import TalkOptions


@command_of(TalkOptions)
def command(asked: TalkOptions) -> None:
    """Chat with a pair of models, and see which tokens were drafted and the tokens per second.

    \b
    ggufspec chat                         the pair fetched last, or the embedded one
    ggufspec chat --tuned last            what the last tuning recommends
    ggufspec chat --once "Why is the sky blue?" -o json
    """
    from ggufspec import measure, paths
    from ggufspec.domain import Failure
    from ggufspec.engines import failure_error

    if asked.once is None and not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise click.UsageError(
            "a chat needs a terminal; use --once PROMPT, or --once - to read standard input"
        )
    from ggufspec.console import talk as talks

    prompt = _read_prompt() if asked.once == "-" else asked.once
    with closing(talks.begin(measure.with_fetched(asked, Terminal()))) as talk:
        try:
            if prompt is None:
                from ggufspec.console import terminal

                terminal.Terminal(talk, history=paths.data_dir() / "chat-history").run()
            else:
                from ggufspec.console import once as answer

                answer.show(talk, prompt, talk.facts(), as_json=asked.output == "json")
        except Failure as failure:
            raise failure_error(failure.status, failure.reason) from failure


def _read_prompt() -> str:
    """Return the text on standard input, without the line ends after it."""
    from ggufspec import prompts

    return prompts.decode(sys.stdin.buffer.read(), "standard input").rstrip("\n")
