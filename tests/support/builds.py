"""Builds of llama.cpp in the folder of builds, made without compiling."""

from __future__ import annotations

from ggufspec.llama.install import environment, store
from ggufspec.llama.install.store import Built
from tests.support import fakes


def make_build(
    name: str,
    *,
    version: str = "1.0",
    backend: str = "cpu",
    at: str = "2026-01-01T00:00:00+00:00",
    commit: str | None = None,
    works: bool = False,
) -> Built:
    """Put a build into the folder of builds; its programs are one line each, or fakes that answer."""
    built = Built(
        path=store.place(name),
        version=version,
        backend=backend,
        source=f"sdist {version}",
        commit=commit,
        options=("GGML_NATIVE=ON",),
        built_at=at,
        note=None,
        cpu=tuple(sorted(environment.target())),
    )
    with store.try_lock(name) as ours:
        assert ours
        final = store.workplace(name) / "final"
        if works:
            fakes.install(final / "bin")
        else:
            for program in ("llama-completion", "libllama.so.0.5.0", "llama-server"):
                fakes.script(final / "bin" / program, f"# {program}\n")
            (final / "bin" / "libllama.so").symlink_to("libllama.so.0.5.0")
        log = store.log_path(name)
        log.write_text("all went well\n")
        return store.publish(name, final, built, log)
