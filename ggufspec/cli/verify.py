"""``ggufspec verify``: recompute the figures of a bundle that somebody else published."""

from __future__ import annotations

from ggufspec import api
from ggufspec.cli.entry.command import command_of
from ggufspec.cli.entry.output import echo
from ggufspec.options import VerifyOptions


@command_of(VerifyOptions)
def command(asked: VerifyOptions) -> None:
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
