"""``ggufspec serve``: run llama-server at a tuned configuration, or write a file that does."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

import click

from ggufspec import api
from ggufspec.choices import ServerFormat
from ggufspec.cli.entry.command import command_of
from ggufspec.cli.entry.tables import emit
from ggufspec.cli.entry.terminal import Terminal
from ggufspec.options import NO_WORKERS, ServeOptions, parse_workers

if TYPE_CHECKING:
    from ggufspec.tuning import ServerCommand


@command_of(ServeOptions)
def command(asked: ServeOptions) -> None:
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
