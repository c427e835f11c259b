"""``ggufspec serve``: run llama-server at a tuned configuration, or write a file that does."""

from __future__ import annotations

from pathlib import Path

import click

from ggufspec.choices import ServerFormat
from ggufspec.cli.options.serving import server_words
from ggufspec.cli.options.tuned import tuned_option


@click.command()
@tuned_option("Serve the configuration of this tuning. [default: the one stored last]", decides=False)
@click.option(
    "--export",
    type=click.Choice([form.value for form in ServerFormat]),
    help="Write a file instead: a systemd unit, a Compose file, a configuration of llama-swap, a preset for "
    "llama-server --models-preset, or environment variables.",
)
@click.option(
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write --export to this file. [default: standard output]",
)
@server_words
def command(*, tuned: str | None, export: str | None, out: Path | None, words: tuple[str, ...]) -> None:
    """Run llama-server at a tuned configuration, in place of this command.

    Options for llama-server follow --: --host, --port and --api-key-file, and others that the configuration
    does not decide. Without them, it listens on 127.0.0.1, at the port of the tuning. The models are compared
    with those that were tuned by their checksums.

    \b
    ggufspec serve
    ggufspec serve --tuned big -- --host 0.0.0.0 --port 8000 --api-key-file keys
    ggufspec serve --tuned big --export systemd --out ~/.config/systemd/user/llama.service
    """
    from ggufspec.cli.options.shared import check_file, emit
    from ggufspec.cli.steps import serving

    if out is not None:
        if export is None:
            raise click.UsageError("--out is for --export")
        check_file(out)
    server = serving.prepare_server(tuned, words)
    if export is None:
        serving.run_server(server)
    from ggufspec.report.text import exports

    emit(exports.export(server, ServerFormat(export)), out)
