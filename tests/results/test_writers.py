"""Who writes to a bench: under which name, alone, with the same llama.cpp, and to the disk itself."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from ggufspec import results
from ggufspec.domain import RunResult
from ggufspec.errors import ResultsError
from tests.support import values


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


def test_two_processes_never_write_to_one_bench() -> None:
    stored = values.bench(values.run(), name="mine")
    results.close(stored)
    code = "from ggufspec import results; bench = results.reopen('mine'); print('open', flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout.readline() == "open\n"
        with pytest.raises(ResultsError, match="mine is already being written"):
            results.reopen("mine")
        assert results.load("mine") == stored
        other.kill()
    assert results.reopen("mine") == stored


def test_only_an_open_bench_is_written_to() -> None:
    stored = values.bench(values.run())
    with pytest.raises(ResultsError, match="is already being written"):
        results.reopen(stored.meta.id)
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
