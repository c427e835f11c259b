"""File names are bytes: a model whose path is not UTF-8 is refused in one line, before anything runs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from ggufspec import paths
from tests.support import fakes, hub_client, shell
from tests.support.hub_server import Hub

BYTES = os.fsdecode(b"caf\xe9")
DEMO = paths.models_dir() / "demo"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder whose name is not UTF-8, with a pair in it."""
    place = tmp_path / BYTES
    try:
        place.mkdir()
    except OSError:
        pytest.skip("this file system takes no other names than Unicode")
    for name in ("target", "drafter"):
        (place / f"{name}.gguf").symlink_to(DEMO / f"{name}.gguf")
    return place


def ggufspec(*words: str, env: Mapping[str, str], cwd: Path | None = None) -> tuple[int, str, str]:
    """Run it as a process, whose streams are as strict as a user's."""
    done = subprocess.run(
        [sys.executable, "-m", "ggufspec", *words],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), **env},
        cwd=cwd,
        capture_output=True,
        check=False,
    )
    return done.returncode, done.stdout.decode(), done.stderr.decode()


def commands(target: str, drafter: str) -> Sequence[Sequence[str]]:
    pair = ("-m", target, "-md", drafter)
    return (
        ("check", target, drafter),
        ("check", target, drafter, "-o", "json"),
        ("plan", *pair, "-o", "json"),
        ("bench", *pair),
        ("bench", *pair, "--dry-run"),
        ("sweep", *pair, "--dry-run"),
        ("tune", *pair),
        ("chat", *pair, "--once", "Hello"),
        ("whatif", *pair, "--machine", "h100", "--accept", "0.7"),
        ("suggest", target, "--offline", "-o", "json"),
        ("fetch", "--target", target, "--draft-model", drafter),
        ("fetch", target),
    )


def test_a_model_with_such_a_path_is_refused_in_one_line(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GGUFSPEC_LLAMA", str(fakes.install(tmp_path / "llama")))
    for words in commands(str(folder / "target.gguf"), str(folder / "drafter.gguf")):
        done = shell.here(*words)
        assert (done.returncode, done.stdout) == (6, "")
        assert done.stderr == (
            f"error: the path {tmp_path}/caf\\xe9/target.gguf is not valid UTF-8\n"
            "hint: rename the file or the folder, or use a symbolic link\n"
        )


def test_a_link_with_another_name_is_used(folder: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(folder)
    code, out, err = ggufspec("check", str(link / "target.gguf"), str(link / "drafter.gguf"), env={})
    assert (code, err) == (0, "")
    assert out.startswith("accepted")


def test_a_relative_path_in_such_a_folder_is_refused_where_it_would_be_stored(
    folder: Path, tmp_path: Path
) -> None:
    llama = fakes.install(tmp_path / "llama")
    code, out, err = ggufspec("bench", "-m", "target.gguf", cwd=folder, env={"GGUFSPEC_LLAMA": str(llama)})
    assert (code, out) == (6, "")
    assert "caf\\xe9/target.gguf is not valid UTF-8" in err


def test_nothing_is_downloaded_into_such_a_folder(hub: Hub, folder: Path, home: Path) -> None:
    env = hub_client.environment(hub, home)
    for words, place in ((("--local-dir", str(folder)), {}), ((), {"HF_HOME": str(folder)})):
        code, out, err = ggufspec("fetch", "me/D-GGUF", *words, env=env | place)
        assert (code, out, err.count("\n")) == (1, "", 2)
        assert "caf\\xe9" in err
        assert hub.content_requests() == []


@pytest.mark.parametrize("words", [("pairs", "mine"), ("pairs", "mine", "-o", "json"), ("pairs",)])
def test_a_catalogue_in_such_a_folder_is_listed(folder: Path, words: tuple[str, ...]) -> None:
    (folder / "pairs.toml").write_text('[pairs.mine]\ntarget = { path = "target.gguf" }\n')
    code, out, _ = ggufspec(*words, env={"GGUFSPEC_CONFIG": str(folder)})
    assert code == 0
    if "json" in words:
        assert json.loads(out)[0]["listed_in"] == str(folder / "pairs.toml")
    assert "mine" in out
