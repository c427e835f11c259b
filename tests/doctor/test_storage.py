"""What is kept, what it takes, and its removal: only what is named, and never beyond our own folders."""

from __future__ import annotations

import json
import os
import pty
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import filelock
import pytest
from click.testing import CliRunner, Result

from ggufspec import api, paths
from ggufspec.choices import StorageKind
from ggufspec.cli import cli
from ggufspec.doctor import storage
from ggufspec.errors import ConsentNeededError, GgufspecError
from ggufspec.llama.install import store
from ggufspec.results.writer import Lock
from tests.support import cuda_parts

KEY = "0.3.36-cpu-0a1b2c3d"
ARCHIVE = "llama_cpp_python-0.3.36.tar.gz"


def write(path: Path, size: int = 1000) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(bytes(size))
    return path


@pytest.fixture(autouse=True)
def hub_cache(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Use a Hub cache of our own."""
    from huggingface_hub import constants

    folder = home / "hf" / "hub"
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(folder))
    return folder


@pytest.fixture
def kept(home: Path, hub_cache: Path) -> dict[StorageKind, Path]:
    """Something of every kind; returns where each is."""
    model = hub_cache / "models--me--T-GGUF"
    blob = write(model / "blobs" / "0a1b", 5000)
    (model / "snapshots" / "c0").mkdir(parents=True)
    (model / "snapshots" / "c0" / "t.gguf").symlink_to(blob)
    write(hub_cache / "models--me--text-only" / "snapshots" / "c0" / "README.md")
    write(paths.sources_dir() / ("0" * 64) / ARCHIVE, 3000)
    write(paths.sources_dir() / ARCHIVE.replace(".tar.gz", ".sha256"), 90)
    write(paths.runs_dir() / "20260101-000000-a" / "meta.json", 10)
    write(paths.data_dir() / "profiles" / "abc.json", 20)
    write(paths.cache_dir() / "digests.sqlite", 40)
    write(paths.cache_dir() / "flush-log-x86_64-0a1b2c3d.so", 50)
    write(paths.builds_dir() / KEY / "bin" / "llama-server", 2000)
    write(paths.builds_dir() / ".logs" / "failed.log", 60)
    cuda_parts.install(paths.cache_dir() / "cuda" / "13.0")
    return {
        StorageKind.BUILDS: paths.builds_dir() / KEY,
        StorageKind.SOURCES: paths.sources_dir() / ("0" * 64),
        StorageKind.CUDA: paths.cache_dir() / "cuda" / "13.0",
        StorageKind.MODELS: model,
        StorageKind.DIGESTS: paths.cache_dir() / "digests.sqlite",
        StorageKind.OTHER: paths.builds_dir() / ".logs",
        StorageKind.PROFILES: paths.data_dir() / "profiles" / "abc.json",
        StorageKind.RESULTS: paths.runs_dir() / "20260101-000000-a",
    }


NAMES = {
    StorageKind.BUILDS: f"builds/{KEY}",
    StorageKind.SOURCES: f"sources/{ARCHIVE}",
    StorageKind.CUDA: "cuda/13.0",
    StorageKind.MODELS: "models/me/T-GGUF",
    StorageKind.DIGESTS: "digests/digests.sqlite",
    StorageKind.OTHER: "other/logs",
    StorageKind.PROFILES: "profiles/abc.json",
    StorageKind.RESULTS: "results/20260101-000000-a",
}


def run(*words: str) -> Result:
    return CliRunner().invoke(cli, ["cache", *words])


def test_everything_has_a_name_and_a_size(kept: dict[StorageKind, Path]) -> None:
    rows = {row["name"]: row for row in json.loads(run("list", "-o", "json").stdout)}
    assert rows.keys() == {*NAMES.values(), "other/flush-log-x86_64-0a1b2c3d.so"}
    assert {StorageKind(row["kind"]) for row in rows.values()} == set(StorageKind)
    for kind, name in NAMES.items():
        assert Path(rows[name]["path"]) == kept[kind]
    assert rows[NAMES[StorageKind.SOURCES]]["size_bytes"] == 3090
    assert rows[NAMES[StorageKind.BUILDS]]["size_bytes"] == 2000
    assert rows[NAMES[StorageKind.BUILDS]]["note"] == "not used: its build.json cannot be read"
    assert rows[NAMES[StorageKind.MODELS]]["size_bytes"] == 5000  # the link in the snapshot takes nothing


def test_the_overview_keeps_what_others_share_apart(kept: dict[StorageKind, Path]) -> None:
    rows = {row["kind"]: row for row in json.loads(run("-o", "json").stdout)}
    assert list(rows) == [kind.value for kind in StorageKind]
    assert all(kind.value in run("--help").stdout for kind in StorageKind)
    assert [item.name for item in StorageKind if run("list", item.value).exit_code] == []
    assert [kind for kind, row in rows.items() if row["shared"]] == ["models"]
    assert rows["other"]["items"] == 2
    text = run()
    assert text.stdout.splitlines()[0].split() == ["kind", "items", "size", "where"]
    assert text.stdout.count("(shared with other programs)") == 1
    assert "without the models" in text.stderr


def test_an_empty_machine_keeps_nothing() -> None:
    assert json.loads(run("list", "-o", "json").stdout) == []
    listed = run("list")
    assert (listed.stdout, listed.stderr, listed.exit_code) == ("", "nothing is stored\n", 0)
    assert run("prune", "sources", "--yes").stderr == "nothing to delete\n"


def test_a_list_is_of_the_kinds_that_are_asked_for(kept: dict[StorageKind, Path]) -> None:
    lines = run("list", "sources", "results").stdout.splitlines()
    assert [line.split()[0] for line in lines] == [
        "name",
        NAMES[StorageKind.SOURCES],
        NAMES[StorageKind.RESULTS],
    ]
    assert run("list", "everything").exit_code == 2


@pytest.mark.parametrize("kind", list(StorageKind))
def test_what_is_named_is_deleted_and_nothing_else(kept: dict[StorageKind, Path], kind: StorageKind) -> None:
    before = {item.name for item in storage.list_items()}
    result = run("prune", NAMES[kind], "--yes")
    assert result.exit_code == 0, result.exception
    assert result.stdout.startswith(f"deleted {NAMES[kind]} (")
    assert not kept[kind].exists()
    assert {item.name for item in storage.list_items()} == before - {NAMES[kind]}


@pytest.mark.parametrize("kind", [kind for kind in StorageKind if kind is not StorageKind.MODELS])
def test_a_kind_means_all_of_it(kept: dict[StorageKind, Path], kind: StorageKind) -> None:
    assert run("prune", kind, "--yes").exit_code == 0
    assert storage.list_items([kind]) == ()
    assert not [*paths.sources_dir().iterdir()] or kind is not StorageKind.SOURCES  # nor what was noted of it
    assert {item.kind for item in storage.list_items()} == set(StorageKind) - {kind}


def test_a_notebook_deletes_by_the_same_names(kept: dict[StorageKind, Path]) -> None:
    deleted = api.prune(names=(NAMES[StorageKind.BUILDS], "sources"))
    assert [item.name for item in deleted] == [NAMES[StorageKind.BUILDS], NAMES[StorageKind.SOURCES]]
    assert {kind for kind, path in kept.items() if not path.exists()} == {
        StorageKind.BUILDS,
        StorageKind.SOURCES,
    }


def test_no_bench_is_left_in_part(kept: dict[StorageKind, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    (bench,) = storage.list_items([StorageKind.RESULTS])
    monkeypatch.setattr(shutil, "rmtree", mock.Mock(side_effect=KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        storage.remove(bench)
    assert storage.list_items([StorageKind.RESULTS]) == ()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("models", "name each model"),
        ("build", "there is no item 'build'; did you mean builds?"),
        (f"builds/{KEY}x", f"did you mean builds/{KEY}?"),
        ("results/../../x", "there is no item"),
        ("/", "there is no item '/'"),
        ("*", "there is no item"),
    ],
)
def test_what_means_nothing_deletes_nothing(kept: dict[StorageKind, Path], name: str, message: str) -> None:
    result = run("prune", "sources", name, "--yes")
    assert isinstance(result.exception, GgufspecError)
    assert message in result.exception.message
    assert "ggufspec cache list" in str(result.exception.hint)
    assert all(path.exists() for path in kept.values())


def test_nothing_is_deleted_without_being_asked_for(kept: dict[StorageKind, Path]) -> None:
    assert run("prune", "--yes").exit_code == 2
    for words in (("prune", "builds"), ("prune", "results")):
        refused = run(*words)
        assert isinstance(refused.exception, ConsentNeededError)
        assert refused.exception.hint == "add --yes"
    assert all(path.exists() for path in kept.values())


@pytest.mark.parametrize(
    ("words", "answer", "exit_code"), [((), "y", 0), ((), "n", 130), (("--quiet",), "y", 32)]
)
def test_a_person_is_asked_but_not_in_silence(
    kept: dict[StorageKind, Path], words: tuple[str, ...], answer: str, exit_code: int
) -> None:
    ours, theirs = pty.openpty()
    named = ["sources", NAMES[StorageKind.RESULTS]]
    argv = [sys.executable, "-m", "ggufspec", *words, "cache", "prune", *named]
    os.write(ours, f"{answer}\n".encode())
    result = subprocess.run(argv, stdin=theirs, capture_output=True, text=True, check=False)
    os.close(ours)
    os.close(theirs)
    assert result.returncode == exit_code
    question = f"{NAMES[StorageKind.SOURCES]}\n{named[1]}\nDelete 2 items of 3.03 KiB?"
    assert (question in result.stderr) == (not words)
    assert kept[StorageKind.SOURCES].exists() == kept[StorageKind.RESULTS].exists() == (exit_code != 0)


FOLDERS = ("builds", "sources", "cuda", "profiles", "results")


@pytest.mark.parametrize("name", [*NAMES.values(), *FOLDERS])
def test_outward_links_are_left(kept: dict[StorageKind, Path], tmp_path: Path, name: str) -> None:
    outside, kind = tmp_path / "outside", StorageKind(name.partition("/")[0])
    place = storage.root(kind) if name in FOLDERS else kept[kind]
    place.rename(outside)
    place.symlink_to(outside)
    before = {path: path.lstat().st_size for path in (outside, *outside.rglob("*"))}
    result = run("prune", name, "--yes")
    assert isinstance(result.exception, GgufspecError)
    assert {path: path.lstat().st_size for path in before} == before


def test_the_folder_that_a_user_chose_may_be_a_link(
    kept: dict[StorageKind, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable, folder in (("GGUFSPEC_CACHE", paths.cache_dir()), ("GGUFSPEC_DATA", paths.data_dir())):
        (tmp_path / variable).symlink_to(folder)
        monkeypatch.setenv(variable, str(tmp_path / variable))
    for kind in set(StorageKind) - {StorageKind.MODELS}:
        assert run("prune", kind, "--yes").exit_code == 0
    assert {item.kind for item in storage.list_items()} == {StorageKind.MODELS}


def test_links_inside_are_removed_not_their_targets(kept: dict[StorageKind, Path], tmp_path: Path) -> None:
    precious = write(tmp_path / "precious" / "file")
    (kept[StorageKind.BUILDS] / "bin" / "link").symlink_to(precious.parent)
    assert paths.size_bytes(kept[StorageKind.BUILDS]) == 2000
    assert run("prune", "builds", "--yes").exit_code == 0
    assert precious.exists()


def _build(place: Path) -> object:
    return store.try_lock(place.name)


def _wheels(place: Path) -> object:
    return filelock.FileLock(place.with_name(f".{place.name}.lock"))


@pytest.mark.parametrize(
    ("kind", "use", "message"),
    [
        (StorageKind.BUILDS, _build, "is being built"),
        (StorageKind.CUDA, _wheels, "is in use"),
        (StorageKind.RESULTS, Lock, "is already being written"),
    ],
)
def test_what_is_in_use_is_kept(
    kept: dict[StorageKind, Path], kind: StorageKind, use: Callable[[Path], Lock], message: str
) -> None:
    with use(kept[kind]):
        result = run("prune", kind, "--yes")
    assert isinstance(result.exception, GgufspecError)
    assert message in result.exception.message
    assert kept[kind].exists()


def test_what_killed_builds_left_is_freed(kept: dict[StorageKind, Path]) -> None:
    dead = write(store.workplace("dead") / "object.o")
    with store.try_lock("alive"):
        alive = write(store.workplace("alive") / "object.o")
        assert run("prune", "other/unfinished-builds", "--yes").exit_code == 0
        assert not dead.exists()
        assert alive.exists()


def test_an_unfinished_download_is_a_model(hub_cache: Path) -> None:
    write(hub_cache / "models--me--Big-GGUF" / "blobs" / "0a1b.incomplete", 7000)
    (item,) = storage.list_items([StorageKind.MODELS])
    assert (item.label, item.size_bytes, item.note) == ("me/Big-GGUF", 7000, "unfinished download")
    assert run("prune", "models/me/Big-GGUF", "--yes").exit_code == 0
    assert storage.list_items([StorageKind.MODELS]) == ()
