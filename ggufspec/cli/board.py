"""``ggufspec board``: one page over the bundles of many machines."""

from __future__ import annotations

from pathlib import Path

import click

from ggufspec.cli.entry.output import echo
from ggufspec.cli.options.shared import check_file, emit


@click.command()
@click.argument("bundles", nargs=-1, required=True, metavar="BUNDLE...", type=click.Path(path_type=Path))
@click.option(
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    default="board.html",
    show_default=True,
    help="File for the page.",
)
@click.option("--verify", is_flag=True, help="Verify every bundle, and show the result.")
def command(*, bundles: tuple[Path, ...], out: Path, verify: bool) -> None:
    """Write a page with the configurations of many bundles: a table that sorts and filters.

    BUNDLE is a folder or zip that `ggufspec publish` wrote. Every arm that drafts is a row: pair, machine,
    llama.cpp, γ, tokens/s, and the speed-up with its interval. Only runs are read from a bundle; its pages
    are linked, not read. The page works offline, and links to reports are relative to it.

    \b
    ggufspec board bundles/*.zip                 write board.html
    ggufspec board ours theirs.zip --verify      recompute all figures from raw logs first
    """
    from ggufspec import publishing
    from ggufspec.analysis import boards
    from ggufspec.cli.entry.output import iterate_with_progress
    from ggufspec.report.html import board as page

    check_file(out)
    read = [
        publishing.read_bundle(bundle, verifies=verify)
        for bundle in iterate_with_progress(bundles, lambda bundle: bundle.name)
    ]
    made = boards.make_board(read)
    for bundle in read:
        if not any(bundle is kept for kept in made.bundles):
            echo(f"note: {bundle.name} is left out: another bundle here has the same SHA-256", err=True)
        for finding in bundle.findings:
            echo(f"warning: {bundle.name} does not verify: {finding}", err=True)
    emit(page.html(made, out.parent).encode(), out)
    for sentence in page.sentences(made):
        echo(sentence)
    echo(f"written: {out}", err=True)
