"""``ggufspec doctor``: what is here, what is missing, and what mends it."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import click

from ggufspec.cli.entry.output import echo


@click.command()
@click.option("--offline", is_flag=True, help="Do not ask the Hub.")
@click.option(
    "-o", "--output", type=click.Choice(("text", "json")), default="text", show_default=True, help="The form."
)
def command(*, offline: bool, output: str) -> None:
    """Say what is here, what is missing, and the command that mends it.

    `missing` is what something cannot be done without, `remark` what is worth knowing. The exit code is 1
    only where no bench can run: no llama.cpp is installed, and none can be built.

    \b
    ggufspec doctor
    ggufspec doctor --offline -o json
    """
    from ggufspec import doctor
    from ggufspec.doctor import finding
    from ggufspec.errors import GgufspecError

    with _waiting():
        found = doctor.examine(offline=offline)
    echo(finding.render(found, output), nl=False)
    if not found.can_run:
        missing = [
            each
            for each in found.findings
            if each.status is finding.Status.MISSING and each.name != "settings"
        ]
        raise GgufspecError(f"no bench can run here: {missing[0].said}", missing[0].mend)
    if all(each.status is not finding.Status.MISSING or each.name != "llama.cpp" for each in found.findings):
        echo("a bench can run: ggufspec bench", err=True)
    else:
        echo("a bench can run after: ggufspec build", err=True)


def _waiting() -> AbstractContextManager[object]:
    """Return what says on a terminal that something is being done: a Hub may take its time to answer."""
    from rich.console import Console

    console = Console(stderr=True)
    return console.status("looking at what is here") if console.is_terminal else nullcontext()
