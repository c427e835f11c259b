"""The list of stored benches for people."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

from ggufspec import units
from ggufspec.analysis import ListedBench
from ggufspec.report.text import tables


def table(benches: Iterable[ListedBench], output: str = "md") -> str:
    """Return one row per bench, in Markdown or for the terminal; times are UTC."""
    rows = [
        {
            "name": bench.name,
            "started (UTC)": _date(bench.started_at),
            "models": " + ".join(bench.models),
            "γ": ranges(bench.draft_sizes),
            "speed-up": _speedup(bench),
            "complete": _complete(bench),
        }
        for bench in benches
    ]
    if not rows:
        return "No bench is stored yet.\n"
    return tables.table(list(rows[0]), rows, output) + "\n"


def ranges(numbers: Sequence[int]) -> str:
    """Return ascending numbers as ranges: ``1-4, 8``."""
    parts: list[list[int]] = []
    for number in numbers:
        if parts and number == parts[-1][-1] + 1:
            parts[-1].append(number)
        else:
            parts.append([number])
    return ", ".join(f"{part[0]}-{part[-1]}" if len(part) > 1 else str(part[0]) for part in parts)


def _date(started_at: str | None) -> str:
    try:
        return f"{datetime.fromisoformat(started_at or ''):%Y-%m-%d %H:%M}"
    except ValueError:
        return ""


def _speedup(bench: ListedBench) -> str:
    if bench.speedup is None:
        return ""
    at = f" at γ {bench.draft_size}" if len(bench.draft_sizes) > 1 else ""
    is_open = f", {bench.verdict.value}" if bench.verdict is not None and not bench.verdict.is_finding else ""
    synthetic = " (synthetic acceptance)" if bench.synthetic else ""
    return f"{units.format_factor(bench.speedup)}{at}{is_open}{synthetic}"


def _complete(bench: ListedBench) -> str:
    complete = {True: "yes", False: f"{bench.runs} of {bench.planned_runs} runs", None: "not recorded"}
    if bench.damage is None:
        return complete[bench.is_complete]
    return "damaged" if bench.started_at is None else f"{complete[bench.is_complete]}, damaged"
