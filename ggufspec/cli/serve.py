"""``ggufspec serve``: run llama-server at a tuned configuration, or write a file that does."""

from __future__ import annotations

import click

from ggufspec.choices import ServerFormat
from ggufspec.cli.entry.command import command_of
from ggufspec.cli.entry.tables import emit
from ggufspec.options import ServeOptions


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
    from ggufspec.cli.steps import serving

    if asked.out is not None:
        if asked.export is None:
            raise click.UsageError("--out is for --export")
        from ggufspec import userfiles

        userfiles.check_writable(asked.out)
    server = serving.prepare_server(asked.tuned, asked.words)
    if asked.export is None:
        serving.run_server(server)
    from ggufspec.report.text import exports

    emit(exports.export(server, ServerFormat(asked.export)), asked.out)
