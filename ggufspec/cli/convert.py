"""``ggufspec convert``: make a GGUF from a head in Hugging Face's format, with llama.cpp's own converter."""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from ggufspec.cli.entry import verbosity
from ggufspec.cli.entry.output import echo
from ggufspec.cli.options import completions
from ggufspec.cli.options.references import offline_option, token_option, yes_option

_OUTTYPES = ("auto", "bf16", "f16", "f32", "q8_0")


@click.command()
@click.argument("head", metavar="HEAD")
@click.option(
    "-m",
    "--target",
    metavar="TARGET",
    required=True,
    help="Target of the head, as it was published: user/repo, or a folder with config.json and tokenizer.",
)
@click.option(
    "--outtype",
    type=click.Choice(_OUTTYPES),
    default="auto",
    show_default=True,
    help="Type of the weights, as the converter names it; auto keeps their 16 bits.",
)
@click.option(
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    help="File to write. [default: METHOD-HEAD.gguf in the current folder]",
)
@click.option(
    "--torch",
    metavar="WHEEL",
    type=click.Path(path_type=Path),
    help="Wheel of PyTorch to install. [default: the release that llama.cpp pins, for the CPU]",
)
@click.option(
    "--llama",
    type=click.Path(path_type=Path),
    shell_complete=completions.installs,
    help="Folder of a llama.cpp installation.",
)
@click.option(
    "--version",
    metavar="V",
    help="Use the converter of this version, instead of that of the llama.cpp in use.",
)
@click.option(
    "--source", metavar="WHERE", help="Use the converter of this source: sdist, git, git+URL or a path."
)
@click.option(
    "--dry-run",
    is_flag=True,
    help="Print sizes and free disk space; download only configurations and tokenizer.",
)
@offline_option
@token_option
@yes_option
def command(
    *,
    head: str,
    target: str,
    outtype: str,
    out: Path | None,
    torch: Path | None,
    llama: Path | None,
    version: str | None,
    source: str | None,
    dry_run: bool,
    offline: bool,
    token: str | None,
    yes: bool,
) -> None:
    """Convert HEAD, an EAGLE-3, DFlash or DSpark head in safetensors, to a GGUF.

    HEAD is a Hub repository (user/repo, user/repo@revision) or a folder. The converter is that of the
    llama.cpp in use. It needs PyTorch, which is installed once with uv, into ggufspec's cache folder; a
    conversion with a known result tests it. Of TARGET, only configuration and tokenizer are downloaded. What
    is downloaded or installed already is not fetched again. On success, the path of the GGUF is printed.

    \b
    ggufspec convert AngelSlim/Qwen3-8B_eagle3 --target Qwen/Qwen3-8B
    ggufspec convert ./head --target ./target --torch torch-2.11.0+cpu-cp312-cp312-linux_x86_64.whl
    """
    from ggufspec.cli.steps import converting as steps
    from ggufspec.cli.steps import hub_access
    from ggufspec.llama import convert
    from ggufspec.llama.convert import environment
    from ggufspec.modelfiles import api, checkpoint, hub

    quiet = verbosity.current(click.get_current_context()).quiet
    access = hub.Access(token=token, offline=offline)
    if torch is not None:
        environment.check_wheel(torch)
    request = convert.ConverterRequest(
        source=api.find_source(source, version, llama), torch=torch and torch.absolute()
    )
    models = hub_access.show_transfers(api.find_models(head, target, access), quiet=True)
    architecture, method = checkpoint.read_architecture(models.head)
    checkpoint.check_target(models.target)
    out = api.check_name(out or Path(api.name_output(models.name, method, outtype)))
    is_installed = convert.find_converter(request) is not None
    if dry_run or not quiet:
        steps.print_needs(models, is_installed=is_installed, err=not dry_run)
    if dry_run:
        return
    steps.check_consent(models, is_installed=is_installed, yes=yes, quiet=quiet)
    converter = steps.show(convert.provide_converter(request, architecture), quiet=quiet)
    steps.fetch_weights(models, access, quiet=quiet)
    weights = checkpoint.read_checkpoint(models.head)
    api.check_space(out, api.most_bytes(weights, outtype))
    converting = api.convert_head(converter, weights, models.target, out, outtype=outtype, name=models.name)
    made = steps.show(converting, quiet=quiet)
    if not quiet:
        limit = "" if made.most is None else f"; draft size at most {made.most}"
        echo(f"converted: a head for {made.method}{limit}", err=True)
        words = ["ggufspec", "check", "TARGET.gguf", str(out)]
        echo(f"check it with the GGUF of its target: {shlex.join(words)}", err=True)
    echo(out)
