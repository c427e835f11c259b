"""``ggufspec publish``: benches as a redacted bundle, with everything that a reader needs to check them."""

from __future__ import annotations

import click

from ggufspec.cli.entry.command import command_of
from ggufspec.cli.entry.output import echo
from ggufspec.cli.entry.tables import check_file
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
    from ggufspec import publishing
    from ggufspec.cli.entry.output import written
    from ggufspec.cli.steps import benches
    from ggufspec.cli.steps import publishing as steps
    from ggufspec.modelfiles import hub
    from ggufspec.publishing import api

    if asked.to_hub is None and (asked.public or asked.yes):
        raise click.UsageError(f"{'--public' if asked.public else '--yes'} needs --to-hub")
    if asked.to_hub is not None and asked.offline:
        raise click.UsageError("use either --to-hub or --offline")
    access = hub.Access.of(asked)
    if asked.to_hub is not None:
        steps.check_upload(asked.to_hub, access, yes=asked.yes)
    stored = [benches.load_bench(run) for run in asked.runs or ("last",)]
    folder = asked.out or api.default_folder(stored)
    check_file(folder.with_name(f"{folder.name}.zip"))
    private = steps.find_private(publishing.named_repositories(stored), access)
    with written(folder):
        bundle = api.write_bundle(
            stored,
            folder,
            private=private,
            with_texts=asked.with_texts,
            author=asked.author,
            token=asked.token,
        )
    echo(publishing.describe_bundle(bundle), nl=False)
    if asked.to_hub is not None:
        steps.confirm_upload(bundle, asked.to_hub, access, public=asked.public, yes=asked.yes)
        uploaded = api.upload(bundle, asked.to_hub, access, public=asked.public)
        echo(f"Uploaded: {uploaded.address} ({'public' if asked.public else 'private'}).")
