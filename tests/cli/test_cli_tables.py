"""Sweeps, comparisons and tables on the command line, with fake programs that answer at once."""

from __future__ import annotations

import csv
import io
import json
from collections import Counter
from pathlib import Path
from typing import Any

import psutil
import pyarrow.parquet
import pytest

from ggufspec import results
from ggufspec.report import frames
from ggufspec.report.rows.benches import SummaryRow
from ggufspec.report.rows.runs import PositionRow, PromptRow, RoundRow, RunRow
from tests.support import fake_server, fakes, shell

SHORT = ("--pair", "demo", "-p", "Once upon a time", "-n", "32", "-r", "2", "-t", "1")
QUICK = ("bench", *SHORT)


def _rows(*words: str) -> list[dict[str, Any]]:
    return list(json.loads(shell.done(*words).stdout))


def test_a_sweep_is_planned_without_running_anything(llama: Path) -> None:
    words = ("sweep", *SHORT, "-p", "A cat", "--draft", "1-3,8", "--p-min", "0,0.5", "-t", "2", "--dry-run")
    done = shell.done(*words)
    assert "20 arms with 2 baselines, 80 runs: about " in done.stdout.splitlines()[-1]
    rows = _rows(*words, "-o", "json")
    assert [row["role"] for row in rows] == ["target", "drafter", *["drafting"] * 8] * 2
    assert [row["threads"] for row in rows] == [1] * 10 + [2] * 10
    assert [(row["draft"], row["p_min"]) for row in rows[2:10]] == [
        (size, least) for size in (1, 2, 3, 8) for least in (0, 0.5)
    ]
    assert all(row["runs"] == 4 and row["expected_s"] >= 0 for row in rows)
    assert not results.ids()


def test_a_sweep_measures_every_combination_under_its_name(llama: Path) -> None:
    fakes.install(llama, **fakes.AT_ONCE, devices=fakes.TWO_GPUS)
    done = shell.done("sweep", *SHORT, "--draft", "2,5", "--ngl", "0-2+2", "--name", "nightly")
    assert "Stored as nightly: `ggufspec show nightly`" in done.stdout
    rows = _rows("show", "nightly", "-o", "json")
    assert Counter((row["role"], row["draft"]) for row in rows) == {
        ("target", None): 2,
        ("drafter", None): 1,  # it has no --ngl, so both baselines share it
        ("drafting", 2): 2,
        ("drafting", 5): 2,
    }
    assert {row["status"] for row in rows} == {"ok"}
    assert all(row["speedup"] == pytest.approx(3200 / 1550) for row in rows if row["role"] == "drafting")
    runs = [run for run in results.load("nightly").current if run.spec.drafting]
    assert {run.spec.offload.target.layers for run in runs} == {0, 2}
    cells = [
        (row["spec_key"], row["repeat"], row["warmup"], row["anchor"], row["rerun"])
        for row in _rows("show", "nightly", "--runs", "-o", "json")
    ]
    assert len(set(cells)) == len(cells)
    again = shell.here("sweep", *SHORT, "--name", "nightly")
    assert (again.returncode, again.stdout) == (13, "")
    assert "the bench nightly already exists" in again.stderr


def test_precision_ends_a_bench_at_its_first_look(llama: Path) -> None:
    shell.done(*QUICK, "--precision", "5%")
    assert max(run.repeat for run in results.load().current) == 7  # equal runs are precise


def test_force_measures_what_will_not_fit(llama: Path) -> None:
    done = shell.done(*QUICK, "-r", "1", "--ctx", "99999999", "--force")
    assert "memory: " in done.stderr
    assert "warning memory-tight" in done.stdout


def _sessions(tmp_path: Path, eval_ms: dict[str, float]) -> None:
    """Measure a bench of each name, with a llama.cpp whose plain programs take so long."""
    for name, milliseconds in eval_ms.items():
        plain = fakes.answer(fakes.plain_log(eval_ms=milliseconds))
        llama = fakes.install(tmp_path / name, **fakes.AT_ONCE | {"plain": plain})
        assert shell.here(*QUICK, "-p", "A cat", "--name", name, "--llama", str(llama)).returncode == 0


def test_compare_of_single_sessions_gives_ratios_and_no_verdict(tmp_path: Path) -> None:
    _sessions(tmp_path, {"before": 19.0, "same": 19.0, "after": 38.0})
    for other in ("same", "after"):
        compared = shell.here("compare", "before", other, "--fail-slower", "3%")
        assert compared.returncode == 34
        assert f"before and {other} are single sessions" in compared.stderr
        assert "hint: measure both llama.cpps in one bench" in compared.stderr
    rows = _rows("compare", "before", "after", "-o", "json")
    assert [(row["role"], row["verdict"], row["ratio"]) for row in rows] == [
        ("target", "estimate", pytest.approx(0.5)),
        ("drafter", "estimate", pytest.approx(0.5)),
        ("drafting", "estimate", pytest.approx(1.0)),
    ]
    assert _rows("compare", "before", "same", "-o", "json")[0]["texts_equal"] == 2


def test_compare_tells_what_became_slower(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    at_start = psutil.cpu_times()  # else other programs widen the intervals
    monkeypatch.setattr(psutil, "cpu_times", lambda *_args, **_options: at_start)
    before, after = ({f"{name}{n}": ms + n / 10 for n in range(3)} for name, ms in (("b", 19.0), ("a", 38.0)))
    _sessions(tmp_path, before | after)
    rows = _rows("compare", *before, "--", *after, "-o", "json")
    assert [(row["role"], row["verdict"], row["ratio"]) for row in rows][:2] == [
        ("target", "slower", pytest.approx(0.5, rel=0.01)),
        ("drafter", "slower", pytest.approx(0.5, rel=0.01)),
    ]


def test_show_has_a_row_per_whatever_is_asked_for(tmp_path: Path) -> None:
    fake_server.program(tmp_path / "llama-server")
    shell.done(*QUICK, "--engine", "server", "--llama", str(tmp_path))
    (bench,) = results.ids()
    columns = {
        "arm": SummaryRow.names(),
        "prompt": PromptRow.names(),
        "run": RunRow.names(),
        "position": PositionRow.names(),
        "round": RoundRow.names(),
    }
    tables = {per: _rows("show", "--per", per, "-o", "json") for per in columns}
    origin = frames.origin(results.load().meta)
    keys = {per: tuple(dict.fromkeys((*origin, *names))) for per, names in columns.items()}
    keys["arm"] = ("schema", *keys["arm"])
    assert all(tuple(row) == keys[per] for per, rows in tables.items() for row in rows)
    assert "verdict" in tables["prompt"][0]
    assert tables["run"] == _rows("show", bench, "--runs", "-o", "json")
    assert len(tables["run"]) > 3 * 3
    drafting = [run for run in results.load().current if run.spec.drafting]
    assert len(tables["round"]) == sum(len(run.sample.rounds or ()) for run in drafting) > 0
    assert [row["position"] for row in tables["position"]] == [1, 2, 3]
    assert tables["position"][0]["accept_rate"] >= tables["position"][2]["accept_rate"] > 0
    for per in columns:
        read = list(csv.DictReader(io.StringIO(shell.done("show", "--per", per, "-o", "csv").stdout)))
        assert len(read) == len(tables[per])
        assert all(tuple(row) == columns[per] for row in read)


def test_parquet_goes_to_a_file(llama: Path, tmp_path: Path) -> None:
    out = tmp_path / "table.parquet"
    assert shell.here(*QUICK, "-o", "parquet", "--out", str(out)).returncode == 0
    table = pyarrow.parquet.read_table(out)
    assert table.column("accept_rate").to_pylist() == [None, None, 0.75]


def test_methods_are_an_axis_of_a_bench_and_of_a_sweep(llama: Path) -> None:
    words = ("--engine", "binary-simple", "--method", "draft-model,ngram-simple,ngram-cache")
    rows = _rows("sweep", *SHORT, *words, "--draft", "8,16", "--dry-run", "-o", "json")
    assert [(row["role"], row["method"], row["draft"], row["p_min"]) for row in rows[2:]] == [
        ("drafting", "draft-model", 8, 0),
        ("drafting", "draft-model", 16, 0),
        ("drafting", "ngram-simple", 16, None),
        ("drafting", "ngram-cache", 8, None),
    ]
    done = shell.done("bench", *SHORT, *words[:2], "--method", "ngram-mod", "--method", "ngram-cache")
    assert [line.split("|")[2].strip() for line in done.stdout.splitlines()[4:7]] == [
        "target.gguf",
        "target.gguf + ngram-mod",
        "target.gguf + ngram-cache",
    ]
