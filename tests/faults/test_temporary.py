"""Temporary folders: errors name the folder and what sets it, and what a killed process left is removed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from ggufspec import temporary
from ggufspec.errors import GgufspecError
from tests.support import fakes, shell

_LONG_AGO = time.time() - 3600


@pytest.fixture
def parent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    temporary._remove_stale.cache_clear()
    return folder


def test_a_folder_is_empty_and_goes_with_its_context(parent: Path) -> None:
    with temporary.folder() as scratch:
        assert scratch.parent == parent
        (scratch / "file").write_text("text")
    assert not [*parent.iterdir()]


def test_a_folder_that_vanished_is_named_with_its_variable(parent: Path) -> None:
    def write() -> None:
        with temporary.folder() as scratch:
            shutil.rmtree(parent)
            (scratch / "file").write_text("text")

    with pytest.raises(GgufspecError, match="it does not exist") as caught:
        write()
    assert str(parent) in caught.value.message
    assert "TMPDIR" in (caught.value.hint or "")
    with pytest.raises(GgufspecError, match="it does not exist"), temporary.folder():
        pass


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
    words = ("--pair", "demo", "-p", "Once", "-n", "32", "-r", "1", "-t", "1", "--engine", engine)
    done = shell.here("bench", *words, "--llama", str(llama))
    assert done.returncode == 1, done.stderr
    assert f"cannot write to {parent}, the folder of temporary files (from TMPDIR)" in done.stderr
    assert "GGUFSPEC_DATA" not in done.stderr
    assert "Traceback" not in done.stderr
