"""Tokenize a text, and quantize a model, with llama.cpp's own programs."""

from __future__ import annotations

import ast
import tempfile
from pathlib import Path

from ggufspec import temporary
from ggufspec.errors import GgufspecError, NoInstallError
from ggufspec.llama.command.commands import needs_file
from ggufspec.llama.install.environment import capture_program
from ggufspec.llama.install.installs import Executable, Install

_QUANTIZING_S = 3600.0  # at most


def tokenize(install: Install, model: str | Path, text: str) -> list[int] | None:
    """Return the token ids of a text, the model's BOS included; None without a working tokenizer program.

    Tokenizer programs before June 2024 read no files, so a text must be usable as an argument.

    Raises:
        ChildCrashedError: the program cannot be started.
        OSError: the text cannot be written to a file.
    """
    if install.tokenizer is None:
        return None
    with temporary.folder() as folder:
        argv = _tokenizer_argv(install.tokenizer, model, text, folder / "text.txt")
        if argv is None:
            return None
        completed, out, _ = capture_program(argv)
    if completed.returncode != 0:
        return None
    try:
        ids = ast.literal_eval(out.strip().splitlines()[-1])
    except (ValueError, SyntaxError, IndexError):
        return None
    return ids if isinstance(ids, list) else None


def _tokenizer_argv(tokenizer: Executable, model: str | Path, text: str, file: Path) -> list[str] | None:
    """Return the command that tokenizes a text; the text is written to ``file`` if the program reads one."""
    program, options = str(tokenizer.path), tokenizer.options
    if "--ids" not in options:  # old ones print no help and take MODEL PROMPT --ids
        return None if needs_file(text) else [program, str(model), text, "--ids"]
    escapes = ["--no-escape"] if "--no-escape" in options else []
    if "--file" in options:
        file.write_bytes(text.encode())
        return [program, "-m", str(model), "--file", str(file), "--ids", *escapes]
    return None if needs_file(text) else [program, "-m", str(model), "-p", text, "--ids", *escapes]


def quantize(install: Install, source: Path, quant: str, out: Path, *, threads: int) -> None:
    """Write a model in another quantization; the file is complete once it is there.

    Args:
        install: the llama.cpp whose program is used.
        source: the model; of one in several files, the first.
        quant: the quantization, such as ``Q4_0``. Tensors that it does not suit get another one.
        out: the new file.
        threads: of the processor.

    Raises:
        NoInstallError: the install lacks the program.
        GgufspecError: the program fails; the message has its last line.
        OSError: the folder of the new file cannot be written.
    """
    if install.quantizer is None:
        raise NoInstallError(
            f"the llama.cpp in {install.root} has no llama-quantize",
            "`ggufspec build` makes a complete llama.cpp",
        )
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".", dir=out.parent) as name:
        unfinished = Path(name) / out.name
        # a model that is quantized already can be quantized again: its weights are rounded twice
        words = ("--allow-requantize", str(source), str(unfinished), quant, str(threads))
        completed, _, err = capture_program([*install.quantizer, *words], timeout_s=_QUANTIZING_S)
        if completed.returncode != 0 or not unfinished.is_file():
            *_, last = ["no message", *filter(None, err.splitlines())]
            raise GgufspecError(
                f"llama-quantize cannot make {quant} of {source.name}: {last}",
                "leave this quantization out of --quantize-drafter",
            )
        unfinished.replace(out)
