"""Files that users name: a pipe or a device in their place is refused at once, and a large file, too."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from ggufspec import paths, prompts, userfiles
from ggufspec.errors import GgufspecError
from ggufspec.llama.server import endpoints
from ggufspec.modelfiles import catalog
from ggufspec.options import settings
from tests.support import shell

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
    with pytest.raises(GgufspecError, match="it is a pipe, not a regular file"):
        READERS[name](tmp_path / name)
    (tmp_path / name).unlink()
    (tmp_path / name).symlink_to("/dev/zero")
    with pytest.raises(GgufspecError, match="it is a device, not a regular file"):
        READERS[name](tmp_path / name)


@pytest.mark.timeout(20)
def test_a_pipe_in_place_of_the_pairs_is_left_out(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("GGUFSPEC_CONFIG", str(tmp_path))
    os.mkfifo(catalog.user_file())
    assert "it is a pipe, not a regular file" in (catalog.read().unreadable or "")
    assert "demo" in catalog.read().entries


@pytest.mark.timeout(60)
def test_a_pipe_in_place_of_the_settings_ends_a_command_with_one_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("GGUFSPEC_CONFIG", str(tmp_path))
    os.mkfifo(paths.config_file())
    done = shell.here("pairs")
    assert done.returncode == 1
    assert "it is a pipe, not a regular file" in done.stderr
    assert "it is a pipe" in shell.here("config", "set", "threads", "2").stderr


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
