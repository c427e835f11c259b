"""The folder of builds: complete or absent, found by key, removed only when it is ours."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ggufspec import paths
from ggufspec.errors import BuildError
from ggufspec.llama import store, toolchain
from ggufspec.llama.store import Built


def make(
    name: str, *, version: str = "1.0", backend: str = "cpu", at: str = "2026-01-01T00:00:00+00:00"
) -> Built:
    place = store.place(name)
    built = Built(
        path=place,
        bin=place / "bin",
        lib=place / "bin",
        version=version,
        backend=backend,
        source=f"sdist {version}",
        commit=None,
        options=("GGML_NATIVE=ON",),
        built_at=at,
        note=None,
        cpu=tuple(sorted(toolchain.machine())),
    )
    with store.try_lock(name) as ours:
        assert ours
        final = store.workplace(name) / "final"
        (final / "bin").mkdir(parents=True)
        for program in ("llama-completion", "libllama.so", "libllama.so.0.5.0", "llama-server"):
            (final / "bin" / program).touch()
        log = store.log_path(name)
        log.write_text("all went well\n")
        return store.publish(name, final, built, log)


def edit(built: Built, **changes: object) -> None:
    manifest = built.path / store.MANIFEST
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | changes))


def test_a_published_build_is_found_again() -> None:
    built = make("a")
    assert store.find("a") == built
    assert store.installed() == [built]
    assert built.programs == ("llama-completion", "llama-server")
    assert (built.path / "build.log").read_text() == "all went well\n"


def test_nothing_but_the_build_is_left() -> None:
    make("a")
    files = [path for path in paths.builds_dir().rglob("*") if path.is_file()]
    assert {path.parent.name for path in files} == {"a", "bin", ".locks"}
    assert not list((paths.builds_dir() / ".work").iterdir())


def test_newest_first() -> None:
    make("old", at="2025-01-01T00:00:00+00:00")
    make("new", at="2026-02-01T00:00:00+00:00")
    make("mid", at="2026-01-01T00:00:00+00:00")
    assert [built.path.name for built in store.installed()] == ["new", "mid", "old"]


@pytest.mark.parametrize(
    "manifest", ["", "{", "[]", "{}", '{"schema": 1}', '{"schema": 99}', '{"schema": 1, "x": 2}']
)
def test_broken_folders_do_not_count(manifest: str) -> None:
    built = make("a")
    (built.path / store.MANIFEST).write_text(manifest)
    assert store.installed() == []


def test_a_half_folder_is_replaced() -> None:
    half = store.place("a") / "bin"
    half.mkdir(parents=True)
    (half / "rubbish").touch()
    assert store.find("a") is None
    assert make("a").programs == ("llama-completion", "llama-server")


def test_builds_for_a_better_processor_do_not_count() -> None:
    built = make("a")
    edit(built, cpu=[*built.cpu, "AVX9000"])
    assert store.installed() == []


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


def test_what_a_dead_build_left_is_swept_and_a_living_one_is_kept() -> None:
    dead = store.workplace("dead")
    dead.mkdir(parents=True)
    (dead / "object.o").touch()
    with store.try_lock("alive"):
        (store.workplace("alive") / "object.o").touch()
        store.sweep()
        assert not dead.exists()
        assert (store.workplace("alive") / "object.o").exists()


def test_remove_takes_the_selected_builds_alone() -> None:
    make("a", version="1.0", backend="cpu")
    make("b", version="1.0", backend="cuda")
    make("c", version="2.0", backend="cpu")
    assert [built.path.name for built in store.remove("1.0", "cpu")] == ["a"]
    assert sorted(built.path.name for built in store.installed()) == ["b", "c"]
    assert not store.place("a").exists()
    assert store.remove("3.0", None) == []
    assert len(store.remove(None, "cuda")) == 1
    assert len(store.remove("2.0", None)) == 1


def test_remove_does_not_follow_links(tmp_path: Path) -> None:
    built = make("a")
    outside = tmp_path / "outside"
    built.path.rename(outside)
    built.path.symlink_to(outside)
    with pytest.raises(BuildError, match="not a folder of our own"):
        store.remove("1.0", None)
    assert (outside / "bin" / "llama-server").exists()


def test_remove_leaves_a_build_in_progress_alone() -> None:
    built = make("a")
    with store.try_lock("a"), pytest.raises(BuildError, match="being built"):
        store.remove("1.0", None)
    assert store.find("a") == built
