"""Tokenize text with llama.cpp's own tokenizer program."""

from __future__ import annotations

import ast
from pathlib import Path

from ggufspec import proc, temporary
from ggufspec.llama.command.commands import needs_file
from ggufspec.llama.install.environment import program_environment
from ggufspec.llama.install.installs import Executable, Install


def tokenize(install: Install, model: str | Path, text: str) -> list[int] | None:
    """Return the token ids of a text, the model's BOS included; None without a working tokenizer program.

    Tokenizer programs before June 2024 read no files, so a text must be usable as an argument.

    Raises:
        ChildCrashedError: the program cannot be started.
        OSError: the text cannot be written to a file.
    """
    if install.tokenizer is None:
        return None
    with temporary.folder() as scratch:
        argv = _argv(install.tokenizer, model, text, scratch / "text.txt")
        if argv is None:
            return None
        completed, out, _ = proc.capture(argv, env=program_environment(scratch), cwd=scratch)
    if completed.returncode != 0:
        return None
    try:
        ids = ast.literal_eval(out.strip().splitlines()[-1])
    except (ValueError, SyntaxError, IndexError):
        return None
    return ids if isinstance(ids, list) else None


def _argv(tokenizer: Executable, model: str | Path, text: str, file: Path) -> list[str] | None:
    """Return the command that tokenizes a text; the text is written to ``file`` if the program reads one."""
    program, options = str(tokenizer.path), tokenizer.options
    if "--ids" not in options:  # old ones print no help and take MODEL PROMPT --ids
        return None if needs_file(text) else [program, str(model), text, "--ids"]
    escapes = ["--no-escape"] if "--no-escape" in options else []
    if "--file" in options:
        file.write_bytes(text.encode())
        return [program, "-m", str(model), "--file", str(file), "--ids", *escapes]
    return None if needs_file(text) else [program, "-m", str(model), "-p", text, "--ids", *escapes]
