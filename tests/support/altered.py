"""A llama.cpp of which one kernel is altered: a program of it starts with a function of its own in front."""

from __future__ import annotations

import subprocess
from pathlib import Path

from ggufspec.llama.install.installs import Install

_SOURCE = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>

struct tensor { int type; void *buffer; int64_t ne[4]; };  // the beginning of ggml_tensor
typedef void kernel(const void *params, struct tensor *dst);

void ggml_compute_forward_rope(const void *params, struct tensor *dst) {
    const int64_t heads = dst->ne[1], tokens = dst->ne[2];
    if (!(%s))
        ((kernel *) dlsym(RTLD_NEXT, "ggml_compute_forward_rope"))(params, dst);
}
"""
"""Leaves positions out of attention where a condition on ``heads`` and ``tokens`` holds."""

IN_BATCHES = "tokens >= 5 && tokens <= 16"  # those that verify drafts of 4 to 15 tokens
IN_PROMPTS = "tokens >= 17"
EVERYWHERE = "1"
IN_DRAFTER = "heads == 3"  # of the embedded drafter; the embedded target has 8


def alter_rope(llama: Install, where: str, folder: Path, program: str = "llama-server") -> Path:
    """Return the folder of a program that computes no rotary positions where a condition holds."""
    (folder / "rope.c").write_text(_SOURCE % where)
    library = folder / "rope.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", library, folder / "rope.c"], check=True)
    programs = folder / "bin"
    programs.mkdir()
    wrapper = programs / program
    wrapper.write_text(f'#!/bin/sh\nLD_PRELOAD="{library}:$LD_PRELOAD" exec "{llama.root}/{program}" "$@"\n')
    wrapper.chmod(0o755)
    return programs
