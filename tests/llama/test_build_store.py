"""The folder of builds: complete or absent, found by key, removed only when it is ours."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ggufspec import digests, paths
from ggufspec.llama.install import store
from ggufspec.llama.install.store import Built, Skipped
from tests.support.builds import make_build


def edit(built: Built, **changes: object) -> None:
    manifest = built.path / store.MANIFEST
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | changes))


def test_a_published_build_is_whole() -> None:
    built = make_build("a")
    assert store.find_build("a") == built
    assert store.installed() == [built]
    assert built.programs == ("llama-completion", "llama-server")
    assert (built.path / "build.log").read_text() == "all went well\n"
    make_build("a")
    files = [path for path in paths.builds_dir().rglob("*") if path.is_file()]
    assert {path.parent.name for path in files} == {"a", "bin", ".locks"}
    assert not list((paths.builds_dir() / ".work").iterdir())
    edit(built, files={})
    assert store.find_build("a") is None  # a record without files is none


def test_newest_first() -> None:
    make_build("old", at="2025-01-01T00:00:00+00:00")
    make_build("new", at="2026-02-01T00:00:00+00:00")
    make_build("mid", at="2026-01-01T00:00:00+00:00")
    assert [built.path.name for built in store.installed()] == ["new", "mid", "old"]


@pytest.mark.parametrize(
    "manifest", ["", "{", "[]", "{}", '{"schema": 1}', '{"schema": 99}', '{"schema": 2}', "\xff"]
)
def test_broken_folders_do_not_count(manifest: str) -> None:
    built = make_build("a")
    (built.path / store.MANIFEST).write_text(manifest)
    assert store.installed() == []


def test_a_half_folder_is_replaced() -> None:
    half = store.place("a") / "bin"
    half.mkdir(parents=True)
    (half / "rubbish").touch()
    assert store.find_build("a") is None
    assert make_build("a").programs == ("llama-completion", "llama-server")


def reason(built: Built) -> str:
    """Return why a build is not used, after checking that nothing takes it for a good one."""
    skipped = store.examine(built.path)
    assert isinstance(skipped, Skipped)
    assert (skipped.path, skipped.is_damaged, skipped.built) == (built.path, True, built)
    assert store.find_build(built.path.name) is None
    assert store.installed() == []
    assert skipped.command == "ggufspec build --version 1.0 --backend cpu"
    return skipped.reason


@pytest.mark.parametrize("name", ["llama-server", "llama-completion", "libllama.so.0.5.0"])
def test_a_file_that_is_cut_or_changed_makes_a_build_unusable(name: str) -> None:
    built = make_build("a")
    content = (built.bin / name).read_text()
    (built.bin / name).write_text(content.replace("l", "x"))
    assert reason(built) == f"{name} has changed: its SHA-256 differs"
    (built.bin / name).write_bytes(b"")
    assert reason(built) == f"{name} has 0 bytes instead of {len(content)}"


def test_what_is_missing_or_replaced_is_found() -> None:
    built = make_build("a")
    link, server = built.bin / "libllama.so", built.bin / "llama-server"
    server.chmod(0o644)
    assert reason(built) == "llama-server is no longer executable"
    server.unlink()
    assert reason(built) == "llama-server is missing"
    server.mkdir()
    assert reason(built) == "llama-server is no longer a file"
    link.unlink()
    link.symlink_to("llama-completion")
    assert reason(built) == "libllama.so is no longer a link to libllama.so.0.5.0"
    shutil.move(built.bin, built.path / "elsewhere")
    assert reason(built) == "its programs are missing"


def test_large_files_of_a_build_are_hashed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(digests, "_SETTLED_NS", 0)
    built = make_build("a")
    (built.bin / "libggml-cuda.so").write_bytes(bytes(2 << 20))
    store.record_files(built)
    assert store.find_build("a") is not None
    read: list[str] = []
    true_digest = hashlib.file_digest

    def file_digest(file: Any, algorithm: str) -> object:
        read.append(Path(file.name).name)
        return true_digest(file, algorithm)

    monkeypatch.setattr(hashlib, "file_digest", file_digest)
    assert store.find_build("a") is not None
    assert sorted(read) == ["libllama.so.0.5.0", "llama-completion", "llama-server"]


def test_everything_is_on_the_disk_before_a_build_gets_its_name(
    watch_syncs: Callable[[Path], list[str]],
) -> None:
    synced = watch_syncs(store.place("a"))
    make_build("a")
    assert {"llama-server", "libllama.so.0.5.0", "bin", "final", "build.log", "builds"} <= {*synced}
    assert synced[-1] == "builds"


def test_the_options_of_a_build_show_whether_it_has_rpc() -> None:
    built = make_build("a")
    assert not built.has_rpc
    for switch in ("GGML_RPC=ON", "LLAMA_RPC=ON"):
        assert replace(built, options=("GGML_NATIVE=ON", switch)).has_rpc


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("sdist 0.2.63", "--version 0.2.63"),
        ("git https://host/x b4159", "--source git+https://host/x --version b4159"),
        ("git /a b/x 0a1b2c3", "--source 'git+/a b/x' --version 0a1b2c3"),
        ("local 0a1b2c3", "--source PATH"),
    ],
)
def test_a_build_knows_the_command_that_makes_it_again(source: str, words: str) -> None:
    options = ("GGML_CUDA=ON", "CMAKE_CUDA_ARCHITECTURES=80;90")
    built = replace(make_build("a", backend="cuda"), source=source, options=options)
    assert built.command == f"ggufspec build {words} --backend cuda --cuda-arch 80,90"


@pytest.mark.parametrize(
    ("name", "command"),
    [
        ("0.3.36-cpu-0a1b2c3d", "ggufspec build --version 0.3.36 --backend cpu"),
        ("my-branch-cuda-0a1b2c3d", "ggufspec build --version my-branch --backend cuda"),
        ("local-x-cpu-0a1b2c3d", "ggufspec build"),
        ("rubbish", "ggufspec build"),
    ],
)
def test_without_a_manifest_the_folders_name_tells_the_command(name: str, command: str) -> None:
    store.place(name).mkdir(parents=True)
    assert store.survey_builds() == [
        Skipped(path=store.place(name), reason="its build.json cannot be read", command=command)
    ]


def test_builds_for_a_better_processor_do_not_count() -> None:
    built = make_build("a")
    edit(built, cpu=[*built.cpu, "AVX9000"])
    assert store.installed() == []
    (skipped,) = store.survey_builds()
    assert isinstance(skipped, Skipped)
    assert (skipped.reason, skipped.is_damaged) == ("it was compiled for a processor with AVX9000", False)


def test_the_key_tells_all_that_matters_apart() -> None:
    keys = {
        store.key(label, backend, facts)
        for label in ("1.0", "1.1")
        for backend in ("cpu", "cuda")
        for facts in (("a", "b"), ("ab",), ("b", "a"))
    }
    assert len(keys) == 12
    assert store.key("1.0", "cpu", ("a",)).startswith("1.0-cpu-")


def test_a_lock_is_held_by_one() -> None:
    with store.try_lock("a") as first, store.try_lock("a") as second, store.try_lock("b") as other:
        assert (first, second, other) == (True, False, True)
    with store.try_lock("a") as again:
        assert again
