"""``ggufspec publish``: benches as a redacted bundle, with everything that a reader needs to check them."""

from __future__ import annotations

from pathlib import Path

import click

from ggufspec.cli.entry.output import echo
from ggufspec.cli.options import completions
from ggufspec.cli.options.references import offline_option
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
@offline_option
def command(
    *, runs: tuple[str, ...], out: Path | None, with_texts: bool, author: str | None, offline: bool
) -> None:
    """Write benches as a folder and a zip that others can read and verify.

    The bundle has the runs, raw logs, tables, charts, report, methods, a BibTeX entry and hashes. Names of
    users, hosts, folders and private repositories are replaced, and tokens are removed. With --offline,
    names of repositories that are not known to be public are replaced, too. BENCH is the id of a stored
    bench, the beginning of one, or its folder. [default: the last bench]

    \b
    ggufspec publish                        the last bench, as ID-bundle and ID-bundle.zip
    ggufspec publish b9102 today --out both  two benches
    ggufspec verify both.zip                what a reader does
    """
    from ggufspec import publishing
    from ggufspec.cli.entry.output import written
    from ggufspec.cli.steps import benches
    from ggufspec.cli.steps.publishing import find_private

    stored = [benches.load_bench(run) for run in runs or ("last",)]
    folder = out or Path(f"{stored[0].meta.id}-bundle")
    check_file(folder.with_name(f"{folder.name}.zip"))
    private = find_private(publishing.named_repositories(stored), offline=offline)
    with written(folder):
        bundle = publishing.publish(
            stored,
            folder,
            identity=publishing.read_identity(),
            private=private,
            with_texts=with_texts,
            author=author,
        )
    echo(publishing.describe_bundle(bundle), nl=False)
