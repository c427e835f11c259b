"""The command line as users meet it: in a process of its own, with fake programs that answer at once."""

from __future__ import annotations

import json
import os
import pty
import shlex
import signal
import subprocess
import sys
from datetime import datetime
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from ggufspec import machine, results
from ggufspec.cli import COMMANDS, cli
from ggufspec.cli.steps import benches
from ggufspec.domain import Conditions
from ggufspec.measure import measuring
from tests.support import fake_server, fakes, shell
from tests.support.shell import ggufspec

DEMO = ("--pair", "demo", "-p", "Once upon a time")
SHORT = (*DEMO, "-n", "32", "-r", "2", "-t", "1")
QUICK = ("bench", *SHORT)


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
    assert "75.0 %" in lines[4]
    assert "2.06×" in lines[4]
    assert "1 of 1" in lines[4]


def test_a_table_is_written_as_it_is_printed(llama: Path, tmp_path: Path) -> None:
    assert shell.here(*QUICK).returncode == 0
    for form in ("table", "md", "csv", "json", "jsonl", "sql"):
        out = tmp_path / f"table.{form}"
        assert shell.here("show", "-o", form, "--out", str(out)).stdout == ""
        assert out.read_text() == shell.here("show", "-o", form).stdout


def test_show_lists_runs_and_rows(llama: Path) -> None:
    shell.here(*QUICK)
    (name,) = results.ids()
    _, _, line = shell.here("show", "--list").stdout.splitlines()
    cells = [cell.strip() for cell in line.strip("|").split("|")]
    assert (cells[0], cells[2], cells[3], cells[5]) == (name, "target.gguf + drafter.gguf", "3", "yes")
    assert cells[1] == f"{datetime.fromisoformat(results.load(name).meta.started_at):%Y-%m-%d %H:%M}"
    assert "×" in cells[4]  # "2.06×", or "2.06×, undecided" where the clock of so short runs decides nothing
    rows = json.loads(shell.here("show", name[:8], "--runs", "-o", "json").stdout)
    assert len([row for row in rows if not (row["anchor"] or row["rerun"])]) == 3 * (1 + 2)
    assert {row["warmup"] for row in rows} == {True, False}


def test_dry_run_prints_commands_that_run(llama: Path) -> None:
    done = shell.here(*QUICK, "--dry-run", "--draft", "3,5")
    lines = done.stdout.splitlines()
    assert len(lines) == 4
    assert not results.ids()
    pasted = subprocess.run(["sh", "-c", lines[0]], capture_output=True, text=True)
    assert pasted.returncode == 0
    assert pasted.stdout == fakes.TEXT


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("bench", "--ngl", "many"), 2, "'many' is not a number, a list or a range; examples: 3; 3,5,8;"),
        (("bench", "--draft", "8-3"), 2, "out of range: draft sizes are from 1 to 64"),
        (("bench", "-n", "1"), 2, "1 is not in the range"),
        (("bench", "-m", "missing.gguf"), 6, "missing.gguf"),
        (("bench", *DEMO, "-p", " "), 1, "prompt p2 is empty"),
        (("bench", "--pair", "demo", "-p", "a " * 300, "-c", "64"), 8, "context"),
        (("bench", "--suite", "nope"), 2, "'nope' is not one of 'agent', 'demo'"),
        (("bench", "--precision", "2"), 2, "'2' is not a percentage between 0.01% and 100%; examples: 2%"),
        (("bench", "--max-time", "soon"), 2, "not a duration: 'soon'"),
        (("bench", *DEMO, "--chat"), 1, "the target has no chat template"),
        (("bench", *DEMO, "--system", "Be brief"), 1, "a system prompt needs a chat template"),
        (("bench", *DEMO, "--ctx", "99999999"), 11, "but the machine has"),
        (("bench", *DEMO, "--name", "../x"), 13, "'../x' cannot be the name of a bench"),
        (("sweep", *DEMO, "--resume", "nope"), 13, "no bench is stored yet"),
        (("show", "--per", "arms"), 2, "'arms' is not one of 'arm', 'prompt'"),
    ],
)
def test_bad_input_has_a_hint_and_code(llama: Path, words: tuple[str, ...], code: int, message: str) -> None:
    tokenizer = fakes.program(llama / "llama-tokenize", "echo '[1, 2, 3]' | sed 's/3/" + "3, " * 99 + "3/'\n")
    assert tokenizer.exists()
    done = shell.here(*words)
    assert done.returncode == code, done.stderr
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    if code != 2:
        assert "hint: " in done.stderr


def _tokenizer(folder: Path, options: str) -> None:
    """Write a tokenizer program that finds two tokens in any text."""
    body = f"[ $1 = --help ] && {{ printf '{options}'; exit 0; }}\necho '[1, 2]'\n"
    fakes.script(folder / "llama-tokenize", body)


@pytest.mark.parametrize("begins", [r"printf 'a\000b'", "seq 40000"])
def test_a_text_that_no_command_line_can_hold_is_compared_and_stored(tmp_path: Path, begins: str) -> None:
    """A NUL, or more than 128 KiB, before the place where drafting leaves the target's own text."""
    bodies = {name: f"{begins}\nprintf ' {name}'\n{body}" for name, body in fakes.AT_ONCE.items()}
    llama = fakes.install(tmp_path / "llama", **bodies)
    _tokenizer(llama, "--ids\\n-f, --file F\\n-p, --prompt P")
    done = shell.done(*QUICK, "--llama", str(llama))
    assert "warning texts-not-judged" in done.stdout
    assert f"the llama.cpp in {llama} has no server" in done.stdout
    rows = [run for run in results.load("last").current if run.spec.drafting]
    assert [run.text_identical for run in rows] == [False, False]
    assert all(run.difference for run in rows)


@pytest.mark.parametrize("engine", ["binary", "server"])
def test_a_long_prompt_file_is_measured(llama: Path, tmp_path: Path, engine: str) -> None:
    fake_server.program(llama / "llama-server")
    _tokenizer(llama, "--ids")
    long = tmp_path / "long.txt"
    long.write_text("once upon a time " * 12_000)
    words = ("--pair", "demo", "-f", str(long), "-n", "32", "-r", "1", "-t", "1", "-c", "1024", "--force")
    shell.done("bench", *words, "--engine", engine)
    assert {run.sample.status.value for run in results.load("last").runs} == {"ok"}


def _hanging(tmp_path: Path, go_on: Path | None = None) -> tuple[Path, Path]:
    """Return a llama.cpp whose drafting program hangs, until a file is there, and where it writes its ids."""
    pids, drafting = tmp_path / "pids", "exec sleep 600\n"
    if go_on is not None:
        drafting = f"while ! [ -e {go_on} ]; do sleep 0.01; done\n{fakes.AT_ONCE['drafting']}"
    bodies = fakes.AT_ONCE | {"drafting": shell.note(pids) + drafting}
    return fakes.install(tmp_path / "slow", **bodies), pids


@pytest.mark.parametrize(
    ("ending", "code"),
    [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGKILL, -signal.SIGKILL)],
)
def test_an_interrupt_loses_no_run(tmp_path: Path, ending: signal.Signals, code: int, scratch: Path) -> None:
    slow, pids = _hanging(tmp_path)
    bench = shell.start(*QUICK, "--warmup", "0", llama=slow)
    shell.wait_until(lambda: shell.alive(pids))
    bench.send_signal(ending)
    out, err = bench.communicate(timeout=60)
    assert bench.returncode == code, err
    shell.wait_until(lambda: not shell.alive(pids))
    stored = results.load("last")
    assert stored.runs
    assert "drafting" not in {run.spec.role.value for run in stored.runs}
    if ending is not signal.SIGKILL:
        assert "1550" in out
        assert "Traceback" not in err
        words = shlex.join(["ggufspec", *QUICK, "--warmup", "0", "--resume", stored.meta.id])
        assert (
            err.strip().splitlines()[-1]
            == f"Interrupted after {len(stored.current)} of 6 runs. Continue with: {words}"
        )
        assert not [*scratch.iterdir()]
    first, empty, *_ = shell.here("show").stdout.splitlines()
    assert first.startswith(f"Incomplete: {len(stored.current)} of 6 runs. Continue with: ggufspec bench ")
    assert first.endswith(f" --resume {stored.meta.id}")
    assert empty == ""


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The place for temporary files."""
    folder = tmp_path / "scratch"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    return folder


@pytest.mark.parametrize(("ending", "again"), [(signal.SIGINT, False), (signal.SIGHUP, True)])
def test_an_interrupt_ends_servers(llama: Path, scratch: Path, ending: signal.Signals, again: bool) -> None:
    fake_server.program(llama / "llama-server")
    words = ("bench", "--pair", "demo", "-p", "@hang", "-n", "32", "-t", "1", "--engine", "server")
    bench = shell.start(*words, "--draft", "3,5", "--name", "n")
    shell.wait_until(lambda: fake_server.requests(llama))
    bench.send_signal(ending)
    if again:  # a terminal that closes sends more than one
        bench.send_signal(signal.SIGTERM)
    _, err = bench.communicate(timeout=60)
    assert bench.returncode in ({128 + ending} if not again else {129, 130, 143})
    assert "Traceback" not in err
    assert err.strip().splitlines()[-1].endswith(f"{shlex.join(words)} --draft 3,5 --resume n")
    assert not any(shell.still_runs(start["pid"], start["at"]) for start in fake_server.starts(llama))
    assert not [*scratch.iterdir()]


def test_a_hang_up_is_ignored_where_nohup_says_so(tmp_path: Path) -> None:
    slow, pids = _hanging(tmp_path, go_on := tmp_path / "go-on")
    words = ["nohup", sys.executable, "-m", "ggufspec", *QUICK, "--warmup", "0", "--llama", str(slow)]
    bench = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    shell.wait_until(lambda: shell.alive(pids))
    bench.send_signal(signal.SIGHUP)
    go_on.touch()
    out, err = bench.communicate(timeout=60)
    assert bench.returncode == 0, err
    assert "Incomplete" not in out
    assert "2.06×" in out


def test_a_terminal_that_closes_ends_a_bench_with_its_files(tmp_path: Path, scratch: Path) -> None:
    """Nothing can be printed any more, and the exit code says what happened nevertheless."""
    slow, pids = _hanging(tmp_path)
    words = [sys.executable, "-m", "ggufspec", *QUICK, "--warmup", "0", "--llama", str(slow)]
    ours, theirs = pty.openpty()
    bench = subprocess.Popen(words, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True)
    os.close(theirs)
    shell.wait_until(lambda: shell.alive(pids))
    os.close(ours)
    bench.send_signal(signal.SIGHUP)  # the system sends it to the session that the terminal controls
    assert bench.wait(60) == 129
    shell.wait_until(lambda: not shell.alive(pids))
    assert not [*scratch.iterdir()]
    assert results.load("last").runs


@pytest.mark.parametrize(
    ("words", "kept"),
    [
        (("--name", "a"), ()),
        (("--name=a", "-r", "1"), ("-r", "1")),
        (("--resume", "b", "-q"), ("-q",)),
        (("-p", "--name", "-p", "it's", "--chat"), ("-p", "--name", "-p", "it's", "--chat")),
        (("-p", "--resume=x", "--name", "-n"), ("-p", "--resume=x")),
        (("-cmoe", "--name", "a", "-ncmoe", "3"), ("-cmoe", "-ncmoe", "3")),
        (("--name",), ()),
    ],
)
@pytest.mark.parametrize("flags", [(), ("-v",), ("--debug", "-q")])
def test_a_bench_goes_on_with_the_command_that_began_it(
    words: tuple[str, ...], kept: tuple[str, ...], flags: tuple[str, ...]
) -> None:
    with click.Context(cli):
        again = benches.command_line(("/usr/bin/ggufspec", *flags, "sweep", *words), "it is")
    assert shlex.split(again or "") == ["ggufspec", *flags, "sweep", *kept, "--resume", "it is"]


@pytest.mark.parametrize(
    "argv", [("ggufspec.bench", "BenchOptions()"), ("ggufspec", "tune"), ("ggufspec",), ()]
)
def test_what_cannot_go_on_has_no_command(argv: tuple[str, ...]) -> None:
    with click.Context(cli):
        assert benches.command_line(argv, "a") is None


def test_the_command_that_is_printed_goes_on(tmp_path: Path) -> None:
    """Interrupted, pasted, complete; with a prompt that a shell would take apart."""
    slow, pids = _hanging(tmp_path, go_on := tmp_path / "go-on")
    words = (
        *("bench", "--pair", "demo", "-p", "it's $HOME; `x`", "-n", "32", "-r", "2", "-t", "1"),
        *("--name", "n"),
    )
    bench = shell.start(*words, "--warmup", "0", llama=slow)
    shell.wait_until(lambda: shell.alive(pids))
    bench.send_signal(signal.SIGTERM)
    _, err = bench.communicate(timeout=60)
    program, *rest = shlex.split(err.strip().splitlines()[-1].partition("Continue with: ")[2])
    assert program == "ggufspec"
    go_on.touch()
    done = shell.done(*rest, "--llama", str(slow))
    assert len(results.load("n").current) == 6
    assert "Incomplete" not in done.stdout + shell.here("show", "n").stdout


CROWDED = "llama.cpp becomes many times slower"


@pytest.fixture
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let nothing else run on this machine, and let it have two cores."""
    monkeypatch.setattr(machine.Watch, "conditions", lambda self: Conditions(others_cores=0.0))
    monkeypatch.setattr("ggufspec.machine.hardware.usable_cores", lambda: 2)


@pytest.mark.parametrize(
    ("busy", "threads", "warned"), [(0.0, "2", False), (1.0, "2", True), (0.0, "3", True)]
)
def test_threads_without_a_core_are_said_before_the_first_run(
    llama: Path, quiet: None, monkeypatch: pytest.MonkeyPatch, busy: float, threads: str, warned: bool
) -> None:
    monkeypatch.setattr(machine, "busy_cores", lambda *_: busy)
    monkeypatch.setattr(measuring, "record", lambda *_, **__: iter(()))  # nothing is measured
    done = shell.here(*QUICK, "-t", threads)
    assert (CROWDED in done.stderr) is warned
    again = shell.here(*QUICK, "-t", threads, "--resume", "last")
    assert (CROWDED in again.stderr) is warned


def test_too_little_free_is_said_once(llama: Path, quiet: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine.Watch, "conditions", lambda self: Conditions(others_cores=1.0))
    done = shell.done(*QUICK, "-t", "2")
    assert done.stderr.count(CROWDED) == 1
    assert done.stdout.count(CROWDED) == 1  # and below the table


def test_a_crowded_time_out_has_advice(tmp_path: Path, quiet: None, monkeypatch: pytest.MonkeyPatch) -> None:
    slow = fakes.install(tmp_path / "slow", **fakes.AT_ONCE | {"drafting": "exec sleep 600\n"})
    words = (*QUICK, "-r", "1", "--warmup", "0", "--timeout", "1s", "--llama", str(slow))
    plain = shell.here(*words)
    assert plain.returncode == 10
    assert "hint: allow more time with --timeout" in plain.stderr
    monkeypatch.setattr(machine.Watch, "conditions", lambda self: Conditions(others_cores=1.0))
    crowded = shell.here(*words, "-t", "2")
    assert crowded.returncode == 10
    assert "lower --threads" in crowded.stderr.splitlines()[-1]
