"""Full disks: below results, temporary files, downloads, and behind the streams of every command."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ggufspec import paths, prompts, results, temporary, userfiles
from ggufspec.errors import DiskFullError, GgufspecError
from ggufspec.llama.server import endpoints
from ggufspec.modelfiles import catalog
from ggufspec.options import settings
from tests.support import fakes, hub_client, shell, values
from tests.support.hub_client import TARGET
from tests.support.hub_server import Hub
from tests.support.shell import run

FULL = Path("/dev/full")
QUICK = ("--pair", "demo", "-n", "32", "-r", "1", "-t", "1")
pytestmark = pytest.mark.skipif(not FULL.exists(), reason="this system has no device that is full")


@pytest.fixture
def llama(llama: Path) -> Path:
    fakes.program(llama / "llama-server", "exit 1", help_from="llama-server")
    return llama


@pytest.fixture
def small_disk(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    """A disk of its own; the parameter says how little room it has, in mount's words for tmpfs."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", request.param, "none", str(folder)]
    if subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("only root can mount a disk that is full soon")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def _use_temporary(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Let all temporary files be in a folder."""
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    temporary._remove_stale.cache_clear()
    return folder


@pytest.fixture
def temporary_disk(small_disk: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The small disk, which takes all temporary files."""
    return _use_temporary(small_disk, monkeypatch)


# -- results


@pytest.mark.parametrize("small_disk", ["size=256k", "nr_inodes=60"], indirect=True)
@pytest.mark.usefixtures("llama")
def test_a_sweep_goes_on_after_a_full_disk(small_disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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


@pytest.mark.parametrize("small_disk", ["nr_inodes=4"], indirect=True)
@pytest.mark.usefixtures("llama")
def test_a_full_temporary_folder_ends_a_bench_with_its_name(temporary_disk: Path) -> None:
    done = shell.ggufspec("bench", *QUICK, "-p", "Once", "--engine", "server")
    assert done.returncode == 12, done.stderr
    assert f"cannot write to {temporary_disk}, the folder of temporary files (from TMPDIR)" in done.stderr
    assert "GGUFSPEC_DATA" not in done.stderr


# -- downloads


def test_a_disk_without_room_is_named_before_a_download(hub: Hub, home: Path) -> None:
    hub.repos["me/T-GGUF"].files["t-Q4_K_M.gguf"].size = 1 << 60
    code, _, err = run("fetch", "-q", "--yes", "--target", TARGET)
    assert code == 12
    assert err.startswith(f"error: the download needs 1,048,576 TiB, but {home}/hf/hub has only ")
    assert err.endswith(
        "hint: free some space, choose a smaller quant, or another disk with --local-dir or HF_HOME\n"
    )
    assert hub.content_requests() == []


def test_a_disk_that_fills_up_on_the_way_ends_a_fetch(hub: Hub, home: Path) -> None:
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


@pytest.mark.parametrize("words", [("show",), *shell.PRINTING], ids=" ".join)
def test_a_full_disk_behind_a_stream_is_one_line_and_its_code(words: tuple[str, ...]) -> None:
    values.bench(values.run())
    done = shell.redirected(*words, stdout=FULL)
    assert done.returncode == 12
    *notes, error, hint = done.stderr.splitlines()
    assert re.fullmatch("error: (cannot write to standard output: )?No space left on device", error)
    assert hint.startswith("hint: ")
    assert not notes
    assert shell.redirected(*words, stderr=FULL).returncode in {0, 12}


@pytest.mark.parametrize("stream", [">/dev/full", ">&-"])
def test_output_without_a_buffer_is_named_where_it_cannot_be_written(stream: str) -> None:
    """Containers set PYTHONUNBUFFERED, with which each line is written at once."""
    words = shlex.join([sys.executable, "-m", "ggufspec", "check", "demo"])
    env = os.environ | {"PYTHONUNBUFFERED": "1"}
    done = subprocess.run(["sh", "-c", f"{words} {stream}"], env=env, capture_output=True, text=True)
    assert done.returncode == (12 if "full" in stream else 1)
    assert done.stderr.startswith("error: cannot write to standard output: ")


# Temporary folders: errors name the folder and what sets it, and what a killed process left is removed


_LONG_AGO = time.time() - 3600


@pytest.fixture
def parent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for temporary files."""
    (tmp_path / "temporary").mkdir()
    return _use_temporary(tmp_path / "temporary", monkeypatch)


def test_a_folder_is_empty_and_goes_with_its_context(parent: Path) -> None:
    with temporary.folder() as scratch:
        assert scratch.parent == parent
        (scratch / "file").write_text("text")
    assert not [*parent.iterdir()]


def test_an_error_elsewhere_stays_what_it_is(parent: Path) -> None:
    with pytest.raises(OSError, match="No space left on device"), temporary.folder():
        Path("/dev/full").write_text("text")


def test_what_a_killed_process_left_is_removed_and_nothing_else(parent: Path) -> None:
    code = (
        "from ggufspec import temporary\n"
        "with temporary.folder() as scratch:\n"
        "    (scratch / 'file').write_text('text'); print(scratch, flush=True); input()\n"
    )
    with _start(code) as killed, _start(code) as living:
        folders = [Path(process.stdout.readline().strip()) for process in (killed, living) if process.stdout]
        killed.kill()
        killed.wait()
        (parent / "other").mkdir()
        (parent / "ggufspec-file").write_text("a user's own")
        (parent / "ggufspec-link").symlink_to(parent / "other")
        for path in parent.iterdir():
            os.utime(path, (_LONG_AGO, _LONG_AGO), follow_symlinks=False)
        with temporary.folder() as scratch:
            assert {*parent.iterdir()} == {
                *(scratch, folders[1]),
                *(parent / name for name in ("other", "ggufspec-file", "ggufspec-link")),
            }
        living.communicate("\n")
        assert not folders[1].exists()


def _start(code: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


@pytest.mark.parametrize("engine", ["binary-simple", "server"])
def test_a_bench_does_not_blame_the_data_folder(parent: Path, tmp_path: Path, engine: str) -> None:
    """A program that removes the folder of temporary files, as a cleaning job does."""
    body = f"rm -rf {parent}\n{fakes.PLAIN}"
    llama = fakes.install(tmp_path / "llama", plain=body, drafting=body)
    fakes.program(llama / "llama-server", body, help_from="llama-server")
    done = shell.here("bench", *QUICK, "-p", "Once", "--engine", engine, "--llama", str(llama))
    assert done.returncode == 1, done.stderr
    assert f"cannot write to {parent}, the folder of temporary files (from TMPDIR)" in done.stderr
    assert "GGUFSPEC_DATA" not in done.stderr
    assert "Traceback" not in done.stderr
    with pytest.raises(GgufspecError, match="it does not exist"), temporary.folder():
        pass


# Files that users name: a pipe or a device in their place is refused at once, and a large file, too


READERS: dict[str, Callable[[Path], object]] = {
    "settings": settings.read_file,
    "prompts.txt": prompts.load,
    "prompts.toml": prompts.load,
    "prompts.jsonl": prompts.load,
    "prompts.parquet": prompts.load,
    "recording": prompts.read_recording,
    "chat.json": prompts.read_conversation,
    "context": prompts.read_long_text,
    "key": endpoints.read_key,
}


@pytest.mark.timeout(20)
@pytest.mark.parametrize("name", READERS)
def test_a_pipe_or_a_device_is_refused_at_once(tmp_path: Path, name: str) -> None:
    pytest.importorskip("pyarrow")
    os.mkfifo(tmp_path / name)
    with pytest.raises(GgufspecError, match="it is not a regular file"):
        READERS[name](tmp_path / name)
    (tmp_path / name).unlink()
    (tmp_path / name).symlink_to("/dev/zero")
    with pytest.raises(GgufspecError, match="it is not a regular file"):
        READERS[name](tmp_path / name)


@pytest.mark.timeout(20)
def test_a_pipe_in_place_of_the_pairs_is_left_out(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("GGUFSPEC_CONFIG", str(tmp_path))
    os.mkfifo(catalog.user_file())
    assert "it is not a regular file" in (catalog.read().unreadable or "")
    assert "demo" in catalog.read().entries


@pytest.mark.timeout(60)
def test_a_pipe_as_settings_is_refused_in_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("GGUFSPEC_CONFIG", str(tmp_path))
    os.mkfifo(paths.config_file())
    done = shell.here("pairs")
    assert done.returncode == 1
    assert "it is not a regular file" in done.stderr
    assert "it is not a regular file" in shell.here("config", "set", "threads", "2").stderr


def test_a_large_file_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "large"
    file.write_bytes(bytes(100))
    assert userfiles.read(file, most_bytes=100) == bytes(100)
    with pytest.raises(userfiles.UnsuitableFileError) as caught:
        userfiles.read(file, most_bytes=99)
    assert caught.value.strerror == "it is larger than 99 B"


def test_prompts_come_through_streams_of_the_shell() -> None:
    code = (
        "from pathlib import Path; from ggufspec import prompts\n"
        "for _ in range(2):\n"
        "    print([prompt.text for name in ('/dev/stdin', '/dev/fd/9')"
        " for prompt in prompts.load(Path(name)).prompts])"
    )
    command = '"$0" -c "$1" < <(echo A cat) 9< <(echo A dog)'
    done = subprocess.run(
        ["bash", "-c", command, sys.executable, code], capture_output=True, text=True, check=True
    )
    assert done.stdout == "['A cat', 'A dog']\n" * 2
