"""``ggufspec convert``: make a GGUF from a head in Hugging Face's format, with llama.cpp's own converter."""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from ggufspec.cli.entry import verbosity
from ggufspec.cli.entry.command import command_of
from ggufspec.cli.entry.output import echo
from ggufspec.options import ConvertOptions, only

_OUTTYPES = ("auto", "bf16", "f16", "f32", "q8_0")


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
    out = asked.out
    from ggufspec.cli.steps import converting as steps
    from ggufspec.cli.steps import hub_access
    from ggufspec.llama import convert
    from ggufspec.llama.convert import environment
    from ggufspec.modelfiles import api, checkpoint, hub

    quiet = verbosity.current(click.get_current_context()).quiet
    access = hub.Access.of(asked)
    if asked.torch is not None:
        environment.check_wheel(asked.torch)
    request = convert.ConverterRequest(
        source=api.find_source(asked.source, asked.version, only(asked.llama)),
        torch=asked.torch and asked.torch.absolute(),
    )
    models = hub_access.show_transfers(api.find_models(asked.head, asked.target, access), quiet=True)
    architecture, method = checkpoint.read_architecture(models.head)
    checkpoint.check_target(models.target)
    out = api.check_name(out or Path(api.name_output(models.name, method, asked.outtype)))
    is_installed = convert.find_converter(request) is not None
    if asked.dry_run or not quiet:
        steps.print_needs(models, is_installed=is_installed, err=not asked.dry_run)
    if asked.dry_run:
        return
    steps.check_consent(models, is_installed=is_installed, yes=asked.yes, quiet=quiet)
    converter = steps.show(convert.provide_converter(request, architecture), quiet=quiet)
    steps.fetch_weights(models, access, quiet=quiet)
    weights = checkpoint.read_checkpoint(models.head)
    api.check_space(out, api.most_bytes(weights, asked.outtype))
    converting = api.convert_head(
        converter, weights, models.target, out, outtype=asked.outtype, name=models.name
    )
    made = steps.show(converting, quiet=quiet)
    if not quiet:
        limit = "" if made.most is None else f"; draft size at most {made.most}"
        echo(f"converted: a head for {made.method}{limit}", err=True)
        words = ["ggufspec", "check", "TARGET.gguf", str(out)]
        echo(f"check it with the GGUF of its target: {shlex.join(words)}", err=True)
    echo(out)
