from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from ggufspec import results
from ggufspec.domain import Role, RunResult
from ggufspec.errors import DiskFullError, ResultsError
from ggufspec.results import ResultSet
from tests.support import damage, shell, values


def _create(name: str) -> ResultSet:
    return results.create(
        engine="binary", command=(), build=values.BUILD, machine=values.MACHINE, doubts={}, name=name
    )


def test_cut_at_any_byte_the_whole_runs_before_it_load_and_the_rest_can_be_appended() -> None:
    runs = [values.run(), values.run(Role.DRAFTING, draft=3), values.run(repeat=1)]
    stored = values.bench(*runs)
    results.close(stored)
    file = stored.folder / "runs.jsonl"
    whole = file.read_bytes()
    for length in range(len(whole)):
        file.write_bytes(whole[:length])
        lines = whole[:length].split(b"\n")[:-1]
        n_whole = sum(line.startswith(b'{"kind":"run"') for line in lines)
        assert results.load(stored.meta.id).runs == runs[:n_whole]
        if length % 97 == 0:
            resumed = results.reopen(stored.meta.id)
            for run in runs[n_whole:]:
                resumed = results.append(resumed, run)
            results.close(resumed)
            assert results.load(stored.meta.id).runs == resumed.runs == runs


def test_a_write_that_failed_half_way_leaves_nothing_behind() -> None:
    stored = values.bench(values.run())
    with (stored.folder / "runs.jsonl").open("ab") as file:
        file.write(b'{"kind":"run","spec":0,')
    stored = results.append(stored, values.run(repeat=1))
    assert results.load(stored.meta.id).runs == stored.runs == [values.run(), values.run(repeat=1)]


def test_a_bench_can_have_a_name_of_the_users_own() -> None:
    older = values.bench()
    stored = _create("my-sweep.1")
    assert stored.folder.name == stored.meta.id == "my-sweep.1"
    _create("my-sweep")
    assert results.load("my-sweep").meta.id == "my-sweep"
    assert results.ids() == (older.meta.id, "my-sweep.1", "my-sweep")
    assert results.load("last").meta.id == "my-sweep"


@pytest.mark.parametrize("name", ["last", "..", "../x", "a/b", ".hidden", "", "a b", "x" * 101, "é", "a\n"])
def test_a_name_that_is_none_is_refused(name: str) -> None:
    with pytest.raises(ResultsError, match="cannot be the name"):
        _create(name)
    assert not results.ids()


@pytest.mark.parametrize("runs", [(), (values.run(),)])
def test_a_name_that_is_taken_is_refused_and_nothing_lost(runs: tuple[RunResult, ...]) -> None:
    stored = _create("mine")
    for run in runs:
        stored = results.append(stored, run)
    results.close(stored)
    with pytest.raises(ResultsError, match="the bench mine already exists") as caught:
        _create("mine")
    assert caught.value.hint is not None
    assert "resume" in caught.value.hint
    assert results.load("mine") == stored


def test_a_folder_that_died_in_the_making_is_no_bench_and_its_name_is_free() -> None:
    stored = _create("mine")
    results.close(stored)
    (stored.folder / "meta.json").rename(stored.folder / "meta.json.tmp")
    assert results.ids() == ()
    assert _create("mine").runs == ()


def test_two_processes_never_write_to_one_bench() -> None:
    stored = results.append(_create("mine"), values.run())
    results.close(stored)
    code = "from ggufspec import results; bench = results.reopen('mine'); print('open', flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
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


def test_killed_at_any_instant_nothing_is_lost_or_double() -> None:
    script = Path(__file__).parents[2] / "scripts" / "crash_store.py"
    done = subprocess.run(
        [sys.executable, script, "--kills", "20"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("benches with every cell once, none lost, none double\n")


def test_wrong_records_and_newer_schemas_are_named() -> None:
    stored = values.bench(values.run())
    meta = stored.folder / "meta.json"
    text = meta.read_bytes()
    damage.reseal_meta(meta, text.replace(b'"schema_version":', b'"schema_version":9'))
    with pytest.raises(ResultsError, match="newer ggufspec"):
        results.load(stored.meta.id)
    meta.write_bytes(text)
    file = stored.folder / "runs.jsonl"
    intact = file.read_bytes()
    for content, words in (
        (intact + b'{"spec": 1}\n', "line 6: .*kind"),
        (intact.replace(b'"repeat":0', b'"repeat":"no"'), "line 5: Expected `int`, got `str`"),
        (intact.replace(b'"spec":0', b'"spec":7'), "run 0 refers to a missing record"),
        (intact.replace(b'"call","id":0', b'"call","id":1'), "CallRecord 1 is number 0"),
        (intact[intact.index(b"\n") + 1 :], "refers to a missing text"),
        (intact + b'{"kind":"judged","run":5}\n', "run 5 was judged but does not exist"),
    ):
        damage.reseal_runs(file, content)
        with pytest.raises(ResultsError, match=f"cannot read the run in .*{words}"):
            results.load(stored.meta.id)


def test_a_full_disk_has_its_own_error(home: Path) -> None:
    folder = home / "data" / "runs" / "mine"
    folder.mkdir(parents=True)
    (folder / "runs.jsonl").symlink_to("/dev/full")
    stored = _create("mine")
    with pytest.raises(DiskFullError, match="no space left"):
        results.append(stored, values.run())


def test_a_disk_that_is_full_at_once_leaves_no_bench(home: Path) -> None:
    folder = home / "data" / "runs" / "mine"
    folder.mkdir(parents=True)
    (folder / "meta.json.tmp").symlink_to("/dev/full")
    with pytest.raises(DiskFullError, match="no space left"):
        _create("mine")
    assert results.ids() == ()


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


def test_a_removed_meta_is_written_again_by_the_bench_that_runs() -> None:
    stored = results.append(_create("mine"), values.run())
    meta = stored.folder / "meta.json"
    content = meta.read_bytes()
    meta.unlink()
    stored = results.append(stored, values.run(repeat=1))
    assert meta.read_bytes() == content
    meta.unlink()
    results.confirm(stored)
    results.close(stored)
    assert results.load("mine") == stored


def test_without_its_meta_a_bench_is_named_and_can_be_salvaged() -> None:
    other = values.bench()
    stored = results.append(_create("mine"), values.run())
    results.close(stored)
    (stored.folder / "meta.json").unlink()
    for name in ("mine", str(stored.folder)):
        with pytest.raises(ResultsError, match=r"meta\.json is missing") as caught:
            results.load(name)
        assert "show mine --salvage" in (caught.value.hint or "")
        saved = results.load(name, salvage=True)
        assert saved.runs == stored.runs
        assert saved.damage == ("meta.json is missing: build, machine and engine are unknown",)
    assert results.ids() == (other.meta.id,)
    done = shell.here("show", "mine", "--salvage")
    assert done.returncode == 0
    assert "meta.json is missing" in done.stdout + done.stderr
