from __future__ import annotations

import json
import math
import os
import re
from dataclasses import replace
from datetime import datetime, tzinfo
from pathlib import Path

import pytest

from ggufspec import results
from ggufspec.domain import Difference, Role, RunResult, Status, TextAudit
from ggufspec.errors import ResultsError
from tests.support import values
from tests.support.values import filled


def test_what_is_stored_is_what_is_read() -> None:
    odd = replace(
        values.run(Role.DRAFTING, draft=3),
        spec=values.spec(path=Path("/models/target.gguf")),
        difference=Difference(at_char=4, at_token=None),
        sample=replace(values.run().sample, devices=("CPU", "CUDA0"), text="naïve ☃\n\u2028line"),
        doubts=("busy-machine",),
    )
    stored = values.bench(
        values.run(), odd, values.run(status=Status.CRASHED), doubts={"few-repeats": "more"}
    )
    assert results.load(stored.meta.id) == stored


def test_every_field_is_stored_and_shared_by_equal_runs() -> None:
    whole = filled(RunResult)
    again = replace(whole, repeat=99, wall_s=1.5, sample=replace(whole.sample, gen_s=3.5), log="again")
    stored = values.bench(whole, again)
    assert results.load(stored.meta.id).runs == [whole, again]
    kinds = [json.loads(line)["kind"] for line in (stored.folder / "runs.jsonl").read_bytes().splitlines()]
    assert sorted(kinds) == ["call", "output", "run", "run", "spec", "text"]


def test_older_result_sets_do_not_change_when_more_is_stored() -> None:
    empty = values.bench()
    one = results.append(empty, values.run())
    two = results.append(one, values.run(Role.DRAFTING, draft=3))
    difference, audit = filled(Difference), filled(TextAudit)
    found = replace(two.runs[1], text_identical=False, difference=difference, audit=audit)
    judged = results.judge(two, found)
    again = results.judge(judged, replace(two.runs[1], text_identical=True, difference=None))
    assert (len(empty.runs), len(one.runs), len(two.runs)) == (0, 1, 2)
    assert [bench.runs[1].text_identical for bench in (two, judged, again)] == [True, False, True]
    assert [bench.runs.column("text_identical")[1] for bench in (two, judged, again)] == [True, False, True]
    assert (judged.runs[1].difference, judged.runs[1].audit) == (filled(Difference), filled(TextAudit))
    assert judged.runs.column("audit") == [None, filled(TextAudit)]
    assert results.load(two.meta.id) == again != judged


def test_a_judgement_needs_a_run() -> None:
    with pytest.raises(ResultsError, match="no run with the log 'nowhere'"):
        results.judge(values.bench(values.run()), replace(values.run(), log="nowhere"))


def test_current_has_the_newest_run_of_each_cell_in_the_order_of_the_first() -> None:
    first, second = values.run(tps=10), values.run(repeat=1, tps=20)
    newer = replace(values.run(tps=30), rerun=1)
    renamed = replace(second, spec=replace(second.spec, pair=replace(second.spec.pair, name="other")))
    bench = values.bench(
        replace(first, warmup=True), first, second, replace(first, anchor=True), newer, renamed
    )
    for stored in (bench, results.load(bench.meta.id)):
        assert stored.current == (newer, renamed)
        assert len(stored.measured) == 5
        assert len(stored.runs) == 6


def test_runs_keep_what_they_replace_and_their_load() -> None:
    collapsed, other = values.run(tps=1, repeat=0), values.run(repeat=1, tps=20)
    again = replace(collapsed, remeasured=True, rerun=1, load=7)
    bench = results.load(values.bench(collapsed, other, again).meta.id)
    assert bench.current == (again, other)
    assert bench.first_measured == (collapsed, other)
    bench = results.load(values.bench(replace(values.run(), load=0), values.run(repeat=1)).meta.id)
    assert bench.runs.column("load") == [0, None]


def test_finished_names_every_cell_that_has_a_run() -> None:
    run = values.run(repeat=2, status=Status.CRASHED)
    bench = values.bench(run, replace(run, warmup=True), replace(run, anchor=True, repeat=5))
    for stored in (bench, results.load(bench.meta.id)):
        assert results.finished(stored) == {
            results.cell(run.spec, 2),
            results.cell(run.spec, 2, warmup=True),
            results.cell(run.spec, 5, anchor=True),
        }


def test_columns_say_what_the_runs_say() -> None:
    bench = results.load(values.bench(filled(RunResult), *values.whole_bench().runs).meta.id)
    for name in ("spec", "engine", "argv", "log", "warmup", "wall_s", "text_identical", "difference"):
        assert bench.runs.column(name) == [getattr(run, name) for run in bench.runs]
    for name in ("status", "gen_s", "text", "tokens", "decoded", "accept_rate", "n_drafted", "load_ms"):
        assert bench.measured.column(name) == [getattr(run.sample, name) for run in bench.measured]
    assert bench.runs.column("cpu_mhz") == [run.conditions and run.conditions.cpu_mhz for run in bench.runs]
    for name in ("decode_tps", "n_accepted", "gen_s"):
        told = [getattr(run.sample, name) for run in bench.runs]
        assert bench.runs.numbers(name).tolist() == pytest.approx(
            [math.nan if value is None else value for value in told], nan_ok=True
        )
    specs, places = bench.current.by_spec()
    assert [specs[place] for place in places] == [run.spec for run in bench.current]
    with pytest.raises(AttributeError, match="no column 'colour'"):
        bench.runs.column("colour")


def test_runs_are_a_sequence_that_load_finds() -> None:
    bench = values.whole_bench()
    assert bench.runs[-1] == list(bench.runs)[-1]
    assert bench.runs[2:5] == list(bench.runs)[2:5] != list(bench.runs)[3:6]
    assert bench.runs[0] in bench.runs
    with pytest.raises(IndexError):
        bench.runs[13]
    stored = values.bench(values.run())
    for name in ("last", stored.meta.id, stored.meta.id[:-2], stored.folder):
        assert results.load(name).meta.id == stored.meta.id


@pytest.mark.parametrize(
    ("name", "words"), [("nope", "there is no bench 'nope'"), ("2", "beginning of 2 benches")]
)
def test_load_says_what_is_wrong(name: str, words: str) -> None:
    values.bench()
    values.bench()
    with pytest.raises(ResultsError, match=re.escape(words)) as caught:
        results.load(name)
    assert caught.value.hint


def test_load_without_any_run() -> None:
    with pytest.raises(ResultsError, match="no bench is stored yet"):
        results.load()


# Who writes to a bench: under which name, alone, with the same llama.cpp, and to the disk itself


def test_a_bench_can_have_a_name_of_the_users_own() -> None:
    older = values.bench()
    stored = values.bench(name="my-sweep.1")
    assert stored.folder.name == stored.meta.id == "my-sweep.1"
    values.bench(name="my-sweep")
    assert results.load("my-sweep").meta.id == "my-sweep"
    assert results.ids() == (older.meta.id, "my-sweep.1", "my-sweep")
    assert results.load("last").meta.id == "my-sweep"


@pytest.mark.parametrize("name", ["last", "..", "../x", "a/b", ".hidden", "", "a b", "x" * 101, "é", "a\n"])
def test_a_name_that_is_none_is_refused(name: str) -> None:
    with pytest.raises(ResultsError, match="cannot be the name"):
        values.bench(name=name)
    assert not results.ids()


class _OneSecond(datetime):
    """A clock that stands still."""

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> _OneSecond:
        return cls(2026, 1, 2, 3, 4, 5, tzinfo=tz)


def test_two_benches_of_one_second_never_share_an_id(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = iter(["aaaa", "aaaa", "bbbb"])
    monkeypatch.setattr("ggufspec.results.store.secrets.token_hex", lambda _: next(drawn))
    monkeypatch.setattr("ggufspec.results.store.datetime", _OneSecond)
    assert [values.bench().meta.id[-4:] for _ in range(2)] == ["aaaa", "bbbb"]


@pytest.mark.parametrize("runs", [(), (values.run(),)])
def test_a_name_that_is_taken_is_refused_and_nothing_lost(runs: tuple[RunResult, ...]) -> None:
    stored = values.bench(*runs, name="mine")
    results.close(stored)
    with pytest.raises(ResultsError, match="the bench mine already exists") as caught:
        values.bench(name="mine")
    assert "resume" in caught.value.hint
    assert results.load("mine") == stored


def test_a_folder_that_died_in_the_making_is_no_bench_and_its_name_is_free() -> None:
    stored = values.bench(name="mine")
    results.close(stored)
    (stored.folder / "meta.json").rename(stored.folder / "meta.json.tmp")
    assert results.ids() == ()
    assert values.bench(name="mine").runs == ()


def test_only_an_open_bench_is_written_to() -> None:
    stored = values.bench(values.run())
    with pytest.raises(ResultsError, match="is already being written"):
        results.reopen(stored.meta.id)
    assert results.load(stored.meta.id) == stored
    results.close(stored)
    for shut in (stored, results.load(stored.meta.id)):
        with pytest.raises(ResultsError, match="not open for writing"):
            results.append(shut, values.run(repeat=1))
    assert len(results.append(results.reopen(stored.meta.id), values.run(repeat=1)).runs) == 2


def test_a_bench_goes_on_with_the_same_llama_and_machine_only() -> None:
    stored = values.bench(values.run())
    results.close(stored)
    name = stored.meta.id
    elsewhere = replace(values.BUILD, path="/elsewhere")
    results.close(results.reopen(name, build=elsewhere, machine=replace(values.MACHINE, hostname="new")))
    with pytest.raises(ResultsError, match=r"begun with llama.cpp 0.3.36 .* and this is 0.4"):
        results.reopen(name, build=replace(values.BUILD, version="0.4"))
    with pytest.raises(ResultsError, match="another machine"):
        results.reopen(name, machine=replace(values.MACHINE, cpu="Another Processor"))


def test_an_unwritable_place_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("not a folder")
    monkeypatch.setenv("GGUFSPEC_DATA", str(tmp_path / "file"))
    with pytest.raises(ResultsError, match="Not a directory"):
        values.bench()


def test_a_run_is_on_the_disk_before_it_counts_as_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    stored = values.bench()
    file, synced = stored.folder / "runs.jsonl", list[int]()
    identity = file.stat()

    def fsync(descriptor: int) -> None:
        status = os.fstat(descriptor)
        if os.path.samestat(status, identity):
            synced.append(status.st_size)

    monkeypatch.setattr(os, "fsync", fsync)
    for repeat in range(2):
        stored = results.append(stored, values.run(repeat=repeat))
        assert synced[repeat:] == [file.stat().st_size]
