"""The same warnings in every format of a bench and of a comparison, and ``--strict``."""

from __future__ import annotations

import csv
import html
import io
import json
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from ggufspec import results
from ggufspec.analysis import MeasurementWarning, comparing, review, warnings
from ggufspec.domain import Role
from ggufspec.report import frames
from ggufspec.report.html import notebook
from ggufspec.report.text import formats
from ggufspec.results import ResultSet
from tests.support import shell, values

BEFORE = {"memory-tight": "little is left"}
"""Known before the first run."""

NAMES = {"memory-tight", "busy-machine", "drift", "unstable", "unequal-lengths"}


def _doubtful(name: str = "mine") -> ResultSet:
    """A bench with warnings known before it, of single runs, of single arms and of the whole."""
    runs = []
    for repeat in range(4):
        for prompt, tps in (("p1", 40.0), ("p2", 60.0)):
            restless = 1.5 if (repeat + (prompt == "p2")) % 2 else 1.0
            for role, draft, gain in (
                *((Role.TARGET, None, 1.0), (Role.DRAFTING, 3, 1.5)),
                (Role.DRAFTING, 5, restless),
            ):
                runs.append(values.run(role, prompt=prompt, repeat=repeat, tps=gain * tps, draft=draft))
    runs[0] = replace(runs[0], sample=replace(runs[0].sample, gen_tokens=4, gen_s=4 / 40))
    runs[1] = replace(runs[1], doubts=("busy-machine",))
    anchors = [
        replace(
            values.run(prompt="p1", tps=40 * 1.05**number, repeat=number),
            anchor=True,
            started_at=f"2026-01-02T03:{10 + number}:00.000+00:00",
            log=f"anchor-{number}",
        )
        for number in range(9)
    ]
    stored = values.bench(*runs, *anchors, doubts=BEFORE, name=name)
    results.close(stored)
    return results.load(name)


def _of_rows(rows: Sequence[Mapping[Any, Any]]) -> set[str]:
    """The names in the cells of rows, flat or with advice."""
    cells = [row[column] for row in rows for column in ("warnings", "bench_warnings")]
    return {
        name
        for cell in cells
        for name in (cell.split("; ") if isinstance(cell, str) else [item["name"] for item in cell])
        if name
    }


def _of_text(content: bytes) -> set[str]:
    lines = content.decode().splitlines()
    return {line.split()[1].rstrip(":") for line in lines if line.startswith("warning ")}


def _of_sql(content: bytes) -> set[str]:
    with closing(sqlite3.connect(":memory:")) as database:
        database.executescript(content.decode())
        rows = database.execute("SELECT warnings, bench_warnings FROM summary").fetchall()
    return _of_rows([{"warnings": row[0], "bench_warnings": row[1]} for row in rows])


READERS: dict[str, Callable[[bytes], set[str]]] = {
    "table": _of_text,
    "md": _of_text,
    "csv": lambda content: _of_rows(list(csv.DictReader(io.StringIO(content.decode())))),
    "json": lambda content: _of_rows(json.loads(content)),
    "jsonl": lambda content: _of_rows([json.loads(line) for line in content.splitlines()]),
    "sql": _of_sql,
    "parquet": lambda content: _of_rows(pd.read_parquet(io.BytesIO(content)).to_dict("records")),
}


@pytest.mark.parametrize("form", formats.FORMATS)
def test_every_format_holds_the_same_warnings(form: str, tmp_path: Path) -> None:
    bench = _doubtful()
    assert set(review.warnings(bench)) == NAMES
    file = tmp_path / "out"
    shell.done("show", bench.meta.id, "-o", form, "--out", str(file))
    assert READERS[form](file.read_bytes()) == NAMES


def test_pages_hold_the_same_warnings(tmp_path: Path) -> None:
    bench, file = _doubtful(), tmp_path / "report.html"
    assert shell.here("report", bench.meta.id, "--out", str(file)).returncode == 0
    for page in (file.read_text(), notebook.notebook_html(bench)):
        for name, advice in review.warnings(bench).items():
            assert name in page
            words = page.replace("<code>", "`").replace("</code>", "`")  # code in a sentence is shown as code
            assert advice in html.unescape(words)


def _names(cell: Sequence[Mapping[str, str]]) -> set[str]:
    return {item["name"] for item in cell}


def test_rows_tell_warnings_of_an_arm_from_those_of_the_bench() -> None:
    bench = _doubtful()
    rows = formats.records(frames.summary(bench))
    assert [(row["draft"], _names(row["warnings"])) for row in rows] == [
        *((None, set()), (3, {"busy-machine"}), (5, {"unstable"}))
    ]
    for row in rows:
        assert _names(row["bench_warnings"]) == {"memory-tight", "drift", "unequal-lengths"}
        for item in (*row["warnings"], *row["bench_warnings"]):
            assert item["advice"] == review.warnings(bench)[item["name"]]


def test_a_warning_known_before_that_runs_show_too_is_of_both() -> None:
    quiet = [values.run(repeat=repeat) for repeat in range(1, 7)]
    bench = values.bench(
        replace(values.run(), doubts=("busy-machine",)), *quiet, doubts={"busy-machine": "stop it"}
    )
    (row,) = formats.records(frames.summary(bench))
    assert row["warnings"] == row["bench_warnings"]
    assert [item["name"] for item in row["warnings"]] == ["busy-machine"]
    assert row["warnings"][0]["advice"].endswith("(1 of 7 runs)")


def test_damage_is_of_the_bench() -> None:
    bench = replace(values.whole_bench(), damage=("left out: 1 line",))
    for row in formats.records(frames.summary(bench)):
        assert "damaged" in _names(row["bench_warnings"])


def test_a_comparison_holds_the_warnings_of_both() -> None:
    before, after = _doubtful("before"), _doubtful("after")
    compared = comparing.compare(before, after)
    assert {bench: {*named} for bench, named in compared.warnings.items()} == {
        "before": NAMES,
        "after": NAMES,
    }
    text = shell.here("compare", "before", "after").stdout
    rows = json.loads(shell.here("compare", "before", "after", "-o", "json").stdout)
    page = html.unescape(notebook.notebook_html(compared))
    for bench, named in compared.warnings.items():
        for name, advice in named.items():
            assert f"warning {name}: {bench}: {advice}" in text
            assert f"{name}: {bench}" in page
            for row in rows:
                assert {"bench": bench, "name": name, "advice": advice} in row["bench_warnings"]


def test_strict_ends_with_a_code_of_its_own_after_the_output(tmp_path: Path) -> None:
    _doubtful()
    file = tmp_path / "report.html"
    for words in (
        *(
            ("show", "mine"),
            ("show", "mine", "--all"),
            ("show", "mine", "--plot"),
            ("show", "mine", "-o", "json"),
        ),
        *(("compare", "mine", "mine"), ("report", "mine", "--out", str(file))),
    ):
        usual, strict = shell.here(*words), shell.here(*words, "--strict")
        assert (usual.returncode, strict.returncode) == (0, 35), words
        assert len(strict.stdout) > 100 or str(file) in words
        assert "mine: memory-tight, busy-machine, drift" in strict.stderr
    assert file.stat().st_size > 1000


@pytest.mark.usefixtures("llama")
@pytest.mark.parametrize("command", ["bench", "sweep"])
def test_measuring_is_strict_too(command: str) -> None:
    words = ("-p", "A cat", "-n", "32", "-t", "1", "-r", "1", "--warmup", "0", "--name", "mine")
    done = shell.here(command, "--pair", "demo", *words, "--strict")
    assert (done.returncode, "mine: few-repeats" in done.stderr) == (35, True)
    assert ("warning few-repeats: " in done.stdout, "warning few-repeats: " in done.stderr) == (True, False)
    assert results.load("mine").is_complete


def test_strict_accepts_a_bench_without_such_warnings() -> None:
    quiet = values.bench(values.run(), values.run(Role.DRAFTING, draft=3), name="mine")
    results.close(quiet)
    assert not warnings.doubtful(review.warnings(quiet))
    assert shell.here("show", "mine", "--strict").returncode == 0


def test_notes_put_no_verdict_in_doubt() -> None:
    notes = {warning for warning in MeasurementWarning if not warnings.doubtful([warning])}
    assert notes == {
        *(MeasurementWarning.NEAR_TIES, MeasurementWarning.SUMMARY_RETRIED, MeasurementWarning.BEST_AT_EDGE),
        *(MeasurementWarning.SYNTHETIC, MeasurementWarning.BEYOND_LENGTH, MeasurementWarning.FEW_BEYOND),
        *(MeasurementWarning.CLIPPED, MeasurementWarning.WIDENED, MeasurementWarning.CACHE_LOST),
        MeasurementWarning.READS_ZEROS,
    }
    assert warnings.doubtful(["near-ties", "a-name-of-a-newer-version"]) == ("a-name-of-a-newer-version",)
