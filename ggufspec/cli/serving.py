"""``ggufspec serve`` and ``chat``: a configuration in use."""

from __future__ import annotations

import sys
from contextlib import closing
from typing import TYPE_CHECKING, NoReturn

import click

from ggufspec import api
from ggufspec.choices import ServerFormat
from ggufspec.cli.entry.command import command_of
from ggufspec.cli.entry.output import emit
from ggufspec.cli.entry.terminal import Terminal
from ggufspec.options import NO_WORKERS, ServeOptions, TalkOptions, parse_workers

if TYPE_CHECKING:
    from ggufspec.tuning import ServerCommand


@command_of(ServeOptions)
def serve(asked: ServeOptions) -> None:
    """Run llama-server at a tuned configuration, in place of this command.

    Options for llama-server follow --: --host, --port and --api-key-file, and others that the configuration
    does not decide. Without them, it listens on 127.0.0.1, at the port of the tuning. The models are compared
    with those that were tuned by their checksums.

    \b
    ggufspec serve
    ggufspec serve --tuned big -- --host 0.0.0.0 --port 8000 --api-key-file keys
    ggufspec serve --tuned big --export systemd --out ~/.config/systemd/user/llama.service
    """
    if asked.out is not None:
        if asked.export is None:
            raise click.UsageError("--out is for --export")
        from ggufspec import userfiles

        userfiles.check_writable(asked.out)
    server = api.serving_command(asked, sink=Terminal())
    if asked.export is None:
        run_server(server)
    from ggufspec.report.text import exports

    emit(exports.export(server, ServerFormat(asked.export)), asked.out)


def run_server(server: ServerCommand) -> NoReturn:
    """Become llama-server.

    Raises:
        WorkerError: a worker cannot be used; llama-server would wait for a busy one without end.
        ChildCrashedError: the system cannot start it.
    """
    from ggufspec import proc
    from ggufspec.llama.rpc import workers

    workers.read_workers(parse_workers(server.value("--rpc") or NO_WORKERS))
    proc.replace_process(server.argv, server.full_environment())


@command_of(TalkOptions)
def chat(asked: TalkOptions) -> None:
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

                terminal.ChatTerminal(talk, history=paths.data_dir() / "chat-history").run()
            else:
                from ggufspec.console import views

                views.show(talk, prompt, talk.facts(), as_json=asked.output == "json")
        except Failure as failure:
            raise failure_error(failure.status, failure.reason) from failure


def _read_prompt() -> str:
    """Return the text on standard input, without the line ends after it."""
    from ggufspec import prompts

    return prompts.decode(sys.stdin.buffer.read(), "standard input").rstrip("\n")
