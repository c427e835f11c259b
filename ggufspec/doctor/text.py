"""A checkup as text for people or as JSON."""

from __future__ import annotations

from dataclasses import asdict

from ggufspec.doctor.finding import Checkup
from ggufspec.harmless import to_json


def render(checkup: Checkup, output: str) -> str:
    """Return one line per finding, what mends it below it; or all of it as JSON.

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
