"""``ggufspec board``: one page over the bundles of many machines."""

from __future__ import annotations

from ggufspec.cli.entry.command import command_of
from ggufspec.cli.entry.output import echo
from ggufspec.cli.entry.tables import check_file, emit
from ggufspec.options import BoardOptions


@command_of(BoardOptions)
def command(asked: BoardOptions) -> None:
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

    check_file(asked.out)
    read = [
        publishing.read_bundle(bundle, verifies=asked.verify)
        for bundle in iterate_with_progress(asked.bundles, lambda bundle: bundle.name)
    ]
    made = boards.make_board(read)
    for bundle in read:
        if not any(bundle is kept for kept in made.bundles):
            echo(f"note: {bundle.name} is left out: another bundle here has the same SHA-256", err=True)
        for finding in bundle.findings:
            echo(f"warning: {bundle.name} does not verify: {finding}", err=True)
    emit(page.html(made, asked.out.parent).encode(), asked.out)
    for sentence in page.sentences(made):
        echo(sentence)
    echo(f"written: {asked.out}", err=True)
