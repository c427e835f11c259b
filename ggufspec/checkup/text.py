"""A checkup as text for people or as JSON."""

from __future__ import annotations

import json
from dataclasses import asdict

from ggufspec.checkup.finding import Checkup


def render(checkup: Checkup, output: str) -> str:
    """Return one line per finding, what mends it below it; or all of it as JSON.

    Args:
        checkup: what was found.
        output: ``text`` or ``json``.
    """
    if output == "json":
        rows = [asdict(finding) for finding in checkup.findings]
        return json.dumps({"can_run": checkup.can_run, "findings": rows}, indent=2, ensure_ascii=False) + "\n"
    width = max(len(finding.name) for finding in checkup.findings)
    lines = []
    for each in checkup.findings:
        lines.append(f"{each.status:<7}  {each.name:<{width}}  {each.said}")
        if each.mend:
            lines.append(f"{'':<7}  {'':<{width}}  → {each.mend}")
    return "".join(f"{line}\n" for line in lines)
