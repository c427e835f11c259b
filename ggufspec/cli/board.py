"""``ggufspec board``: one page over the bundles of many machines."""

from __future__ import annotations

from ggufspec import api
from ggufspec.cli.entry.command import command_of
from ggufspec.cli.entry.output import echo
from ggufspec.cli.entry.terminal import Terminal
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
    from pathlib import Path

    from ggufspec.report.html import board as page

    out = asked.out or Path("board.html")
    made = api.board(asked.replace(out=out), sink=Terminal())
    for sentence in page.sentences(made):
        echo(sentence)
    echo(f"written: {out}", err=True)
