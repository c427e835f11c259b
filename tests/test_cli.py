"""The command line as users meet it: in a process of its own, with fake programs that answer at once."""

from __future__ import annotations

import csv
import io
import json
import signal
import sqlite3
import subprocess
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from ggufspec import frames, results
from ggufspec.cli import COMMANDS, cli
from tests import fakes, shell
from tests.shell import ggufspec

DEMO = ("--pair", "demo", "-p", "Once upon a time")
SHORT = (*DEMO, "-n", "32", "-r", "2", "-t", "1")
QUICK = ("bench", *SHORT)


@pytest.fixture
def llama(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = fakes.install(tmp_path / "llama", **fakes.AT_ONCE)
    monkeypatch.setenv("GGUFSPEC_LLAMA", str(folder))
    return folder


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
    done = ggufspec(*QUICK)
    assert done.returncode == 0, done.stderr
    assert "pair: demo" in done.stderr
    engine, empty, *lines = done.stdout.splitlines()
    assert (engine.startswith("Engine: binary (llama.cpp's own programs, "), empty) == (True, "")
    assert lines[0].startswith("|          | model")
    assert "1550" in lines[2]  # 31 tokens in 19 ms of evaluation and 1 ms of sampling
    assert "3200" in lines[4]  # 32 tokens after the first in 10 ms
    assert "75.0%" in lines[4]
    assert "2.06×" in lines[4]
    assert "1 of 1" in lines[4]


def test_json_has_exactly_the_documented_keys(llama: Path) -> None:
    rows = json.loads(ggufspec(*QUICK, "-o", "json").stdout)
    assert [row["role"] for row in rows] == ["target", "drafter", "drafting"]
    assert all(tuple(row) == frames.SUMMARY_COLUMNS for row in rows)
    assert rows[2]["accept_rate"] == 0.75
    assert rows[2]["speedup"] == pytest.approx(3200 / 1550)
    assert rows[2]["text_identical"] is True


def test_formats_agree(llama: Path, tmp_path: Path) -> None:
    assert ggufspec(*QUICK).returncode == 0
    rows = json.loads(shell.here("show", "-o", "json").stdout)
    assert [json.loads(line) for line in shell.here("show", "-o", "jsonl").stdout.splitlines()] == rows
    table = list(csv.DictReader(io.StringIO(shell.here("show", "-o", "csv").stdout)))
    assert [float(row["gen_tps"]) for row in table] == pytest.approx([row["gen_tps"] for row in rows])
    assert table[0]["accept_rate"] == ""
    database = sqlite3.connect(":memory:")
    database.executescript(shell.here("show", "-o", "sql").stdout)
    stored = database.execute("SELECT role, gen_tps, accept_rate FROM summary").fetchall()
    database.close()
    assert stored == [(row["role"], pytest.approx(row["gen_tps"]), row["accept_rate"]) for row in rows]
    out = tmp_path / "table.md"
    assert shell.here("show", "--out", str(out)).stdout == ""
    assert out.read_text() == shell.here("show").stdout


def test_show_lists_runs_and_rows(llama: Path) -> None:
    ggufspec(*QUICK)
    (name,) = results.ids()
    assert shell.here("show", "--list").stdout == f"{name}\n"
    rows = json.loads(shell.here("show", name[:8], "--runs", "-o", "json").stdout)
    assert len([row for row in rows if not (row["anchor"] or row["rerun"])]) == 3 * (1 + 2)
    assert {row["warmup"] for row in rows} == {True, False}


def test_dry_run_prints_commands_that_run(llama: Path) -> None:
    done = ggufspec(*QUICK, "--dry-run", "--draft", "3,5")
    lines = done.stdout.splitlines()
    assert len(lines) == 4
    assert not results.ids()
    pasted = subprocess.run(["sh", "-c", lines[0]], capture_output=True, text=True)
    assert pasted.returncode == 0
    assert pasted.stdout == fakes.TEXT


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("bench", "--ngl", "many"), 2, "is not a number of layers"),
        (("bench", "--draft", "8-3"), 2, "draft sizes go from 1 to 64"),
        (("bench", "--draft", "0"), 2, "draft sizes go from 1 to 64"),
        (("bench", "--draft", "x"), 2, "is not a number of draft sizes"),
        (("bench", "-o", "xml"), 2, "'xml' is not one of"),
        (("bench", "-n", "1"), 2, "1 is not in the range"),
        (("bench", "-md", "drafter.gguf"), 1, "a drafter was given without a target"),
        (("bench", "-m", "missing.gguf"), 6, "missing.gguf"),
        (("bench", *DEMO, "-p", " "), 1, "prompt p2 is empty"),
        (("bench", "--pair", "demo", "-p", "a " * 300, "-c", "64"), 8, "context"),
        (("bench", "--llama", "/nonexistent"), 3, "--llama names /nonexistent"),
        (("bench", "--ngl", "0,20"), 2, "give one value here, not '0,20'; `ggufspec sweep` takes several"),
        (("bench", "--suite", "nope"), 2, "'nope' is not one of 'demo', 'domains'"),
        (
            ("bench", "--precision", "2"),
            2,
            "'2' is not a percentage between 0.01% and 100%; give for example 2%",
        ),
        (("bench", "--max-time", "soon"), 2, "not a duration: 'soon'"),
        (("bench", *DEMO, "--chat"), 1, "the target has no chat template"),
        (("bench", *DEMO, "--system", "Be brief"), 1, "a system prompt needs a chat template"),
        (("bench", *DEMO, "--ctx", "99999999"), 11, "but the machine has"),
        (("bench", *DEMO, "--name", "../x"), 13, "'../x' cannot be the name of a bench"),
        (("sweep", *DEMO, "--resume", "nope"), 13, "no bench is stored yet"),
        (("sweep", *DEMO, "--name", "a", "--resume", "b"), 2, "give one of them"),
        (("sweep", "--draft", "1-8+0"), 2, "the step in '1-8+0' must be greater than 0"),
        (("sweep", "--p-min", "0,2"), 2, "probabilities go from 0 to 1"),
        (("sweep", "-ctk", "q9"), 2, "'q9' is not one of f32, f16"),
        (("compare", "a", "b"), 13, "no bench is stored yet"),
        (("show", "--per", "arms"), 2, "'arms' is not one of 'arm', 'prompt'"),
        (("show",), 13, "no bench is stored yet"),
        (("benhc",), 2, "No such command"),
    ],
)
def test_bad_input_is_one_line_a_hint_and_an_exit_code(
    llama: Path, words: tuple[str, ...], code: int, message: str
) -> None:
    tokenizer = fakes.program(llama / "llama-tokenize", "echo '[1, 2, 3]' | sed 's/3/" + "3, " * 99 + "3/'\n")
    assert tokenizer.exists()
    done = shell.here(*words)
    assert done.returncode == code, done.stderr
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    if code != 2:
        assert "hint: " in done.stderr


def test_files_that_are_no_models_are_refused_before_anything_runs(llama: Path, tmp_path: Path) -> None:
    page = tmp_path / "model.gguf"
    page.write_text("<!DOCTYPE html><html>Not found</html>")
    done = ggufspec("bench", "-m", str(page))
    assert done.returncode == 6
    assert not results.ids()


def test_failed_runs_are_rows_and_the_exit_code_says_so(tmp_path: Path) -> None:
    broken = fakes.install(tmp_path / "broken", **fakes.AT_ONCE | {"drafting": "kill -SEGV $$\n"})
    done = ggufspec(*QUICK, llama=broken)
    assert done.returncode == 9
    assert "2 of 6 runs failed, first drafting on p1: crashed: died of SIGSEGV" in done.stderr
    assert ".err" in done.stderr
    assert "1550" in done.stdout
    assert "crashed" in done.stdout


def test_debug_shows_the_traceback(llama: Path) -> None:
    done = ggufspec("--debug", "show", "nope")
    assert "Traceback" in done.stderr


@pytest.mark.parametrize(
    ("ending", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGKILL, -signal.SIGKILL)]
)
def test_an_interrupted_bench_loses_nothing_and_leaves_nothing(
    tmp_path: Path, ending: signal.Signals, code: int
) -> None:
    marker = str(812_340_000 + ending)  # in nobody else's command line
    slow = fakes.install(tmp_path / "slow", **fakes.AT_ONCE | {"drafting": f"exec sleep {marker}\n"})
    bench = shell.start(*QUICK, "--warmup", "0", llama=slow)
    shell.wait_until(lambda: shell.alive(marker))
    started = time.monotonic()
    bench.send_signal(ending)
    out, err = bench.communicate(timeout=10)
    assert time.monotonic() - started < 2
    assert bench.returncode == code, err
    shell.wait_until(lambda: not shell.alive(marker))
    stored = results.load("last")
    assert stored.runs
    assert "drafting" not in {run.spec.role.value for run in stored.runs}
    if ending is not signal.SIGKILL:
        assert "1550" in out
        assert "Traceback" not in err
