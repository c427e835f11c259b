"""Real llama.cpp under limits that no machine should have: faults have typed rows, the rest is good."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path

import pytest

from ggufspec.domain import Program
from ggufspec.llama.install.installs import Install
from tests.support import fakes, shell

STEP_KB = 4 << 10
LONG_RUN = 'set -- "$@" --predict 480 --ignore-eos'  # else a small drafter can end before the signal comes
FAULTS = {
    "@nolog": ("exec 2>/dev/full", {"summary lost"}),
    "@quota": ("ulimit -f 1", {"log too large", "summary lost"}),  # SIGXFSZ once a log has 512 bytes
    "@stopped": ("kill -STOP $$", {"timed out"}),
    "@segfault": (f"{LONG_RUN}\n(sleep 0.01; kill -SEGV $$) &", {"crashed"}),
    "@killed": (f"{LONG_RUN}\n(sleep 0.01; kill -KILL $$) &", {"out of memory"}),
}
ABOVE_START_KB = (8 << 10, 16 << 10, 24 << 10)  # the drafter alone fits into some more
OUT_OF_MEMORY = {
    "out of memory",
    "crashed",  # some allocations are not checked
    "load failed",
    "failed",  # recent builds lose the end of a log now and then, and with it the reason
}


@pytest.mark.takes(25)
def test_faults_of_real_programs_are_typed(llama: Install, tmp_path: Path) -> None:
    plain, tree = (llama.executable(program).path for program in (Program.PLAIN, Program.TREE))
    start_kb = _start_kb(plain)
    faults = {
        **FAULTS,
        **{f"@room{kb}kb": (f"ulimit -v {start_kb + kb}", OUT_OF_MEMORY) for kb in ABOVE_START_KB},
    }
    bodies = {word: body for word, (body, _) in faults.items()}
    pids = tmp_path / "llama" / "pids"
    for real in (plain, tree):
        _wrap(
            real,
            tmp_path / "llama" / real.name,
            shell.note(pids) + fakes.by_prompt(bodies, f'exec {shlex.quote(str(real))} "$@"'),
        )
    texts = ["Once upon a time", *(f"Tell me of {word} now" for word in faults), "A cat"]
    words = [word for text in texts for word in ("-p", text)]
    quick = shlex.split("-n 32 -c 512 -r 1 -t 1 --warmup 0 --timeout 6s --name chaos")
    done = shell.ggufspec("sweep", "--pair", "demo", *quick, *words, llama=tmp_path / "llama")
    assert done.returncode in {9, 10, 11, 15}, done.stderr
    assert "Traceback" not in done.stderr
    rows = shell.runs("chaos")
    rows = [row for row in rows if not (row["anchor"] or row["rerun"])]
    assert len(rows) == 3 * len(texts)
    named = {f"p{number}": text for number, text in enumerate(texts, start=1)}
    for row in rows:
        word = next((word for word in faults if word in named[row["prompt"]]), None)
        expected = {"ok"} if word is None else faults[word][1]
        assert row["status"] in expected, (word, row["role"], row["error"])
        assert (row["decode_tps"] is not None) == (word is None)
    short = [row["status"] for row in rows if "@room" in named[row["prompt"]]]
    assert "out of memory" in short
    assert not shell.alive(pids)


def _start_kb(program: Path) -> int:
    """Return the address space, in steps, in which a program can just say its version."""
    kb = STEP_KB
    while subprocess.run(
        ["sh", "-c", f'ulimit -v {kb}; exec "$0" --version', str(program)], capture_output=True
    ).returncode:
        kb += STEP_KB
        if kb > 1 << 22:
            pytest.skip("this program does not start under any limit on its address space")
    return kb


def _wrap(real: Path, wrapper: Path, body: str) -> None:
    """Write a program that answers as the real one, and runs ``body`` for everything else."""
    asks = f'--version|--help|--list-devices) exec {shlex.quote(str(real))} "$@";;'
    fakes.script(wrapper, f'case "$1" in {asks}\nesac\n{body}\n')
