"""``ggufspec publish``, ``verify`` and ``board``: benches that others can check."""

from __future__ import annotations

from ggufspec import api
from ggufspec.cli.entry.command import command_of
from ggufspec.cli.entry.output import echo
from ggufspec.cli.entry.terminal import Terminal
from ggufspec.options import BoardOptions, PublishOptions, VerifyOptions


@command_of(PublishOptions)
def publish(asked: PublishOptions) -> None:
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


@command_of(VerifyOptions)
def verify(asked: VerifyOptions) -> None:
    """Check that the figures of a bundle follow from its raw logs, and its files from the figures.

    BUNDLE is a folder or zip that `ggufspec publish` wrote. Nothing in it is executed. The exit code is 0 if
    all follows and 36 if not; what cannot be recomputed is named. Logs, figures and hashes that were forged
    to agree are not found: compare --sha256 with what the publisher states elsewhere.

    \b
    ggufspec verify today-bundle.zip
    ggufspec verify today-bundle --sha256 5d3f…
    """
    from ggufspec import publishing
    from ggufspec.errors import VerificationError
    from ggufspec.units import counted

    verification = api.verify(asked)
    echo(publishing.describe_verification(verification), nl=False)
    if verification.findings:
        raise VerificationError(
            f"{asked.bundle} does not verify: {counted(len(verification.findings), 'finding')}",
            "do not rely on its figures; ask who published it",
        )


@command_of(BoardOptions)
def board(asked: BoardOptions) -> None:
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
