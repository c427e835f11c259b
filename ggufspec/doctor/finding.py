"""The result of one check: its text, a status, and the fix."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from enum import StrEnum

from ggufspec.harmless import to_json
from ggufspec.report.text import tables


class FindingStatus(StrEnum):
    """How a finding is judged."""

    OK = "ok"
    REMARK = "remark"  # measurements work, but may be slower or disturbed
    MISSING = "missing"  # something does not work without it


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One line of the doctor's report; ``fix`` is a command or short advice, None if nothing is wrong."""

    name: str
    status: FindingStatus
    text: str
    fix: str | None = None


@dataclass(frozen=True, kw_only=True)
class Checkup:
    """All findings; ``can_run`` is whether a bench can run, after a build if necessary."""

    findings: tuple[Finding, ...]
    can_run: bool


def ok(name: str, text: str) -> Finding:
    """Return a finding without a problem."""
    return Finding(name=name, status=FindingStatus.OK, text=text)


def remark(name: str, text: str, fix: str | None = None) -> Finding:
    """Return a finding about a possible problem."""
    return Finding(name=name, status=FindingStatus.REMARK, text=text, fix=fix)


def missing(name: str, text: str, fix: str) -> Finding:
    """Return a finding about something that is missing."""
    return Finding(name=name, status=FindingStatus.MISSING, text=text, fix=fix)


_INSTALLERS = (
    ("apt-get", "sudo apt-get install"),
    ("dnf", "sudo dnf install"),
    ("zypper", "sudo zypper install"),
    ("pacman", "sudo pacman -S"),
    ("apk", "sudo apk add"),
    ("brew", "brew install"),
)


def install_command(packages: str) -> str:
    """Return this system's command to install packages."""
    words = next((words for tool, words in _INSTALLERS if shutil.which(tool)), "install")
    return f"{words} {packages}"


def render(checkup: Checkup, output: str, *, width: int | None = None) -> str:
    """Return one line per finding with its fix below it, or everything as JSON.

    Args:
        checkup: the findings.
        output: ``text`` or ``json``.
        width: of the terminal, into which sentences are folded; commands are not, so that they can be copied.
    """
    if output == "json":
        from ggufspec.report.schemas import outputs  # for programs only

        return to_json(outputs.DoctorReport.to_json(checkup), indent=2) + "\n"
    longest = max(len(finding.name) for finding in checkup.findings)
    lines = []
    for finding in checkup.findings:
        before = f"{finding.status:<7}  {finding.name:<{longest}}  "
        lines.append(tables.wrap_words(finding.text, width, before=before))
        if finding.fix:
            lines.append(f"{'':<{len(before)}}→ {finding.fix}")
    return "".join(f"{line}\n" for line in lines)
