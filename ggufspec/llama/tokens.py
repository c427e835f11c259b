"""A text's tokens, counted by llama.cpp's own tokenizer program."""

from __future__ import annotations

import ast
import tempfile
from pathlib import Path

from ggufspec import proc
from ggufspec.llama.install import Install, environment


def tokenize(install: Install, model: str | Path, text: str) -> list[int] | None:
    """Return the token ids of a text, the model's BOS included; None where no tokenizer program answers."""
    if install.tokenizer is None:
        return None
    program, options = str(install.tokenizer.path), install.tokenizer.options
    if "--ids" not in options:  # old ones print no help and take MODEL PROMPT --ids
        argv = [program, str(model), text, "--ids"]
    else:
        argv = [program, "-m", str(model), "-p", text, "--ids"]
        argv += ["--no-escape"] if "--no-escape" in options else []
    with tempfile.TemporaryDirectory() as scratch:
        completed, out, _ = proc.capture(argv, env=environment(Path(scratch)), cwd=Path(scratch))
    if completed.returncode != 0:
        return None
    try:
        ids = ast.literal_eval(out.strip().splitlines()[-1])
    except (ValueError, SyntaxError, IndexError):
        return None
    return ids if isinstance(ids, list) else None
