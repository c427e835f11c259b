"""Tables that have nothing to show say why, and which command would record it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from ggufspec import results
from ggufspec.domain import Role, Round, RunResult, Status
from tests.support import fakes, shell, values

QUICK = ("bench", "--pair", "demo", "-p", "Once upon a time", "-n", "32", "-r", "2", "-t", "1")


def _bench(*runs: RunResult, engine: str = "binary") -> None:
    stored = results.create(
        replace(values.META, engine=engine, command=("test",)),
        "b",
    )
    for run in runs:
        stored = results.append(stored, run)
    results.close(stored)


@pytest.mark.parametrize(
    ("engine", "other"), [("binary", "server"), ("binary-simple", "server"), ("server", "inprocess")]
)
@pytest.mark.parametrize(("per", "what"), [("position", "draft positions"), ("round", "rounds")])
def test_what_an_engine_does_not_tell_comes_with_one_that_does(
    per: str, what: str, engine: str, other: str
) -> None:
    _bench(values.run(), values.run(Role.DRAFTING, draft=3), engine=engine)
    done = shell.here("show", "--per", per)
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == (
        f"b has no {what}, because the engine {engine} did not report them: "
        f"`ggufspec bench --engine {other}` records them\n"
    )


@pytest.mark.parametrize("per", ["position", "round"])
def test_the_engine_that_tells_most_is_not_sent_elsewhere(per: str) -> None:
    _bench(values.run(), values.run(Role.DRAFTING, draft=3), engine="inprocess")
    assert "`ggufspec" not in shell.here("show", "--per", per).stderr


@pytest.mark.parametrize("per", ["position", "round"])
def test_what_was_recorded_is_shown_without_a_word(per: str) -> None:
    run = values.run(Role.DRAFTING, draft=3, drafted=4, accepted=3)
    rounds = (Round(2, 2), Round(2, 1))
    _bench(
        values.run(),
        replace(run, sample=replace(run.sample, rounds=rounds, n_rounds=2, accepted_at=(2, 1))),
        engine="server",
    )
    done = shell.here("show", "--per", per)
    assert (done.returncode, done.stderr) == (0, "")
    *table, empty, note = done.stdout.splitlines()
    assert len(table) == 2 + 2 + 2
    assert empty == ""
    assert note.endswith(
        f"columns are hidden: `ggufspec show b --per {per} --columns all` shows all of them."
    )


@pytest.mark.parametrize(
    ("per", "said"),
    [
        ("position", "no arm of b drafts, so it has no draft positions: give a drafter with -md FILE"),
        ("round", "no arm of b drafts, so it has no rounds: give a drafter with -md FILE"),
        ("category", "no prompt of b has a category: the prompts of `ggufspec bench --suite domains`"),
    ],
)
@pytest.mark.parametrize("output", ["md", "csv", "json", "jsonl"])
def test_a_target_alone_on_one_prompt_has_no_detail(per: str, said: str, output: str) -> None:
    _bench(values.run(), values.run(repeat=1))
    done = shell.done("show", "--per", per, "-o", output)
    assert done.stderr.startswith(said)
    if output == "md":
        assert done.stdout == ""
    if output == "json":
        assert len(json.loads(done.stdout)) == (1 if per == "category" else 0)


@pytest.mark.parametrize("per", ["prompt", "category", "position", "round"])
def test_runs_that_all_failed_are_named(per: str) -> None:
    _bench(values.run(status=Status.CRASHED))
    done = shell.here("show", "--per", per)
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == "no run of b succeeded: `ggufspec show b --runs` shows how each of them ended\n"
    assert "crashed" in shell.here("show", "b", "--runs").stdout


@pytest.mark.parametrize("per", ["prompt", "category", "position", "round", "run"])
def test_a_bench_without_runs_is_named(per: str) -> None:
    _bench()
    done = shell.here("show", "--per", per)
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == "b has no runs: `ggufspec bench` measures some\n"
    assert shell.here("show").stdout == "Nothing was measured.\n"


def test_tables_with_something_in_them_need_no_word(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GGUFSPEC_LLAMA", str(fakes.install(tmp_path / "llama", **fakes.AT_ONCE)))
    assert shell.here(*QUICK).returncode == 0
    for per in ("arm", "prompt", "run"):
        done = shell.here("show", "--per", per)
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout


def test_no_stored_costs_say_what_measures_them() -> None:
    done = shell.here("whatif", "--profile", "list")
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == "no profile of a pair is stored yet; `ggufspec tune` measures one\n"
    last = shell.here("whatif", "--profile", "last", "--accept", "0.7")
    assert last.returncode == 2
    assert "none is stored yet; `ggufspec tune` measures one" in last.stderr
