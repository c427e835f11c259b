"""Full disks: below results, temporary files, downloads, and behind the streams of every command."""

from __future__ import annotations

import re
import subprocess
import tempfile
from pathlib import Path

import pytest

from ggufspec import results, temporary
from ggufspec.errors import DiskFullError
from tests.support import fakes, hub_client, shell, values
from tests.support.hub_client import TARGET, Run
from tests.support.hub_server import Hub

FULL = Path("/dev/full")
QUICK = ("--pair", "demo", "-n", "32", "-r", "1", "-t", "1")
PRINTING = (
    ("pairs",),
    ("config",),
    ("doctor", "--offline"),
    ("--help",),
    ("bench", "--help"),
    ("completion", "bash"),
)

pytestmark = pytest.mark.skipif(not FULL.exists(), reason="this system has no device that is full")


@pytest.fixture
def llama(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = fakes.install(tmp_path / "llama", **fakes.AT_ONCE)
    fakes.program(folder / "llama-server", "exit 1", help_from="llama-server")
    monkeypatch.setenv("GGUFSPEC_LLAMA", str(folder))
    return folder


@pytest.fixture
def temporary_disk(small_disk: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The small disk, which takes all temporary files."""
    monkeypatch.setenv("TMPDIR", str(small_disk))
    monkeypatch.setattr(tempfile, "tempdir", str(small_disk))
    temporary._remove_stale.cache_clear()
    return small_disk


# -- results


@pytest.mark.parametrize("small_disk", ["size=256k", "nr_inodes=60"], indirect=True)
@pytest.mark.usefixtures("llama")
def test_a_full_disk_ends_a_sweep_and_room_lets_it_go_on(
    small_disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GGUFSPEC_DATA", str(small_disk))
    texts = [word for number in range(20) for word in ("-p", f"Story number {number}")]
    words = ("sweep", *QUICK, "--warmup", "0", *texts)
    done = shell.here(*words, "--name", "full")
    assert done.returncode == 12, done.stderr
    *_, error, hint = done.stderr.splitlines()
    assert error.startswith("error: no space left")
    assert hint.startswith("hint: ")
    assert "Traceback" not in done.stderr
    before = shell.runs("full")
    assert 3 < len(before) < 61
    subprocess.run(["mount", "-o", "remount,size=8m,nr_inodes=1000", str(small_disk)], check=True)
    shell.done(*words, "--resume", "full")
    rows = shell.runs("full")
    assert [row["started_at"] for row in rows][: len(before)] == [row["started_at"] for row in before]
    cells = [(row["spec_key"], row["repeat"], row["anchor"], row["rerun"]) for row in rows]
    assert len(set(cells)) == len(cells) >= 60 + 3
    assert {row["status"] for row in rows} == {"ok"}


def test_a_run_that_cannot_be_stored_has_its_own_error(home: Path) -> None:
    folder = home / "data" / "runs" / "mine"
    folder.mkdir(parents=True)
    (folder / "runs.jsonl").symlink_to(FULL)
    stored = values.bench(name="mine")
    with pytest.raises(DiskFullError, match="no space left"):
        results.append(stored, values.run())


def test_a_disk_that_is_full_at_once_leaves_no_bench(home: Path) -> None:
    folder = home / "data" / "runs" / "mine"
    folder.mkdir(parents=True)
    (folder / "meta.json.tmp").symlink_to(FULL)
    with pytest.raises(DiskFullError, match="no space left"):
        values.bench(name="mine")
    assert results.ids() == ()


# -- temporary files


@pytest.mark.parametrize("small_disk", ["size=32k"], indirect=True)
def test_a_full_temporary_folder_is_named_with_its_variable(temporary_disk: Path) -> None:
    with (
        pytest.raises(DiskFullError, match="no space is left there") as caught,
        temporary.folder() as scratch,
    ):
        (scratch / "file").write_bytes(bytes(1 << 20))
    assert str(temporary_disk) in caught.value.message
    assert "TMPDIR" in (caught.value.hint or "")


@pytest.mark.parametrize("small_disk", ["nr_inodes=4"], indirect=True)
@pytest.mark.usefixtures("llama")
def test_a_full_temporary_folder_ends_a_bench_with_its_name(temporary_disk: Path) -> None:
    done = shell.ggufspec("bench", *QUICK, "-p", "Once", "--engine", "server")
    assert done.returncode == 12, done.stderr
    assert f"cannot write to {temporary_disk}, the folder of temporary files (from TMPDIR)" in done.stderr
    assert "GGUFSPEC_DATA" not in done.stderr


# -- downloads


def test_a_disk_without_room_for_a_model_is_named_before_anything_travels(
    hub: Hub, home: Path, run: Run
) -> None:
    hub.repos["me/T-GGUF"].files["t-Q4_K_M.gguf"].size = 1 << 60
    code, _, err = run("fetch", "-q", "--yes", "--target", TARGET)
    assert code == 12
    assert err.startswith(f"error: 1,048,576 TiB must be downloaded, but {home}/hf/hub has only ")
    assert err.endswith(
        "hint: free some space, choose a smaller quant, or another disk with --local-dir or HF_HOME\n"
    )
    assert hub.content_requests() == []


def test_a_disk_that_fills_up_on_the_way_ends_a_fetch(hub: Hub, home: Path, run: Run) -> None:
    place = hub_client.blob(home, hub)
    place.parent.mkdir(parents=True)
    Path(f"{place}.incomplete").symlink_to(FULL)
    assert run("fetch", "-q", "--target", TARGET) == (
        12,
        "",
        (
            "error: the disk is full: No space left on device\n"
            "hint: free some space, then run the same command: it resumes\n"
        ),
    )


# -- streams


@pytest.mark.parametrize("words", PRINTING, ids=" ".join)
def test_a_full_disk_behind_standard_output_is_one_line_and_its_code(words: tuple[str, ...]) -> None:
    done = shell.redirected(*words, stdout=FULL)
    assert done.returncode == 12
    *notes, error, hint = done.stderr.splitlines()
    assert re.fullmatch("error: (cannot write to standard output: )?No space left on device", error)
    assert hint.startswith("hint: ")
    assert "Traceback" not in "".join(notes)


def test_a_table_that_cannot_be_printed_is_one_line() -> None:
    values.bench(values.run())
    done = shell.redirected("show", stdout=FULL)
    assert done.returncode == 12
    assert done.stderr.startswith("error: cannot write to standard output: No space left on device\nhint: ")
    assert len(done.stderr.splitlines()) == 2


@pytest.mark.parametrize("words", PRINTING, ids=" ".join)
def test_a_full_disk_behind_standard_error_is_no_traceback(words: tuple[str, ...]) -> None:
    done = shell.redirected(*words, stderr=FULL)
    assert done.returncode in {0, 12}
