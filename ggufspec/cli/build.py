"""``ggufspec build``: download llama.cpp's source, compile it for this machine and test the programs."""

from __future__ import annotations

import click

from ggufspec import api
from ggufspec.cli.entry.command import command_of, usage_errors
from ggufspec.cli.entry.output import echo
from ggufspec.cli.entry.terminal import Terminal
from ggufspec.options import BuildOptions


@command_of(BuildOptions)
def command(asked: BuildOptions) -> None:
    """Build llama.cpp for this machine, or list and remove builds.

    A build contains the programs and the library. An existing build is reused. The source is verified before
    compiling, and the programs are tested afterwards. If the CUDA compiler is missing, it is installed from
    the package index.

    \b
    ggufspec build                   the newest version that was tested
    ggufspec build --version legacy  the version with `main` and `speculative`
    ggufspec build --backend cuda --cuda-arch 90  for H100 and H200
    ggufspec build --cmake=-DGGML_NATIVE=OFF --cmake=-DGGML_AVX512=OFF
    ggufspec build --prebuilt        the newest official archive, in seconds
    """
    if asked.listing and asked.cmake:
        raise click.UsageError("--cmake chooses what is built; --list and --remove take no --cmake")
    if asked.listing:
        from ggufspec.report.text import installs

        usable, skipped = api.list_builds()
        echo(installs.table(usable, asked.output, skipped), nl=False)
        if not usable:
            echo("no llama.cpp was found; build it: ggufspec build", err=True)
        return
    with usage_errors():
        if asked.remove:
            for built in api.remove_builds(asked):
                echo(f"removed {built.path}")
        else:
            echo(api.build(asked, sink=Terminal()).bin)
