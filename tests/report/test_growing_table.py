"""A bench while it is measured: the growing table on a terminal, a line a minute elsewhere."""

from __future__ import annotations

import io
import re
import sys
import threading
import time
from contextlib import redirect_stderr
from functools import partial
from itertools import count
from pathlib import Path

import pytest

from ggufspec import machine
from ggufspec.analysis import arms
from ggufspec.cli.entry import growing as drawn, terminal as sinks
from ggufspec.domain import Conditions, Prompt, Role, RunSpec, Sample
from ggufspec.measure import BenchProgress, RunPlan, Session, api
from ggufspec.report.text import overview
from ggufspec.report.text.overview import Progress
from ggufspec.steps import Sink
from tests.support import fakes, scripted, shell, swept, values
from tests.support.scripted import INSTALL, Scripted


class Terminal(io.StringIO):
    """A terminal that keeps what is drawn."""

    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no other program disturb a run, and group runs into arms before every one."""
    monkeypatch.setattr(machine.Watch, "conditions", lambda self: Conditions(others_cores=0.0))
    monkeypatch.setattr(drawn, "GROUPING_SHARE", 0.0)


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """A terminal of 24 lines and 100 columns, for ``redirect_stderr``."""
    for name, value in (("TERM", "xterm"), ("COLUMNS", "100"), ("LINES", "24")):
        monkeypatch.setenv(name, value)
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)
    return Terminal()


def _session(engine: Scripted) -> Session:
    suite = RunPlan(
        blocks=scripted.sweep(draft_sizes=(3,)).blocks(),
        prompts=(Prompt(id="a", text="A"), Prompt(id="b", text="B")),
    )
    return Session(name="tiny", suite=suite, engine=engine, llama=INSTALL, render=None, notes=(), files=())


def test_nothing_is_drawn_while_a_run_is_measured(terminal: Terminal) -> None:
    lengths: list[tuple[int, int]] = []

    def answer(spec: RunSpec) -> Sample:
        before = len(terminal.getvalue())
        time.sleep(0.02)
        lengths.append((before, len(terminal.getvalue())))
        assert not [thread for thread in threading.enumerate() if type(thread).__module__ == "rich.live"]
        return scripted.sample(spec, tps=75.0 if spec.role is Role.DRAFTING else 50.0)

    engine = Scripted(answer=answer)
    with redirect_stderr(terminal):
        last = api.run(_session(engine), values.bench(), sinks.Terminal())
    assert len(lengths) == len(last.runs)
    assert all(before == after for before, after in lengths)
    starts = [before for before, _ in lengths]
    assert starts == sorted({*starts})  # and something new is drawn before each run
    said = terminal.getvalue()
    for text in (
        "0 of 18 runs",
        "running target alone on the prompt a",
        "drafting with draft-model γ=3",
        "1.50×",
    ):
        assert text in said
    assert re.search(r"1[0-7] of 18 runs, about \d+ s left", said)


def test_every_run_is_announced_before_it_is_measured() -> None:
    engine = Scripted()
    upcoming = []

    class Watching(Sink):
        def show(self, event: object) -> None:
            assert isinstance(event, BenchProgress)
            if event.results.upcoming is not None:
                upcoming.append(event.results.upcoming)
                assert len(engine.seen) == len(upcoming) - 1

    results = api.run(_session(engine), values.bench(), Watching())
    assert upcoming == engine.seen
    assert results.upcoming is None
    assert len(results.runs) == len(upcoming)


def test_without_a_terminal_there_is_a_line_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    printed = io.StringIO()
    monkeypatch.setattr(sys, "stderr", printed)
    clock = count(0.0, 25.0)
    with drawn.LiveText(clock=lambda: next(clock)) as shown:
        for number in range(8):
            shown.show(lambda height: "never drawn", partial("line {}".format, number))
    lines = printed.getvalue().splitlines()
    assert 1 < len(lines) < 8
    assert all(line.startswith("line ") for line in lines)


def test_a_bench_in_a_pipe_says_how_far_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drawn, "EVERY_S", 0.0)
    folder = fakes.install(tmp_path / "llama", **fakes.AT_ONCE)
    words = ("bench", "--pair", "demo", "-p", "Once upon a time", "-n", "32", "-r", "2", "-t", "1")
    done = shell.done(*words, "--llama", str(folder))
    lines = [line for line in done.stderr.splitlines() if " of 6 runs" in line]
    assert lines[0].startswith("0 of 6 runs, running ")
    assert re.search(r"5 of 6 runs, about .* left, running .*; draft-model γ=\d+: 2\.06×", lines[-1])
    assert " of 6 runs" not in shell.here("-q", *words, "--llama", str(folder)).stderr


def test_the_table_holds_the_arms_and_what_runs() -> None:
    groups = arms.group(values.whole_bench())
    progress = Progress(n_done=12, n_planned=24, left_s=200.0, running=groups[-1].spec)
    text = overview.growing_table(groups, progress, height=24)
    assert "1.50×" in text
    assert text.splitlines()[-1].startswith("12 of 24 runs, about 3 min 20 s left, running drafting with ")


def test_the_table_is_narrow_and_names_models_only_where_they_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    for drafters in (("one.gguf",), ("one.gguf", "two.gguf")):
        groups = arms.group(swept.swept(*drafters, tag=drafters[-1]))
        text = overview.growing_table(groups, Progress(n_done=4, n_planned=9), height=60)
        assert max(map(len, text.splitlines())) <= 80
        assert ("two.gguf" in text) is (len(drafters) > 1)
        assert text.count("tokens/s") == 1


def test_a_growing_table_says_what_is_left() -> None:
    state = overview.describe_state(Progress(n_done=3, n_planned=60, is_most=True, left_s=30.4))
    assert state == "3 of at most 60 runs, at most 30 s left"
    assert overview.describe_state(Progress(n_done=1, n_planned=1, left_s=5.0)) == "1 of 1 run"
    progress = Progress(n_done=0, n_planned=6, running=values.spec())
    said = "0 of 6 runs, running target alone on the prompt p1"
    assert overview.growing_table((), progress, height=24) == overview.growing_line((), progress) == said


def test_a_long_table_leaves_room_for_the_state() -> None:
    groups = arms.group(swept.swept("one.gguf", "two.gguf", "three.gguf", sizes=range(1, 13)))
    progress = Progress(n_done=4, n_planned=9, running=groups[-1].spec)
    for height in (6, 10, 24):
        lines = overview.growing_table(groups, progress, height=height).splitlines()
        assert len(lines) < height
        assert lines[-1].startswith("4 of 9 runs")
        assert "…" in lines


def test_a_line_names_the_largest_speed_ups() -> None:
    groups = arms.group(swept.swept("one.gguf", sizes=range(1, 8)))
    line = overview.growing_line(groups, Progress(n_done=4, n_planned=9))
    assert line.startswith("4 of 9 runs; draft-model γ=7: ")
    assert line.endswith("4 more")
    assert "\n" not in line
    spec = values.spec(prompt="a\nb\x1b[31m")
    assert "\n" not in overview.describe_run(spec)
    assert "\x1b" not in overview.describe_run(spec)
