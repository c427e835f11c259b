"""``ggufspec doctor``: check this machine, and show how to fix problems."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

from ggufspec.cli.entry.command import command_of
from ggufspec.cli.entry.output import echo, terminal_width
from ggufspec.options import DoctorOptions


@command_of(DoctorOptions)
def command(asked: DoctorOptions) -> None:
    """Check what is installed, and print the command that fixes each problem.

    `missing` means that something cannot work, `remark` is for information. The exit code is 1 only if no
    bench can run: llama.cpp is not installed, and cannot be built.

    \b
    ggufspec doctor
    ggufspec doctor --offline -o json
    """
    from ggufspec import doctor
    from ggufspec.doctor import finding
    from ggufspec.errors import GgufspecError

    with _show_status():
        report = doctor.examine(offline=asked.offline)
    echo(finding.render(report, asked.output, width=terminal_width()), nl=False)
    missing = [item for item in report.findings if item.status is finding.FindingStatus.MISSING]
    if not report.can_run:
        missing = [item for item in missing if item.name != "settings"]
        raise GgufspecError(f"no bench can run here: {missing[0].text}", missing[0].fix)
    if any(item.name == "llama.cpp" for item in missing):
        echo("a bench can run after: ggufspec build", err=True)
    else:
        echo("a bench can run: ggufspec bench", err=True)


def _show_status() -> AbstractContextManager[object]:
    """Return a status line for a terminal: the Hub may take long to answer."""
    from rich.console import Console

    console = Console(stderr=True)
    return console.status("checking") if console.is_terminal else nullcontext()
