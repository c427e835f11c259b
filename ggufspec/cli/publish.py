"""``ggufspec publish``: benches as a redacted bundle, with everything that a reader needs to check them."""

from __future__ import annotations

from pathlib import Path

import click

from ggufspec.cli.entry.output import echo
from ggufspec.cli.options import completions
from ggufspec.cli.options.references import offline_option, token_option
from ggufspec.cli.options.shared import check_file


@click.command()
@click.argument("runs", nargs=-1, metavar="[BENCH]...", shell_complete=completions.runs)
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder for the bundle; the zip gets the same name.  [default: ID-bundle]",
)
@click.option(
    "--with-texts",
    is_flag=True,
    help="Also publish prompts that are not built into ggufspec, and the answers to them.",
)
@click.option("--author", metavar="NAMES", help="Author of the BibTeX entry.")
@click.option(
    "--to-hub", metavar="USER/DATASET", help="Also upload the bundle to the Hub, as a new private dataset."
)
@click.option("--public", is_flag=True, help="Let everybody see the dataset.")
@offline_option
@token_option
@click.option("-y", "--yes", is_flag=True, help="Upload without confirmation.")
def command(
    *,
    runs: tuple[str, ...],
    out: Path | None,
    with_texts: bool,
    author: str | None,
    to_hub: str | None,
    public: bool,
    offline: bool,
    token: str | None,
    yes: bool,
) -> None:
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

    if to_hub is None and (public or yes):
        raise click.UsageError(f"{'--public' if public else '--yes'} needs --to-hub")
    if to_hub is not None and offline:
        raise click.UsageError("use either --to-hub or --offline")
    access = hub.Access(token=token, offline=offline)
    if to_hub is not None:
        steps.check_upload(to_hub, access, yes=yes)
    stored = [benches.load_bench(run) for run in runs or ("last",)]
    folder = out or api.default_folder(stored)
    check_file(folder.with_name(f"{folder.name}.zip"))
    private = steps.find_private(publishing.named_repositories(stored), access)
    with written(folder):
        bundle = api.write_bundle(
            stored, folder, private=private, with_texts=with_texts, author=author, token=token
        )
    echo(publishing.describe_bundle(bundle), nl=False)
    if to_hub is not None:
        steps.confirm_upload(bundle, to_hub, access, public=public, yes=yes)
        uploaded = api.upload(bundle, to_hub, access, public=public)
        echo(f"Uploaded: {uploaded.address} ({'public' if public else 'private'}).")
