"""The result of one check: a value, a status, and the fix."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum

from ggufspec.harmless import to_json


class FindingStatus(StrEnum):
    """How a finding is judged."""

    OK = "ok"
    REMARK = "remark"  # measurements work, but something is worth knowing
    MISSING = "missing"  # something cannot be done without it


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One line of the doctor's report; ``mend`` is a command or short advice, None if nothing is wrong."""

    name: str
    status: FindingStatus
    said: str
    mend: str | None = None


@dataclass(frozen=True, kw_only=True)
class Checkup:
    """All findings, and whether the main job, a bench, can run or be made to run."""

    findings: tuple[Finding, ...]
    can_run: bool


def ok(name: str, said: str) -> Finding:
    """Return a finding that needs nothing."""
    return Finding(name=name, status=FindingStatus.OK, said=said)


def remark(name: str, said: str, mend: str | None = None) -> Finding:
    """Return a finding that is worth knowing."""
    return Finding(name=name, status=FindingStatus.REMARK, said=said, mend=mend)


def missing(name: str, said: str, mend: str) -> Finding:
    """Return a finding without which something cannot be done."""
    return Finding(name=name, status=FindingStatus.MISSING, said=said, mend=mend)


_INSTALLERS = (
    ("apt-get", "sudo apt-get install"),
    ("dnf", "sudo dnf install"),
    ("zypper", "sudo zypper install"),
    ("pacman", "sudo pacman -S"),
    ("apk", "sudo apk add"),
    ("brew", "brew install"),
)


def install_words(packages: str, known: Sequence[tuple[str, str]] = _INSTALLERS) -> str:
    """Return the command by which this system installs packages."""
    words = next((words for tool, words in known if shutil.which(tool)), "install")
    return f"{words} {packages}"


def render(checkup: Checkup, output: str) -> str:
    """Return one line per finding with its fix below it, or everything as JSON.

    Args:
        checkup: what was found.
        output: ``text`` or ``json``.
    """
    if output == "json":
        rows = [asdict(finding) for finding in checkup.findings]
        return to_json({"can_run": checkup.can_run, "findings": rows}, indent=2) + "\n"
    width = max(len(finding.name) for finding in checkup.findings)
    lines = []
    for each in checkup.findings:
        lines.append(f"{each.status:<7}  {each.name:<{width}}  {each.said}")
        if each.mend:
            lines.append(f"{'':<7}  {'':<{width}}  → {each.mend}")
    return "".join(f"{line}\n" for line in lines)
