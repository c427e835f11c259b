"""Configure, compile and smoke-test one llama.cpp, and give it its place among the builds."""

from __future__ import annotations

import errno
import time
from collections.abc import Generator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from ggufspec.errors import BuildError, DiskFullError
from ggufspec.llama import hints, recipes, smoke, source, store, toolchain
from ggufspec.llama.compilation import Compiled, compile_tree
from ggufspec.llama.progress import Progress, Step
from ggufspec.llama.recipes import Wish
from ggufspec.llama.source import Source, Tree
from ggufspec.llama.store import Built
from ggufspec.llama.toolchain import Backend

_POLL_S = 0.5


@dataclass(frozen=True, kw_only=True)
class Request:
    """Which llama.cpp to build, and for what."""

    source: Source
    backend: Backend
    jobs: int
    architectures: tuple[str, ...] = ()  # CUDA's, as CMake spells them

    def key(self) -> str:
        """Return the name of this build's folder; asks the network only for a git branch."""
        facts = (
            self.source.identity(),
            self.backend.value,
            *self.architectures,
            *sorted(toolchain.machine()),
            f"recipes {recipes.REVISION}",
        )
        return store.key(self.source.label, self.backend.value, facts)


def build(request: Request) -> Generator[Progress, None, Built]:
    """Return the build that was asked for, made now unless it is there.

    Close the generator to stop: no process and no half build stays behind.

    Raises:
        SourceError: the source is not to be had.
        BuildError: it does not compile, or what was compiled does not work.
        DiskFullError: there is no room left.
    """
    name = request.key()
    if built := store.find(name):
        return built
    store.sweep()
    waiting = False
    while True:
        with store.try_lock(name) as ours:
            if built := store.find(name):
                return built
            if ours:
                return (yield from _build(request, name))
        if not waiting:
            yield Progress(
                step=Step.WAIT, line=f"{name} is being built by another process: waiting", notice=True
            )
            waiting = True
        time.sleep(_POLL_S)


def _build(request: Request, name: str) -> Generator[Progress, None, Built]:
    work, log = store.workplace(name), store.log_path(name)
    log.write_bytes(b"")
    try:
        for folder in ("source", "scratch"):
            (work / folder).mkdir()
        tree = yield from source.prepare(request.source, work / "source", log)
        compiled, note = yield from _compile_what_runs(request, tree, work, log)
        place = store.place(name)
        built = Built(
            path=place,
            bin=place / "bin",
            lib=place / "bin",
            version=tree.version,
            backend=request.backend.value,
            source=request.source.identity(),
            commit=tree.commit,
            options=compiled.options,
            built_at=datetime.now(UTC).isoformat(timespec="seconds"),
            note=note,
            cpu=tuple(sorted(toolchain.machine())),
        )
        return store.publish(name, work / "final", built, log)
    except OSError as error:
        if error.errno == errno.ENOSPC:
            hint = "free some disk space, or set GGUFSPEC_CACHE"
            raise DiskFullError(f"no room to build {name}", hint) from error
        raise
    finally:
        if log.exists() and not log.stat().st_size:
            log.unlink()  # it did not come to a tool that could say anything


def _compile_what_runs(
    request: Request, tree: Tree, work: Path, log: Path
) -> Generator[Progress, None, tuple[Compiled, str | None]]:
    """Compile for this very processor; where that crashes, name its features one by one, AMX left out."""
    wish = Wish(
        backend=request.backend, architectures=request.architectures, number=tree.number, commit=tree.commit
    )
    compiled = yield from compile_tree(tree, wish, jobs=request.jobs, work=work, log=log)
    if request.backend is Backend.CUDA and toolchain.nvidia() is None:
        return compiled, "not tested: no NVIDIA driver is here"
    signal = yield from _test(request, compiled, work, log)
    if signal is None:
        return compiled, None
    if not recipes.uses_make(tree.root):
        note = _explain(signal)
        yield Progress(step=Step.TEST, line=note, notice=True)
        wish = replace(wish, cpu=toolchain.cpu_features())
        compiled = yield from compile_tree(tree, wish, jobs=request.jobs, work=work, log=log)
        signal = yield from _test(request, compiled, work, log)
        if signal is None:
            return compiled, note
    raise BuildError(f"the programs die of {signal} on the embedded pair; the log is {log}", hints.FALLBACK)


def _test(
    request: Request, compiled: Compiled, work: Path, log: Path
) -> Generator[Progress, None, str | None]:
    yield Progress(step=Step.TEST, line="running the embedded pair")
    gpu = request.backend is not Backend.CPU
    folder, scratch = work / "final" / "bin", work / "scratch"
    return smoke.check(folder, plain=compiled.programs[0], gpu=gpu, scratch=scratch, log=log)


def _explain(signal: str) -> str:
    amx = any(feature.startswith("AMX") for feature in toolchain.cpu_features())
    what = "AMX is left out" if amx else "the processor's features are named one by one"
    return f"built for this very processor the programs die of {signal}: built again, {what}"
