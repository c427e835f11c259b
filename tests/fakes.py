# ruff: noqa: E501  # the logs are as llama.cpp prints them
"""Fake llama.cpp programs: tiny scripts that answer like real ones, and then crash, hang or lie on demand."""

from __future__ import annotations

import shlex
from pathlib import Path

HELP = Path(__file__).parent / "help"
VERSION = "version: 0.5.0-dev (build 10475, commit abc1234)\nbuilt with GNU 12.2.0 for Linux x86_64\n"

PLAIN_LOG = """\
load_tensors: offloaded 0/7 layers to GPU
common_perf_print:    sampling time =      10.00 ms
common_perf_print:    samplers time =       5.00 ms /    40 tokens
common_perf_print:        load time =      50.00 ms
common_perf_print: prompt eval time =      20.00 ms /     8 tokens (    2.50 ms per token,   400.00 tokens per second)
common_perf_print:        eval time =     190.00 ms /    31 runs   (    6.13 ms per token,   163.16 tokens per second)
common_perf_print:       total time =     230.00 ms /    39 tokens
common_perf_print: unaccounted time =      10.00 ms /   4.3 %      (total - sampling - prompt eval - eval) / (total)
common_perf_print:    graphs reused =         30
"""

DRAFTING_LOG = """\
load_tensors: offloaded 0/7 layers to GPU
load_tensors: offloaded 0/3 layers to GPU


encoded    8 tokens in    0.020 seconds, speed:  400.000 t/s
decoded   33 tokens in    0.100 seconds, speed:  330.000 t/s

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

PLAIN = f"printf %s {shlex.quote(TEXT)}\ncat >&2 <<'EOF'\n{PLAIN_LOG}EOF\n"
DRAFTING = f"printf %s {shlex.quote(TEXT)}\ncat >&2 <<'EOF'\n{DRAFTING_LOG}EOF\n"


def program(path: Path, body: str, *, help_from: str = "llama-completion", version: str = VERSION) -> Path:
    """Write one executable: it answers --version, --help and --list-devices, and else runs ``body``."""
    help_text = HELP / "0.3.36" / f"{help_from}.txt"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        f"""#!/bin/sh
case "$1" in
  --version) printf %s {shlex.quote(version)} >&2; exit 0;;
  --help) cat {shlex.quote(str(help_text))}; exit 0;;
  --list-devices) printf 'Available devices:\\n  (none)\\n'; exit 0;;
esac
{body}"""
    )
    path.chmod(0o755)
    return path


def install(folder: Path, *, plain: str = PLAIN, drafting: str = DRAFTING) -> Path:
    """Write an install with the programs that bench needs; returns its folder."""
    program(folder / "llama-completion", plain)
    program(folder / "llama-speculative", drafting, help_from="llama-speculative")
    program(folder / "llama-speculative-simple", drafting, help_from="llama-speculative-simple")
    return folder
