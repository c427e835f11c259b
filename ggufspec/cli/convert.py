"""``ggufspec convert``: make a GGUF from a head in Hugging Face's format, with llama.cpp's own converter."""

from __future__ import annotations

import shlex

from ggufspec import api
from ggufspec.cli.entry.command import command_of
from ggufspec.cli.entry.output import echo
from ggufspec.cli.entry.terminal import Terminal
from ggufspec.options import ConvertOptions


@command_of(ConvertOptions)
def command(asked: ConvertOptions) -> None:
    """Convert HEAD, an EAGLE-3, DFlash or DSpark head in safetensors, to a GGUF.

    HEAD is a Hub repository (user/repo, user/repo@revision) or a folder. The converter is that of the
    llama.cpp in use. It needs PyTorch, which is installed once with uv, into ggufspec's cache folder; a
    conversion with a known result tests it. Of TARGET, only configuration and tokenizer are downloaded. What
    is downloaded or installed already is not fetched again. On success, the path of the GGUF is printed.

    \b
    ggufspec convert AngelSlim/Qwen3-8B_eagle3 --target Qwen/Qwen3-8B
    ggufspec convert ./head --target ./target --torch torch-2.11.0+cpu-cp312-cp312-linux_x86_64.whl
    """
    made = api.convert(asked, sink=Terminal())
    if made.head is None:
        from ggufspec.cli.entry import printing

        printing.print_conversion(made, err=False)
        return
    limit = "" if made.head.most is None else f"; draft size at most {made.head.most}"
    echo(f"converted: a head for {made.head.method}{limit}", err=True)
    words = ["ggufspec", "check", "TARGET.gguf", str(made.path)]
    echo(f"check it with the GGUF of its target: {shlex.join(words)}", err=True)
    echo(made.path)
