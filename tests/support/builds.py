"""Builds of llama.cpp in the folder of builds, which nobody compiled, and an index that is a folder."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from ggufspec.llama.build.building import BuildRequest
from ggufspec.llama.install import Backend, environment, store
from ggufspec.llama.install.store import Built
from ggufspec.llama.source import choose_source
from tests.support import fakes


def make_build(name: str, *, works: bool = False, **facts: Any) -> Built:
    """Put a build into the folder of builds; its programs are one line each, or fakes that answer."""

    def fill(folder: Path) -> None:
        if works:
            fakes.install(folder)
            return
        for program in ("llama-completion", "libllama.so.0.5.0", "llama-server"):
            fakes.script(folder / program, f"# {program}\n")
        (folder / "libllama.so").symlink_to("libllama.so.0.5.0")

    facts.setdefault("source", f"sdist {facts.get('version', '1.0')}")
    return _store(name, fill, cpu=tuple(sorted(environment.target())), options=("GGML_NATIVE=ON",), **facts)


def publish(
    version: str, *, source: str | None = None, plain_ms: float = 19.0, drafting_s: float = 0.01
) -> Path:
    """Store a build of a version, whose programs report these times; return the folder of its programs."""
    asked = BuildRequest(source=choose_source(source, version), backend=Backend.CPU, jobs=1)
    bodies = {
        "plain": fakes.answer(fakes.plain_log(plain_ms)),
        "drafting": fakes.answer(fakes.drafting_log(drafting_s)),
    }
    return _store(
        asked.key(),
        lambda folder: fakes.install(folder, **bodies),
        version=version,
        source=asked.source.identity(),
    ).bin


def _store(
    name: str,
    fill: Callable[[Path], object],
    *,
    version: str = "1.0",
    at: str = "2026-01-01T00:00:00+00:00",
    **facts: Any,
) -> Built:
    """Store a build, whose programs ``fill`` writes."""
    known = {"backend": "cpu", "commit": None, "options": (), "note": None} | facts
    built = Built(path=store.place(name), version=version, built_at=at, **known)
    with store.try_lock(name) as ours:
        assert ours
        final = store.workplace(name) / "final"
        fill(final / "bin")
        log = store.log_path(name)
        log.write_text("all went well\n")
        return store.publish(name, final, built, log)


def serve_index(
    folder: Path, versions: Iterable[str], monkeypatch: pytest.MonkeyPatch, package: str = "llama-cpp-python"
) -> None:
    """Let a folder be the package index; its archives are no archives, so nothing in it can be built."""
    folder.mkdir(exist_ok=True)
    for version in versions:
        (folder / f"{package.replace('-', '_')}-{version}.tar.gz").write_bytes(b"")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
