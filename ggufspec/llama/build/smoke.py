"""Test a new build: evaluate a batch of several tokens with a quantized model.

On a machine that reports AMX but does not fully support it, a native build evaluates single tokens and
crashes with SIGSEGV at the first batch. So the test uses the embedded pair's quantized target and a real
prompt.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from ggufspec import domain, paths, proc
from ggufspec.errors import BuildError
from ggufspec.llama.command import commands
from ggufspec.llama.install import installs
from ggufspec.llama.install.environment import program_environment

_PROMPT = domain.Prompt(id="smoke", text="The quick brown fox jumps over the lazy dog, and then")
_TIMEOUT_S = 300.0
_LOAD = "import ctypes, os, sys; ctypes.CDLL(sys.argv[1], os.RTLD_NOW | os.RTLD_GLOBAL)"


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
    signal = _run([str(folder / plain), "--version"], scratch, log)
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
            if signal := _run(words, scratch, log):
                return signal
    library = next(iter(sorted(folder.glob("libllama.*"))), None)
    return _run([sys.executable, "-c", _LOAD, str(library)], scratch, log) if library else None


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


def _run(words: Sequence[str], scratch: Path, log: Path) -> str | None:
    """Run one program; return the signal that ended it, if any did."""
    output = scratch / "output.txt"
    completed = proc.run(
        words, stdout=output, env=program_environment(scratch), cwd=scratch, timeout_s=_TIMEOUT_S
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
