"""Write a model in another quantization with llama.cpp's own program."""

from __future__ import annotations

import tempfile
from pathlib import Path

from ggufspec import proc
from ggufspec.errors import GgufspecError, NoInstallError
from ggufspec.llama.install.environment import program_environment
from ggufspec.llama.install.installs import Install

_LONGEST_S = 3600.0


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
        scratch = Path(name)
        unfinished = scratch / out.name
        # a model that is quantized already can be quantized again: its weights are rounded twice
        argv = [
            *install.quantizer,
            "--allow-requantize",
            str(source),
            str(unfinished),
            quant,
            str(threads),
        ]
        completed, _, err = proc.capture(
            argv, env=program_environment(scratch), cwd=scratch, timeout_s=_LONGEST_S
        )
        if completed.returncode != 0 or not unfinished.is_file():
            *_, last = ["no message", *filter(None, err.splitlines())]
            raise GgufspecError(
                f"llama-quantize cannot make {quant} of {source.name}: {last}",
                "leave this quantization out of --quantize-drafter",
            )
        unfinished.replace(out)
