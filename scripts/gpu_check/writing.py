"""What a check leaves: a Markdown summary, the facts as JSON, the raw logs as one archive."""

from __future__ import annotations

import json
import tarfile
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from ggufspec import paths
from ggufspec.report.text import tables
from gpu_check.steps import DONE, FAILED, NOT_RUN, Bar, Report, Row

_ABSENT = {None, ""}
_BASIS = (
    "Tokens/s are medians over prompts. *Synthetic*: acceptance is simulated, 70.8 % of drafted tokens at "
    "γ = 3, with the same probability for each token at every γ; the models and their texts are random."
)


def read(out: Path, mode: str) -> dict[str, Report]:
    """Return the reports of earlier calls in a folder; those of another mode do not count."""
    found: dict[str, Report] = {}
    for file in sorted(out.glob("part*.json")):
        told = json.loads(file.read_text(encoding="utf-8"))
        if told["mode"] == mode:
            found |= {each["name"]: Report.from_json(each) for each in told["steps"]}
    return found


def write(out: Path, mode: str, reports: Iterable[Report]) -> str:
    """Write ``partN.json`` for each part and ``summary.md`` of all; return the summary."""
    out.mkdir(parents=True, exist_ok=True)
    every = list(reports)
    for part in sorted({each.part for each in every}):
        told = {
            "mode": mode,
            "part": part,
            "written_at": datetime.now(UTC).isoformat(timespec="seconds"),
            "steps": [each.to_json() for each in every if each.part == part],
        }
        _replace(out / f"part{part}.json", json.dumps(told, indent=1, ensure_ascii=False, default=str))
    text = summary(mode, every)
    _replace(out / "summary.md", text)
    return text


def summary(mode: str, reports: Sequence[Report]) -> str:
    """Return everything as Markdown: how it ended, the criteria, then a section for each step."""
    counts = {status: sum(each.status == status for each in reports) for status in (DONE, NOT_RUN, FAILED)}
    title = "# Measured on a GPU" if mode == "gpu" else "# Dry run on a CPU: no figure here is a GPU's"
    lines = [
        title,
        "",
        f"{counts[DONE]} steps done, {counts[NOT_RUN]} not run, {counts[FAILED]} failed. {_BASIS}",
        "",
        *_bars(mode, reports),
    ]
    missing = [each for each in reports if each.status != DONE]
    if missing:
        lines += [
            "## Not measured",
            "",
            *(f"- {each.title}: {each.status}, {each.said}" for each in missing),
            "",
        ]
    for each in (each for each in reports if each.section.rows or each.section.notes):
        lines += [f"## {each.title}", "", *_table(each.section.rows), *_spaced(each.section.notes)]
    return "\n".join(lines).rstrip() + "\n"


def pack_logs(file: Path, reports: Iterable[Report], recorded: Path) -> None:
    """Put recorded logs and the raw logs of all benches into one archive.

    ``tests/logs/…`` is what record_logs.py wrote, ``benches/STEP/…`` what llama.cpp said in a step's runs.
    """
    with tarfile.open(file, "w:gz") as archive:
        if recorded.is_dir():
            archive.add(recorded, "tests/logs")
        for report in reports:
            for bench in report.section.benches:
                folder = paths.runs_dir() / bench
                for name in ("meta.json", "runs.jsonl", "logs"):
                    if (folder / name).exists():
                        archive.add(folder / name, f"benches/{report.name}/{name}")


def _bars(mode: str, reports: Sequence[Report]) -> list[str]:
    rows = [_bar(report, bar, mode) for report in reports for bar in report.section.bars]
    if not rows:
        return []
    return ["## Criteria", "", *_table(rows)]


def _bar(report: Report, bar: Bar, mode: str) -> Row:
    value = None if bar.value is None else f"{bar.value:g} {bar.unit}"
    return {
        "of": report.title,
        "what": bar.name,
        "measured": value,
        "criterion": f"within {bar.limit:g} {bar.unit}",
        "verdict": bar.verdict if mode == "gpu" else f"{bar.verdict} (CPU)",
    }


def _table(rows: Sequence[Row]) -> list[str]:
    """Return a table without columns that say nothing."""
    names = [name for name in (rows[0] if rows else ()) if any(row.get(name) not in _ABSENT for row in rows)]
    if not names:
        return []
    cells = [["" if row.get(name) is None else str(row[name]) for name in names] for row in rows]
    return [tables.grid(names, cells), ""]


def _spaced(notes: Sequence[str]) -> list[str]:
    return [line for note in notes for line in (note, "")]


def _replace(file: Path, text: str) -> None:
    new = file.with_suffix(".new")
    new.write_text(text, encoding="utf-8")
    new.replace(file)


def status_of(reports: Mapping[str, Report]) -> int:
    """Return an exit status: 1 where a step failed."""
    return int(any(each.status == FAILED for each in reports.values()))
