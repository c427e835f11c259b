# ruff: noqa: E501  # the logs are as llama.cpp prints them
"""Fake llama.cpp programs: tiny scripts that answer like real ones, and then crash, hang or lie on demand."""

from __future__ import annotations

import functools
import shlex
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from ggufspec.domain import Program
from ggufspec.llama.install import releases
from ggufspec.llama.install.installs import NAMES, Executable, Install
from ggufspec.llama.install.options import parse_help

HELP = Path(__file__).parent.parent / "help"
VERSION = "version: 0.5.0-dev (build 10475, commit abc1234)\nbuilt with GNU 12.2.0 for Linux x86_64\n"


def plain_log(eval_ms: float = 190.0) -> str:
    """What a plain program writes that evaluates 31 tokens after the prompt in so many milliseconds."""
    return f"""\
load_tensors: offloaded 0/7 layers to GPU
common_perf_print:    sampling time =      {eval_ms / 19:5.2f} ms
common_perf_print:    samplers time =       5.00 ms /    40 tokens
common_perf_print:        load time =      50.00 ms
common_perf_print: prompt eval time =      20.00 ms /     8 tokens (    2.50 ms per token,   400.00 tokens per second)
common_perf_print:        eval time =     {eval_ms:6.2f} ms /    31 runs   (  {eval_ms / 31:6.2f} ms per token, {31000 / eval_ms:8.2f} tokens per second)
common_perf_print:       total time =     230.00 ms /    39 tokens
common_perf_print: unaccounted time =      10.00 ms /   4.3 %      (total - sampling - prompt eval - eval) / (total)
common_perf_print:    graphs reused =         30
"""


def drafting_log(decode_s: float = 0.1) -> str:
    """What a drafting program writes that decodes 33 tokens in so many seconds."""
    return f"""\
load_tensors: offloaded 0/7 layers to GPU
load_tensors: offloaded 0/3 layers to GPU


encoded    8 tokens in    0.020 seconds, speed:  400.000 t/s
decoded   33 tokens in {decode_s:8.3f} seconds, speed: {33 / decode_s:8.3f} t/s

n_draft   = 3
n_predict = 33
n_drafted = 24
n_accept  = 18
accept    = 75.000%

draft:

llama_perf_context_print:        load time =      20.00 ms
llama_perf_context_print: prompt eval time =      12.00 ms /     8 tokens (    1.50 ms per token,   666.67 tokens per second)
llama_perf_context_print:        eval time =      30.00 ms /    24 runs   (    1.25 ms per token,   800.00 tokens per second)
llama_perf_context_print:       total time =     120.00 ms /    32 tokens

target:

common_perf_print:    sampling time =       3.00 ms
common_perf_print:    samplers time =       2.00 ms /    33 tokens
common_perf_print:        load time =      50.00 ms
common_perf_print: prompt eval time =      60.00 ms /    40 tokens (    1.50 ms per token,   666.67 tokens per second)
common_perf_print:        eval time =       0.00 ms /     1 runs   (    0.00 ms per token,      inf tokens per second)
common_perf_print:       total time =     140.00 ms /    41 tokens
"""


TEXT = "once there was a small fake model that always wrote the same words"


def answer(log: str) -> str:
    """Shell commands that write the text, and this log."""
    return f"printf %s {shlex.quote(TEXT)}\ncat >&2 <<'EOF'\n{log}EOF\n"


PLAIN_LOG, DRAFTING_LOG = plain_log(), drafting_log()
PLAIN, DRAFTING = answer(PLAIN_LOG), answer(DRAFTING_LOG)
AT_ONCE = {"plain": answer(plain_log(19.0)), "drafting": answer(drafting_log(0.010))}
"""Programs whose figures a clock believes, although they answer at once."""


def by_prompt(cases: Mapping[str, str], otherwise: str) -> str:
    """Shell commands that depend on a word in the prompt; those that do not exit go on as the others do."""
    branches = "".join(f'*"{word}"*)\n{body}\n;;\n' for word, body in cases.items())
    return f"""\
for word; do
  case "$last" in --prompt) prompt=$word;; esac
  last=$word
done
case "$prompt" in
{branches}esac
{otherwise}"""


NO_DEVICE = "  (none)"
TWO_GPUS = "  CUDA0: NVIDIA A (81559 MiB, 80982 MiB free)\n  CUDA1: NVIDIA B (81559 MiB, 80982 MiB free)"


def script(path: Path, body: str) -> Path:
    """Write a script of the shell, or of what its first line names, that can be run."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(body if body.startswith("#!") else f"#!/bin/sh\n{body}")
    path.chmod(0o755)
    return path


def program(
    path: Path,
    body: str,
    *,
    help_from: str = "llama-completion",
    build: str = "0.3.36",
    version: str = VERSION,
    devices: str = NO_DEVICE,
) -> Path:
    """Write one executable: it answers --version, --help and --list-devices, and else runs ``body``."""
    return script(
        path,
        f"""case "$1" in
  --version) printf %s {shlex.quote(version)} >&2; exit 0;;
  --help) cat {shlex.quote(str(recorded_help(build, help_from)))}; exit 0;;
  --list-devices) printf 'Available devices:\\n%s\\n' {shlex.quote(devices)}; exit 0;;
esac
{body}""",
    )


def install(folder: Path, *, plain: str = PLAIN, drafting: str = DRAFTING, devices: str = NO_DEVICE) -> Path:
    """Write an install with the programs that bench needs; returns its folder."""
    program(folder / "llama-completion", plain, devices=devices)
    for name in ("llama-speculative", "llama-speculative-simple"):
        program(folder / name, drafting, help_from=name, devices=devices)
    return folder


def recorded_help(build: str, program: str) -> Path | None:
    """The recorded --help of a build's program; its file has the names of all programs that list the same."""
    return next((file for file in (HELP / build).iterdir() if program in file.stem.split("+")), None)


@functools.cache  # reading its helps takes 5 ms
def recorded_install(build: str, backend: str | None = "cpu") -> Install:
    """The install whose programs have the options of a recorded build; nothing can be started."""
    programs = {}
    for program, names in NAMES.items():
        for name in names:  # "llama serve" is not recorded: it prints what llama-server does
            file = recorded_help(build, name)
            text = file.read_text() if file else ""
            if text and not (program is Program.PLAIN and "--show-timings" in text):
                options = parse_help(text, plain=program is Program.PLAIN)
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


def numbered_install(build: str) -> Install:
    """The install of a recorded build, with its build number."""
    first, second, third = map(int, build.split("."))
    return replace(recorded_install(build), build_number=releases.BUILDS[first, second, third])
