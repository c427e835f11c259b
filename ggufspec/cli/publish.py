"""``ggufspec publish``: benches as a redacted bundle, with everything that a reader needs to check them."""

from __future__ import annotations

from ggufspec import api
from ggufspec.cli.entry.command import command_of
from ggufspec.cli.entry.output import echo
from ggufspec.cli.entry.terminal import Terminal
from ggufspec.options import PublishOptions


@command_of(PublishOptions)
def command(asked: PublishOptions) -> None:
    """Write benches as a folder and a zip that others can read and verify.

    The bundle has the runs, raw logs, tables, charts, report, methods, a BibTeX entry and hashes. Names of
    users, hosts, folders and private repositories are replaced, and tokens are removed. With --offline,
    names of repositories that are not known to be public are replaced, too. BENCH is the id of a stored
    bench, the beginning of one, or its folder. [default: the last bench]

    With --to-hub, the bundle becomes a dataset whose tables `datasets` loads, in one commit. The login is
    that of `hf auth login`, HF_TOKEN or --token; a token is never stored.

    \b
    ggufspec publish                        the last bench, as ID-bundle and ID-bundle.zip
    ggufspec publish b9102 today --out both  two benches
    ggufspec verify both.zip                what a reader does
    ggufspec publish --to-hub user/speeds   also as a private dataset, after confirmation
    """
    bundle = api.publish(asked, sink=Terminal())
    if bundle.address is not None:
        echo(f"Uploaded: {bundle.address} ({'public' if asked.public else 'private'}).")
