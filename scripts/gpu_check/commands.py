"""Commands of ggufspec as users give them: what they print is kept."""

from __future__ import annotations

import subprocess
import sys

from gpu_check.benches import Bench
from gpu_check.steps import Section

_KEPT = 6000  # characters of what a command prints


def run(bench: Bench, words: tuple[str, ...], seconds: float) -> Section:
    """Run a command in so many seconds at most; a status other than 0 is a fault."""
    files = {path.stem: str(path) for path in bench.models.folder.glob("*.gguf")}
    named = [word[1:-1] if word.startswith("{") else None for word in words]
    given = [word if name is None else files[name] for word, name in zip(words, named, strict=True)]
    llama = [] if words[0] == "plan" else ["--llama", str(bench.llama)]
    argv = [sys.executable, "-m", "ggufspec", *given, *llama]
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=seconds, check=False)
    except subprocess.TimeoutExpired:
        return Section(fault=f"it had not ended after {seconds:.0f} s")
    typed = " ".join(name or word for word, name in zip(words, named, strict=True))
    printed = f"$ ggufspec {typed}\n{done.stdout.strip()}\n{done.stderr.strip()}".strip()
    fault = f"status {done.returncode}" if done.returncode else ""
    return Section(notes=[f"```text\n{printed[-_KEPT:]}\n```"], fault=fault)
