"""Builds of llama.cpp that nobody compiled, and a package index that is a folder."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from ggufspec.llama.build.building import BuildRequest
from ggufspec.llama.install import Backend, Built, store
from ggufspec.llama.source import choose_source
from tests.support import fakes


def publish(
    version: str, *, source: str | None = None, plain_ms: float = 19.0, drafting_s: float = 0.01
) -> Path:
    """Store a build of a version, whose programs report these times; return the folder of its programs."""
    asked = BuildRequest(source=choose_source(source, version), backend=Backend.CPU, jobs=1)
    name = asked.key()
    with store.try_lock(name):
        final = store.workplace(name) / "final"
        fakes.install(
            final / "bin",
            plain=fakes.answer(fakes.plain_log(plain_ms)),
            drafting=fakes.answer(fakes.drafting_log(drafting_s)),
        )
        log = store.log_path(name)
        log.write_text("")
        built = Built(
            path=store.place(name),
            version=version,
            backend="cpu",
            source=asked.source.identity(),
            commit=None,
            options=(),
            built_at="2026-01-02T03:04:05+00:00",
            note=None,
        )
        return store.publish(name, final, built, log).bin


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
