"""Configure, compile and smoke-test one llama.cpp, and give it its place among the builds."""

from __future__ import annotations

import errno
import time
from collections.abc import Generator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

from ggufspec import proc
from ggufspec.choices import Backend
from ggufspec.errors import BuildError, DiskFullError
from ggufspec.llama.build import compilation, recipes, smoke, toolchain, toolkit as cuda_toolkit
from ggufspec.llama.build.compilation import Compiled, compile_tree
from ggufspec.llama.build.recipes import CompileSettings
from ggufspec.llama.build.toolkit import Toolkit
from ggufspec.llama.install import environment, options, store
from ggufspec.llama.install.store import Built, Skipped
from ggufspec.llama.source import sources as source
from ggufspec.llama.source.sources import Source, Tree
from ggufspec.steps import BuildProgress, BuildStep

_POLL_S = 0.5
_NO_GPU = "tested on the CPU only: no NVIDIA driver was found"
_UNSEEN = "its programs find no GPU: CUDA_VISIBLE_DEVICES may be empty, or the driver too old"
_NO_ARCHITECTURE = (
    "no GPU was found: compiling for llama.cpp's own list of GPUs, which takes long; "
    "name the ones that you need, such as --cuda-arch 90"
)


@dataclass(frozen=True, kw_only=True)
class Made:
    """What is known of a llama.cpp that was compiled or fetched; see ``Built``."""

    version: str
    commit: str | None = None
    options: tuple[str, ...] = ()
    note: str | None = None
    cpu: tuple[str, ...] = ()


class MakeRequest(Protocol):
    """A llama.cpp to compile, or to fetch."""

    @property
    def backend(self) -> Backend:
        """For which it is."""

    @property
    def added(self) -> tuple[str, ...]:
        """Options of CMake that the user adds, as NAME=VALUE."""

    @property
    def origin(self) -> str:
        """Where it comes from: a kind and what identifies it."""

    def key(self) -> str:
        """Return the name of its folder."""

    def make(self, work: Path, log: Path) -> Generator[BuildProgress, None, Made]:
        """Make it in a work folder; see the classes."""


@dataclass(frozen=True, kw_only=True)
class BuildRequest:
    """Which llama.cpp to build, and for which backend."""

    source: Source
    backend: Backend
    jobs: int
    architectures: tuple[str, ...] = ()  # CUDA's, as CMake spells them
    added: tuple[str, ...] = ()  # options of CMake that the user adds, as NAME=VALUE

    @property
    def origin(self) -> str:
        """What its source is."""
        return self.source.identity()

    def key(self) -> str:
        """Return the name of this build's folder; uses the network only for a git branch."""
        facts = (
            self.source.identity(),
            self.backend.value,
            *self.architectures,
            *sorted(environment.target()),
            f"recipes {recipes.REVISION}",
        )
        if self.backend is Backend.CUDA:
            facts = (*facts, f"CUDA recipes {recipes.CUDA_REVISION}")
        facts = (*facts, *(f"-D{definition}" for definition in self.added))
        return store.key(self.source.label, self.backend.value, facts)

    def make(self, work: Path, log: Path) -> Generator[BuildProgress, None, Made]:
        """Compile the source, and test what was compiled; see ``build`` for the errors."""
        toolkit = None
        if self.backend is Backend.CUDA:
            if not self.architectures:
                yield BuildProgress(step=BuildStep.CONFIGURE, line=_NO_ARCHITECTURE, notice=True)
            toolkit = yield from cuda_toolkit.provide(self.architectures, work, log)
        tree = yield from source.prepare_tree(self.source, work / "source", log)
        compiled, note = yield from _compile_what_runs(self, tree, toolkit, work, log)
        return Made(
            version=tree.version,
            commit=tree.commit,
            options=compiled.options,
            note=note,
            cpu=tuple(sorted(environment.target())),
        )


def build(request: MakeRequest) -> Generator[BuildProgress, None, Built]:
    """Return the requested build; build it if it does not exist.

    A damaged build is built again. Close the generator to stop: no process and no incomplete build is left.

    Raises:
        SourceError: the source is not available.
        BuildError: it does not compile, or what was compiled or fetched does not work.
        DiskFullError: the disk is full.
    """
    name = request.key()
    if built := store.find_build(name):
        return built
    store.sweep()
    waiting = False
    while True:
        with store.try_lock(name) as is_locked:
            if built := store.find_build(name):
                return built
            if is_locked:
                damaged = store.examine(store.place(name))
                if isinstance(damaged, Skipped):
                    line = f"built again, because {damaged.reason}"
                    yield BuildProgress(step=BuildStep.WAIT, line=line, notice=True)
                return (yield from _build(request, name))
        if not waiting:
            yield BuildProgress(
                step=BuildStep.WAIT, line=f"{name} is being built by another process: waiting", notice=True
            )
            waiting = True
        time.sleep(_POLL_S)


def _build(request: MakeRequest, name: str) -> Generator[BuildProgress, None, Built]:
    work, log, environment = store.workplace(name), store.log_path(name), toolchain.shaping()
    log.write_bytes(b"")
    try:
        for folder in ("source", "scratch"):
            (work / folder).mkdir(exist_ok=True)
        made = yield from request.make(work, log)
        built = Built(
            path=store.place(name),
            backend=request.backend.value,
            source=request.origin,
            built_at=datetime.now(UTC).isoformat(timespec="seconds"),
            added=request.added,
            environment=environment,
            **vars(made),
        )
        return store.publish(name, work / "final", built, log)
    except OSError as error:
        if error.errno == errno.ENOSPC:
            hint = "free some disk space, or set GGUFSPEC_CACHE"
            raise DiskFullError(f"no room to build {name}", hint) from error
        raise
    finally:
        if log.exists() and not log.stat().st_size:
            log.unlink()  # no tool ran, so the log is empty


def _compile_what_runs(
    request: BuildRequest, tree: Tree, toolkit: Toolkit | None, work: Path, log: Path
) -> Generator[BuildProgress, None, tuple[Compiled, str | None]]:
    """Compile for this processor; if that crashes, name its features one by one, without AMX."""
    settings = CompileSettings(
        backend=request.backend,
        architectures=request.architectures,
        cuda=toolkit,
        compiler_cache=toolchain.compiler_cache(),
        number=tree.number,
        commit=tree.commit,
        added=request.added,
    )
    if toolkit is not None and environment.is_x86() and recipes.has_plugins(tree.root):
        settings = replace(settings, cpu=environment.cpu_features())
    compiled = yield from compile_tree(tree, settings, jobs=request.jobs, work=work, log=log)
    no_gpu = None if toolkit is None else _without_gpu(compiled, work)
    if no_gpu == _NO_GPU and not {f"{recipes.PLUGINS}=ON", f"{recipes.NO_VMM}=ON"} & {*compiled.options}:
        return compiled, "not tested: no NVIDIA driver was found"
    final, scratch = work / "final" / "bin", work / "scratch"
    signal = yield from _test(request, final, compiled.programs[0], scratch, log)
    if signal is None:
        return compiled, no_gpu
    if not recipes.uses_make(tree.root) and settings.cpu is None:
        amx = any(feature.startswith("AMX") for feature in environment.cpu_features())
        change = "without AMX" if amx else "with the processor's features named one by one"
        note = f"built for this processor, the programs crash with {signal}: building again {change}"
        yield BuildProgress(step=BuildStep.TEST, line=note, notice=True)
        settings = replace(settings, cpu=environment.cpu_features())
        compiled = yield from compile_tree(tree, settings, jobs=request.jobs, work=work, log=log)
        signal = yield from _test(request, final, compiled.programs[0], scratch, log)
        if signal is None:
            return compiled, "; ".join(filter(None, (note, no_gpu)))
    raise BuildError(
        f"the programs crash with {signal} on the embedded pair; the log is {log}", compilation.FALLBACK
    )


def _test(
    request: BuildRequest, folder: Path, plain: str, scratch: Path, log: Path
) -> Generator[BuildProgress, None, str | None]:
    yield BuildProgress(step=BuildStep.TEST, line="running the embedded pair")
    is_blind = request.backend is Backend.CUDA and toolchain.nvidia() is None
    gpu = request.backend is not Backend.CPU and not is_blind
    return smoke.check_build(folder, plain=plain, gpu=gpu, scratch=scratch, log=log)


def _without_gpu(compiled: Compiled, work: Path) -> str | None:
    """Return a note about a CUDA build that finds no GPU; None if it finds one or cannot list them."""
    if toolchain.nvidia() is None:
        return _NO_GPU
    plain = work / "final" / "bin" / compiled.programs[0]
    _, listed, _ = proc.capture([str(plain), options.DEVICES_FLAG])
    return _UNSEEN if "Available devices" in listed and not options.parse_devices(listed) else None
