"""The command line as users meet it: in a process of its own, with fake programs that answer at once."""

from __future__ import annotations

import csv
import io
import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import psutil
import pytest
from click.testing import CliRunner

from ggufspec import results
from ggufspec.cli import COMMANDS, cli
from ggufspec.frames import SUMMARY_COLUMNS
from tests import fakes

QUICK = ("bench", "--pair", "demo", "-p", "Once upon a time", "-n", "32", "-r", "2", "-t", "1")


def _ggufspec(
    *words: str, llama: Path | None = None, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    environment = os.environ | dict(env or {}) | ({"GGUFSPEC_LLAMA": str(llama)} if llama else {})
    return subprocess.run(
        [sys.executable, "-m", "ggufspec", *words],
        capture_output=True,
        text=True,
        env=environment,
        timeout=120,
    )


@pytest.fixture
def llama(tmp_path: Path) -> Path:
    return fakes.install(tmp_path / "llama")


@pytest.mark.parametrize("name", COMMANDS)
def test_help_opens_with_purpose_and_has_two_examples(name: str) -> None:
    result = CliRunner().invoke(cli, [name, "--help"])
    assert result.exit_code == 0
    usage, purpose, *rest = result.output.split("\n\n")
    assert usage.startswith("Usage: ")
    assert purpose.endswith(".")
    examples = [line for part in rest for line in part.splitlines() if f"ggufspec {name}" in line]
    assert len(examples) >= 2


def test_bench_prints_the_table(llama: Path) -> None:
    done = _ggufspec(*QUICK, llama=llama)
    assert done.returncode == 0, done.stderr
    assert "pair: demo" in done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].startswith("|          | model")
    assert "155.0" in lines[2]  # 31 tokens in 190 ms of evaluation and 10 ms of sampling
    assert "320.0" in lines[4]  # 32 tokens after the first in 100 ms
    assert "75.0%" in lines[4]
    assert "2.06×" in lines[4]
    assert "1 of 1" in lines[4]


def test_json_has_exactly_the_documented_keys(llama: Path) -> None:
    rows = json.loads(_ggufspec(*QUICK, "-o", "json", llama=llama).stdout)
    assert [row["role"] for row in rows] == ["target", "drafter", "drafting"]
    assert all(tuple(row) == SUMMARY_COLUMNS for row in rows)
    assert rows[2]["accept_rate"] == 0.75
    assert rows[2]["speedup"] == pytest.approx(320 / 155)
    assert rows[2]["text_identical"] is True


def test_formats_agree(llama: Path, tmp_path: Path) -> None:
    assert _ggufspec(*QUICK, llama=llama).returncode == 0
    rows = json.loads(_ggufspec("show", "-o", "json").stdout)
    assert [json.loads(line) for line in _ggufspec("show", "-o", "jsonl").stdout.splitlines()] == rows
    table = list(csv.DictReader(io.StringIO(_ggufspec("show", "-o", "csv").stdout)))
    assert [float(row["gen_tps"]) for row in table] == pytest.approx([row["gen_tps"] for row in rows])
    assert table[0]["accept_rate"] == ""
    database = sqlite3.connect(":memory:")
    database.executescript(_ggufspec("show", "-o", "sql").stdout)
    stored = database.execute("SELECT role, gen_tps, accept_rate FROM summary").fetchall()
    database.close()
    assert stored == [(row["role"], pytest.approx(row["gen_tps"]), row["accept_rate"]) for row in rows]
    out = tmp_path / "table.md"
    assert _ggufspec("show", "--out", str(out)).stdout == ""
    assert out.read_text() == _ggufspec("show").stdout


def test_show_lists_runs_and_rows(llama: Path) -> None:
    _ggufspec(*QUICK, llama=llama)
    (name,) = results.ids()
    assert _ggufspec("show", "--list").stdout == f"{name}\n"
    rows = json.loads(_ggufspec("show", name[:8], "--runs", "-o", "json").stdout)
    assert len(rows) == 3 * (1 + 2)
    assert {row["warmup"] for row in rows} == {True, False}


def test_dry_run_prints_commands_that_run(llama: Path) -> None:
    done = _ggufspec(*QUICK, "--dry-run", "--draft", "3,5", llama=llama)
    lines = done.stdout.splitlines()
    assert len(lines) == 4
    assert not results.ids()
    pasted = subprocess.run(["sh", "-c", lines[0]], capture_output=True, text=True)
    assert pasted.returncode == 0
    assert pasted.stdout == fakes.TEXT


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("bench", "--ngl", "many"), 2, "no number of layers"),
        (("bench", "--draft", "8-3"), 2, "draft sizes go from 1 to 64"),
        (("bench", "--draft", "0"), 2, "draft sizes go from 1 to 64"),
        (("bench", "--draft", "x"), 2, "no list of draft sizes"),
        (("bench", "-o", "xml"), 2, "'xml' is not one of"),
        (("bench", "-n", "1"), 2, "1 is not in the range"),
        (("bench", "-md", "drafter.gguf"), 1, "a drafter was given without a target"),
        (("bench", "-m", "missing.gguf"), 6, "missing.gguf"),
        (("bench", "--pair", "demo", "-p", " "), 1, "a prompt is empty"),
        (("bench", "--pair", "demo", "-p", "a " * 300, "-c", "64"), 8, "context"),
        (("bench", "--llama", "/nonexistent"), 3, "--llama names /nonexistent"),
        (("show",), 13, "no bench is stored yet"),
        (("benhc",), 2, "No such command"),
    ],
)
def test_bad_input_is_one_line_a_hint_and_an_exit_code(
    llama: Path, words: tuple[str, ...], code: int, message: str
) -> None:
    tokenizer = fakes.program(llama / "llama-tokenize", "echo '[1, 2, 3]' | sed 's/3/" + "3, " * 99 + "3/'\n")
    assert tokenizer.exists()
    done = _ggufspec(*words, llama=llama)
    assert done.returncode == code, done.stderr
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    if code != 2:
        assert "hint: " in done.stderr


def test_files_that_are_no_models_are_refused_before_anything_runs(llama: Path, tmp_path: Path) -> None:
    page = tmp_path / "model.gguf"
    page.write_text("<!DOCTYPE html><html>Not found</html>")
    done = _ggufspec("bench", "-m", str(page), llama=llama)
    assert done.returncode == 6
    assert not results.ids()


def test_failed_runs_are_rows_and_the_exit_code_says_so(tmp_path: Path) -> None:
    broken = fakes.install(tmp_path / "broken", drafting="kill -SEGV $$\n")
    done = _ggufspec(*QUICK, llama=broken)
    assert done.returncode == 9
    assert "2 of 6 runs failed, first drafting on p1: crashed: died of SIGSEGV" in done.stderr
    assert ".err" in done.stderr
    assert "155.0" in done.stdout
    assert "crashed" in done.stdout


def test_debug_shows_the_traceback(llama: Path) -> None:
    done = _ggufspec("--debug", "show", "nope")
    assert "Traceback" in done.stderr


@pytest.mark.parametrize(
    ("ending", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGKILL, -signal.SIGKILL)]
)
def test_an_interrupted_bench_loses_nothing_and_leaves_nothing(
    tmp_path: Path, ending: signal.Signals, code: int
) -> None:
    marker = str(8000 + ending)
    slow = fakes.install(tmp_path / "slow", drafting=f"sleep {marker}\n")
    environment = os.environ | {"GGUFSPEC_LLAMA": str(slow)}
    bench = subprocess.Popen(
        [sys.executable, "-m", "ggufspec", *QUICK, "--warmup", "0"],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    _wait_until(lambda: _sleeping(marker))
    started = time.monotonic()
    bench.send_signal(ending)
    out, err = bench.communicate(timeout=10)
    assert time.monotonic() - started < 2
    assert bench.returncode == code, err
    _wait_until(lambda: not _sleeping(marker))
    stored = results.load("last")
    assert [run.spec.role.value for run in stored.runs] == ["target", "drafter"]
    if ending is not signal.SIGKILL:
        assert "155.0" in out
        assert "Traceback" not in err


def _sleeping(seconds: str) -> bool:
    return any(
        process.info["cmdline"] == ["sleep", seconds] and process.info["status"] != psutil.STATUS_ZOMBIE
        for process in psutil.process_iter(["cmdline", "status"])
    )


def _wait_until(condition: object, seconds: float = 20.0) -> None:
    assert callable(condition)
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "condition did not come true"
        time.sleep(0.02)
