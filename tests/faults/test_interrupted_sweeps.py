"""A sweep that is killed, resumed, extended or started twice: every cell is measured once and kept."""

from __future__ import annotations

import random
import shlex
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from ggufspec import paths, results
from ggufspec.domain import Prompt
from ggufspec.measure import identify, prepare_session
from ggufspec.measure.runplan import Cell, RunPlan
from ggufspec.options import BenchOptions
from ggufspec.results import ResultSet
from tests.support import fakes, scripted, shell, values
from tests.support.scripted import Scripted

NAME = "nightly"
PROMPTS = ("Once upon a time", "A cat", "The sea", "Two friends")
SIZES = (2, 5)
LAYERS = (0, 1)  # two baselines, which share the drafter alone
RUN_S = "0.012"  # what a fake run takes beside its start


@dataclass(frozen=True, kw_only=True)
class Fakes:
    """Fake programs that note each start, and hang while a file says so."""

    folder: Path

    @property
    def n_starts(self) -> int:
        return (self.folder / "starts").read_text().count("\n")

    @property
    def alive(self) -> list[int]:
        """The programs that still run."""
        return shell.alive(self.folder / "starts")

    def hang(self) -> None:
        """Let the next run hang, and wait for it."""
        (self.folder / "hung").unlink(missing_ok=True)
        (self.folder / "hang").touch()
        shell.wait_until((self.folder / "hung").exists)


@pytest.fixture
def llama(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Fakes]:
    folder = tmp_path / "llama"
    note = f"""\
{shell.note(folder / "starts")}\
if [ -e {folder}/hang ]; then mv {folder}/hang {folder}/hung; exec sleep 600; fi
sleep {RUN_S}
"""
    fakes.install(
        folder,
        **{name: note + body for name, body in fakes.AT_ONCE.items()},
        devices=fakes.TWO_GPUS,
    )
    (folder / "starts").touch()
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))  # what is killed leaves its scratch folder behind
    monkeypatch.setenv("GGUFSPEC_LLAMA", str(folder))
    programs = Fakes(folder=folder)
    yield programs
    shell.wait_until(lambda: not programs.alive)


def _words(prompts: tuple[str, ...] = PROMPTS, sizes: tuple[int, ...] = SIZES) -> list[str]:
    texts = [word for text in prompts for word in ("-p", text)]
    sweep = shlex.split("sweep --pair demo -n 32 -c 256 -r 2 -t 1 --ngl 0-1 --draft")
    return [*sweep, ",".join(map(str, sizes)), *texts]


def _expected(prompts: tuple[str, ...] = PROMPTS, sizes: tuple[int, ...] = SIZES) -> set[results.CellKey]:
    """Say what the sweep has to measure, cell by cell."""
    asked = BenchOptions(
        pair="demo", prompt=prompts, n_predict=32, ctx=256, repeats=2, threads=1, draft=sizes, ngl=LAYERS
    )
    session = identify(prepare_session(asked))
    suite, engine = session.suite, session.engine
    cells: list[Cell] = []
    for block in suite.blocks:
        for repeats in islice(suite.repeats_by_load(), suite.repeats):
            cells += suite.cells(block, repeats, load_key=engine.load_key, capacity=engine.capacity)
    return {results.cell(each.spec, each.repeat, warmup=each.warmup, anchor=each.anchor) for each in cells}


def _cell(row: dict[str, Any]) -> results.CellKey:
    return (row["spec_key"], row["repeat"], row["warmup"], row["anchor"])


def _assert_complete(rows: list[dict[str, Any]], expected: set[results.CellKey]) -> None:
    """Every cell has one run; one that others disturbed may have been made again, and says so."""
    assert Counter(_cell(row) for row in rows if not row["rerun"]) == Counter(expected)
    assert {row["status"] for row in rows} == {"ok"}
    assert all(row["text_identical"] for row in rows if row["role"] == "drafting")
    again = [(_cell(row), row["rerun"]) for row in rows]
    assert len(set(again)) == len(again)


def _n_stored() -> int:
    file = paths.runs_dir() / NAME / "runs.jsonl"
    return file.read_bytes().count(b'"kind":"run"') if file.exists() else 0


def _kill(sweep: subprocess.Popen[str]) -> int:
    sweep.kill()
    _, err = sweep.communicate(timeout=10)
    assert "Traceback" not in err
    return sweep.returncode


def _is_there() -> bool:
    return (paths.runs_dir() / NAME / "meta.json").exists()


def _go_on() -> subprocess.Popen[str]:
    return shell.start(*_words(), *(("--resume", NAME) if _is_there() else ("--name", NAME)))


def test_kills_at_every_moment_lose_nothing_and_repeat_nothing(llama: Fakes) -> None:
    chance = random.Random(20)
    moments = [("start", 0)] + [("run", n) for n in (1, 4)] + [("hang", n) for n in (2, 5)]
    chance.shuffle(moments)
    moments += [("left", 1), ("left", 0)]
    expected = _expected()
    stored: list[Any] = []
    for moment, n in moments:
        sweep = _go_on()
        _await(moment, n, llama, chance, len(expected))
        assert _kill(sweep) == -signal.SIGKILL or (moment, n) == ("left", 0)  # that one may have ended
        shell.wait_until(lambda: not llama.alive)
        if _is_there():
            now = [(run.log, run.started_at, run.sample) for run in results.load(NAME).runs]
            assert now[: len(stored)] == stored
            stored = now
    finished = _go_on()
    _, err = finished.communicate(timeout=60)
    assert finished.returncode == 0, err
    rows = shell.runs(NAME)
    _assert_complete(rows, expected)
    assert llama.n_starts <= len(rows) + len(moments)


def _await(moment: str, n: int, llama: Fakes, chance: random.Random, total: int) -> None:
    """Return while a sweep starts, between its runs after n of them, in a run, or when n are left."""
    if moment == "start":
        time.sleep(chance.uniform(0.0, 0.9))
        return
    before = llama.n_starts
    if moment == "left":
        shell.wait_until(lambda: _n_stored() >= total - n)
    else:
        shell.wait_until(lambda: llama.n_starts >= before + n)
    if moment == "hang":
        llama.hang()
    time.sleep(chance.uniform(0.0, 0.02))


def test_a_store_that_was_cut_at_any_byte_goes_on() -> None:
    """Runs wait for the target's own text; what is found out then must not be lost either."""
    whole = _record(values.bench())
    results.close(whole)
    file = whole.folder / "runs.jsonl"
    content, known = file.read_bytes(), _found(whole)
    assert {identical for *_, identical in known} == {None, True}
    chance = random.Random(4)
    ends = [place + 1 for place, byte in enumerate(content) if byte == ord("\n")]
    for cut in (0, *ends, *(chance.randrange(len(content)) for _ in range(20))):
        file.write_bytes(content[:cut])
        again = _record(results.reopen(whole.meta.id))
        results.close(again)
        assert _found(again) == known, f"cut at byte {cut} of {len(content)}"
        assert _found(results.load(whole.meta.id)) == known


def _record(store: ResultSet) -> ResultSet:
    prompts = tuple(Prompt(id=name, text=name) for name in "abc")
    suite = RunPlan(blocks=scripted.sweep().blocks(), prompts=prompts, repeats=1, warmups=0)
    *_, last = scripted.record(suite, Scripted(), store)
    return last


def _found(bench: ResultSet) -> list[tuple[results.CellKey, bool | None]]:
    """Return each cell's first run; how many follow it depends on what else the machine does."""
    cell = results.cell
    return sorted(
        (cell(run.spec, run.repeat, warmup=run.warmup, anchor=run.anchor), run.text_identical)
        for run in bench.runs
        if not run.rerun
    )


def test_a_sweep_that_grew_measures_only_what_is_new(llama: Fakes) -> None:
    small, large = (PROMPTS[:2], SIZES), (PROMPTS[:3], (*SIZES, 8))
    assert shell.here(*_words(*small), "--name", NAME).returncode == 0
    first = shell.runs(NAME)
    _assert_complete(first, _expected(*small))
    assert llama.n_starts == len(first)
    assert shell.here(*_words(*large), "--resume", NAME).returncode == 0
    both = shell.runs(NAME)
    assert both[: len(first)] == first
    _assert_complete(both, _expected(*small) | _expected(*large))
    assert llama.n_starts == len(both)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (_words(PROMPTS[1::-1]), "prompt p1 has another text"),
        ([*_words(PROMPTS[:2]), "-c", "512"], "a context of 256 tokens, not 512"),
        ([*_words(PROMPTS[:2]), "--engine", "binary-simple"], "the engine binary, not binary-simple"),
    ],
)
def test_what_cannot_be_compared_is_not_joined(llama: Fakes, words: list[str], message: str) -> None:
    shell.done(*_words(PROMPTS[:2]), "-r", "1", "--warmup", "0", "--name", NAME)
    before = llama.n_starts
    again = shell.here(*words, "--resume", NAME)
    assert again.returncode == 13
    assert message in again.stderr
    assert "hint: " in again.stderr
    assert llama.n_starts == before


def test_one_bench_has_one_writer(llama: Fakes) -> None:
    first = shell.start(*_words(), "--name", NAME)
    llama.hang()
    second = shell.ggufspec(*_words(), "--resume", NAME)
    assert second.returncode == 13
    lines = [
        line
        for line in second.stderr.splitlines()
        if not line.startswith(("pair: ", "llama.cpp: ", "processor: ", "warning "))
    ]
    assert lines == [
        f"error: the bench {NAME} is already being written",
        "hint: wait for the other process, or start a new bench",
    ]
    assert llama.n_starts == 1
    _kill(first)


def test_killed_at_any_instant_nothing_is_lost_or_double() -> None:
    script = Path(__file__).parents[2] / "scripts" / "crash_store.py"
    done = subprocess.run(
        [sys.executable, script, "--kills", "12"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("benches with every cell once, none lost, none double\n")
