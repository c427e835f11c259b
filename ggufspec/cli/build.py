"""``ggufspec build``: download llama.cpp's source, compile it for this machine and test the programs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ggufspec.cli.entry.command import command_of
from ggufspec.cli.entry.output import echo
from ggufspec.options import BuildOptions

if TYPE_CHECKING:
    from ggufspec.llama.build import making

_COMPILING = ("source", "cmake", "cuda_arch", "jobs")


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
    version = asked.version
    from ggufspec.cli.steps import building as steps
    from ggufspec.llama.build import building, definitions, prebuilt, toolchain
    from ggufspec.llama.install import Backend, store
    from ggufspec.llama.install import installs as install
    from ggufspec.llama.source import LEGACY, choose_source
    from ggufspec.report.text import installs

    try:
        added = definitions.parse_definitions(asked.cmake)
    except ValueError as error:
        raise click.UsageError(f"--cmake: {error}") from error
    if added and (asked.listing or asked.remove):
        raise click.UsageError("--cmake chooses what is built; --list and --remove take no --cmake")
    if asked.listing:
        usable, skipped = install.survey_installs()
        echo(installs.table(usable, asked.output, skipped), nl=False)
        if not usable:
            echo("no llama.cpp was found; build it: ggufspec build", err=True)
        return
    if asked.remove:
        version = LEGACY if version == "legacy" else version
        only_backend = None if asked.backend == "auto" else asked.backend
        if version is None and only_backend is None:
            raise click.UsageError("--remove needs --version, --backend or both")
        for built in store.remove(version, only_backend):
            echo(f"removed {built.path}")
        return
    if asked.backend == "auto":
        chosen, reason = (prebuilt if asked.prebuilt else toolchain).choose_backend()
        echo(f"backend: {reason}", err=True)
    else:
        chosen = Backend(asked.backend)
    if asked.cuda_arch is not None and chosen is not Backend.CUDA:
        raise click.UsageError("--cuda-arch needs --backend cuda")
    request: making.MakeRequest
    if asked.prebuilt:
        if compiling := [name for name in _COMPILING if getattr(asked, name)]:
            option = BuildOptions.options[compiling[0]].name
            raise click.UsageError(f"{option} is for compiling, and --prebuilt compiles nothing")
        request = prebuilt.PrebuiltRequest(backend=chosen, wanted=version)
    else:
        request = building.BuildRequest(
            source=choose_source(asked.source, version),
            backend=chosen,
            jobs=asked.jobs or toolchain.default_jobs(),
            architectures=toolchain.cuda_architectures(asked.cuda_arch) if chosen is Backend.CUDA else (),
            added=added,
        )
    name = request.key()
    state = "already built" if store.find_build(name) else "built"
    finished = store.find_build(name)
    if finished is None:
        built = steps.build_with_progress(building.build(request), state)
    else:
        built = finished
        steps.print_build(state, built)
    for difference in toolchain.differences(built.environment):
        echo(f"note: {difference}", err=True)
    echo(built.bin)
