"""Compile one llama.cpp, and test it: evaluate a batch of several tokens with a quantized model.

On a machine that reports AMX but does not fully support it, a native build evaluates single tokens and
crashes with SIGSEGV at the first batch. So the test uses the embedded pair's quantized target and a real
prompt.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ggufspec import domain, paths, proc
from ggufspec.choices import Backend
from ggufspec.errors import BuildError
from ggufspec.llama.build import compilation, recipes, toolchain, toolkit as cuda_toolkit
from ggufspec.llama.build.compilation import Compiled, compile_tree
from ggufspec.llama.build.recipes import CompileSettings
from ggufspec.llama.build.toolkit import Toolkit
from ggufspec.llama.command import commands
from ggufspec.llama.install import environment, installs, options, store
from ggufspec.llama.source import sources as source
from ggufspec.llama.source.sources import Source, Tree
from ggufspec.steps import BuildProgress, BuildStep

_NO_GPU = "tested on the CPU only: no NVIDIA driver was found"
_UNSEEN = "its programs find no GPU: CUDA_VISIBLE_DEVICES may be empty, or the driver too old"
_NO_ARCHITECTURE = (
    "no GPU was found: compiling for llama.cpp's own list of GPUs, which takes long; "
    "name the ones that you need, such as --cuda-arch 90"
)

_PROMPT = domain.Prompt(id="smoke", text="The quick brown fox jumps over the lazy dog, and then")
_TIMEOUT_S = 300.0
_LOAD = "import ctypes, os, sys; ctypes.CDLL(sys.argv[1], os.RTLD_NOW | os.RTLD_GLOBAL)"


@dataclass(frozen=True, kw_only=True)
class Made:
    """What is known of a llama.cpp that was compiled or fetched; see ``Built``."""

    version: str
    commit: str | None = None
    options: tuple[str, ...] = ()
    note: str | None = None
    cpu: tuple[str, ...] = ()


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
        """Compile the source, and test what was compiled; see ``provide_build`` for the errors."""
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
    return check_build(folder, plain=plain, gpu=gpu, scratch=scratch, log=log)


def _without_gpu(compiled: Compiled, work: Path) -> str | None:
    """Return a note about a CUDA build that finds no GPU; None if it finds one or cannot list them."""
    if toolchain.nvidia() is None:
        return _NO_GPU
    plain = work / "final" / "bin" / compiled.programs[0]
    _, listed, _ = proc.capture([str(plain), options.DEVICES_FLAG])
    return _UNSEEN if "Available devices" in listed and not options.parse_devices(listed) else None


def check_build(folder: Path, *, plain: str, gpu: bool, scratch: Path, log: Path) -> str | None:
    """Run the programs of a build on the embedded pair, and load its library.

    Args:
        folder: holds programs and libraries.
        plain: the plain program's name.
        gpu: whether all layers go to a GPU.
        scratch: an empty folder to run in.
        log: the output of the programs is appended.

    Returns:
        The name of the signal that ended a program, or None if all programs succeeded.

    Raises:
        BuildError: a program fails without a signal.
    """
    signal = _run_once([str(folder / plain), "--version"], scratch, log)
    if signal:
        return signal
    install = installs.probe(folder, "own build")
    if install is None or domain.Program.PLAIN not in install.programs:
        raise BuildError(
            f"{plain} does not print a version of llama.cpp; the log is {log}", "read the end of the log"
        )
    for program in (domain.Program.PLAIN, domain.Program.TREE, domain.Program.SIMPLE):
        if program in install.programs:
            words = commands.argv(_spec(program, gpu=gpu), install, program=program)
            if signal := _run_once(words, scratch, log):
                return signal
    library = next(iter(sorted(folder.glob("libllama.*"))), None)
    return _run_once([sys.executable, "-c", _LOAD, str(library)], scratch, log) if library else None


def _spec(program: domain.Program, *, gpu: bool) -> domain.RunSpec:
    demo = paths.models_dir() / "demo"
    target, drafter = (
        domain.ModelFile(filename=name, path=demo / name) for name in ("target.gguf", "drafter.gguf")
    )
    layers: domain.Layers = "all" if gpu else 0
    drafting = program is not domain.Program.PLAIN
    return domain.RunSpec(
        pair=domain.Pair(name="demo", target=target, draft=drafter if drafting else None),
        role=domain.Role.DRAFTING if drafting else domain.Role.TARGET,
        prompt=_PROMPT,
        n_predict=8,
        context=256,
        threads=1,  # on a busy machine, more threads wait for each other for minutes
        offload=domain.Offload(target=domain.ModelRun(layers=layers), drafter=domain.ModelRun(layers=layers)),
        sampling=domain.Sampling(),
        drafting=domain.Drafting(n_max=3) if drafting else None,
    )


def _run_once(words: Sequence[str], scratch: Path, log: Path) -> str | None:
    """Run one program; return the signal that ended it, if any did."""
    output = scratch / "output.txt"
    completed = proc.run(
        words, stdout=output, env=environment.program_environment(scratch), cwd=scratch, timeout_s=_TIMEOUT_S
    )
    with log.open("ab") as file:
        file.write(f"\n$ {shlex.join(words)}\n".encode() + output.read_bytes())
        file.write(f"[exit {completed.returncode}]\n".encode())
    name = Path(words[0]).name
    if completed.timed_out:
        raise BuildError(
            f"{name} did not finish within {_TIMEOUT_S:.0f} s; the log is {log}",
            "stop other programs, then try again",
        )
    if completed.returncode > 0:
        raise BuildError(
            f"{name} fails on the embedded pair (exit {completed.returncode}); the log is {log}",
            "read the end of the log; another --backend may work",
        )
    return completed.signal
