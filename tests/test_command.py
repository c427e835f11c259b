"""argv in every era, from the recorded --help of real builds."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from ggufspec.domain import Offload, Program, Role, Sampling
from ggufspec.errors import GgufspecError
from ggufspec.llama import command
from ggufspec.llama.install import NAMES, Executable, Install
from ggufspec.llama.options import parse_help
from tests import values
from tests.fakes import HELP

MODEL = Path("/models/target.gguf")


def _install(build: str, backend: str | None = "cpu") -> Install:
    programs = {}
    for program, names in NAMES.items():
        for name in names:
            file = HELP / build / f"{name}.txt"
            if file.is_file() and not (program is Program.PLAIN and "--show-timings" in file.read_text()):
                options = parse_help(file.read_text(), plain=program is Program.PLAIN)
                programs[program] = Executable(path=Path(name), options=options)
                break
    return Install(
        root=Path("/opt"),
        origin="test",
        programs=programs,
        version=build,
        build_number=None,
        commit=None,
        backend=backend,
    )


def _argv(build: str, program: Program, backend: str | None = "cpu", offload: Offload | None = None) -> str:
    role, draft = (Role.TARGET, None) if program is Program.PLAIN else (Role.DRAFTING, 3)
    spec = replace(values.spec(role, draft=draft, path=MODEL), offload=offload or Offload())
    return " ".join(command.argv(spec, _install(build, backend), program=program))


COMMON = "--prompt Text of p1 --n-predict 32 --ctx-size 512 --threads 2 --threads-batch 2 --temp 0 --top-k 1 --top-p 1"
EXPECTED = {
    ("0.2.63", Program.PLAIN): f"main --model {MODEL} {COMMON} --min-p 0 --seed 1 -ngl 0 --no-display-prompt --simple-io",
}


@pytest.mark.parametrize(("build", "program"), EXPECTED, ids=lambda value: str(value))
def test_argv_of_every_era(build: str, program: Program) -> None:
    assert _argv(build, program) == EXPECTED[build, program]
