"""Run llama.cpp's converter on one head."""

from __future__ import annotations

import os
import re
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path

from ggufspec import proc
from ggufspec.errors import ChildCrashedError, ConversionError, DiskFullError
from ggufspec.llama.progress import BuildProgress, BuildStep
from ggufspec.redaction import without_secrets

_WRITTEN = re.compile(r"^Writing: +(\d+)%")
_ERROR = re.compile(r"^(?:ERROR:[\w-]+:|\w*(?:Error|Exception): )")
_LOGGED = re.compile(r"^[A-Z]+:[\w-]+:")
_SHOWN = 300  # characters of its message
_OFFLINE = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}  # all that it reads has been fetched


@dataclass(frozen=True, kw_only=True)
class Conversion:
    """What is converted, by what.

    Attributes:
        python: the Python of the converter's environment.
        script: convert_hf_to_gguf.py.
        head: the folder of the head.
        target: the folder with the target's configuration and tokenizer.
        outtype: as the converter names types: f16, bf16, q8_0, auto.
        name: of the model, in the file's metadata.
    """

    python: Path
    script: Path
    head: Path
    target: Path
    outtype: str
    name: str


def run_converter(conversion: Conversion, out: Path, log: Path) -> Generator[BuildProgress, None, None]:
    """Convert a head; yield how far the converter has come.

    Args:
        conversion: what is converted.
        out: the file to write, in a folder that exists.
        log: the converter's output is appended here.

    Raises:
        ConversionError: the converter refuses the head, or fails.
        ChildCrashedError: a signal ended it.
        DiskFullError: the disk is full.
    """
    words = [str(conversion.python), "-sE", str(conversion.script), str(conversion.head.absolute())]
    words += ["--target-model-dir", str(conversion.target.absolute()), "--outtype", conversion.outtype]
    words += ["--model-name", conversion.name]
    words += ["--outfile", out.name]  # a template for the converter: a folder's name may contain braces
    stream = proc.stream(words, log=log, env=without_secrets(os.environ) | _OFFLINE, cwd=out.parent)
    lines = list[str]()
    while True:
        try:
            line = next(stream)
        except StopIteration as end:
            _check(end.value, lines, log)
            break
        lines.append(line)
        written = _WRITTEN.match(line)
        yield BuildProgress(
            step=BuildStep.CONVERT,
            done=int(written[1]) if written else 0,
            total=100 if written else None,
            line=line,
        )
    if not out.is_file():
        raise ConversionError("llama.cpp's converter wrote no file", f"the log is {log}")


def _check(completed: proc.Completed, lines: list[str], log: Path) -> None:
    if completed.signal is not None:
        raise ChildCrashedError(
            f"llama.cpp's converter was killed by {completed.signal}",
            "memory may have run out: close other programs and try again",
        )
    if completed.returncode == 0:
        return
    reason = next((line for line in reversed(lines) if _ERROR.match(line)), (lines or ["no message"])[-1])
    if "No space left on device" in reason:
        raise DiskFullError("no room for the converted file", "free some disk space, or choose another --out")
    raise ConversionError(
        f"llama.cpp's converter failed: {_LOGGED.sub('', reason)[:_SHOWN]}",
        f"check that head and target belong together, or try a newer --version; the log is {log}",
    )
