"""``ggufspec build``: download llama.cpp's source, compile it for this machine and test the programs."""

from __future__ import annotations

import click

from ggufspec.cli.entry.output import echo
from ggufspec.cli.options.shared import backend_option


@click.command()
@click.option(
    "--version",
    metavar="V",
    help="Version of llama-cpp-python, a tag or commit of llama.cpp, or legacy (April 2024). "
    "[default: 0.3.36, or the version of the installed llama-cpp-python]",
)
@backend_option
@click.option(
    "--source", metavar="WHERE", help="sdist, git, git+URL, or the path of a source tree or archive."
)
@click.option(
    "--cuda-arch",
    metavar="LIST",
    help="CUDA architectures to compile for, such as 86,89,90. [default: CUDAARCHS, or this machine's]",
)
@click.option(
    "--cmake",
    metavar="-DNAME=VALUE",
    multiple=True,
    help="Option of CMake to compile llama.cpp with, such as --cmake=-DGGML_BLAS=ON. Repeat it for several.",
)
@click.option(
    "-j",
    "--jobs",
    type=click.IntRange(min=1),
    help="Parallel compiler jobs. [default: as many as memory allows]",
)
@click.option("--list", "listing", is_flag=True, help="List builds and other installations.")
@click.option("--remove", is_flag=True, help="Remove the builds of --version, --backend or both.")
@click.option(
    "-o",
    "--output",
    type=click.Choice(("text", "json")),
    default="text",
    show_default=True,
    help="Format of --list.",
)
def command(
    *,
    version: str | None,
    backend: str,
    source: str | None,
    cuda_arch: str | None,
    cmake: tuple[str, ...],
    jobs: int | None,
    listing: bool,
    remove: bool,
    output: str,
) -> None:
    """Build llama.cpp for this machine, or list and remove builds.

    A build contains the programs and the library. An existing build is reused. The source is verified before
    compiling, and the programs are tested afterwards. If the CUDA compiler is missing, it is installed from
    the package index.

    \b
    ggufspec build                   the newest version that was tested
    ggufspec build --version legacy  the version with `main` and `speculative`
    ggufspec build --backend cuda --cuda-arch 90  for H100 and H200
    ggufspec build --cmake=-DGGML_NATIVE=OFF --cmake=-DGGML_AVX512=OFF
    """
    from ggufspec.cli.steps import building as steps
    from ggufspec.llama.build import building, definitions, toolchain
    from ggufspec.llama.install import Backend, store
    from ggufspec.llama.install import installs as install
    from ggufspec.llama.source import LEGACY, choose_source
    from ggufspec.report.text import installs

    try:
        added = definitions.parse_definitions(cmake)
    except ValueError as error:
        raise click.UsageError(f"--cmake: {error}") from error
    if added and (listing or remove):
        raise click.UsageError("--cmake chooses what is built; --list and --remove take no --cmake")
    if listing:
        usable, skipped = install.survey_installs()
        echo(installs.table(usable, output, skipped), nl=False)
        if not usable:
            echo("no llama.cpp was found; build it: ggufspec build", err=True)
        return
    if remove:
        version = LEGACY if version == "legacy" else version
        only_backend = None if backend == "auto" else backend
        if version is None and only_backend is None:
            raise click.UsageError("--remove needs --version, --backend or both")
        for built in store.remove(version, only_backend):
            echo(f"removed {built.path}")
        return
    if backend == "auto":
        chosen, reason = toolchain.choose_backend()
        echo(f"backend: {reason}", err=True)
    else:
        chosen = Backend(backend)
    if cuda_arch is not None and chosen is not Backend.CUDA:
        raise click.UsageError("--cuda-arch needs --backend cuda")
    request = building.BuildRequest(
        source=choose_source(source, version),
        backend=chosen,
        jobs=jobs or toolchain.default_jobs(),
        architectures=toolchain.cuda_architectures(cuda_arch) if chosen is Backend.CUDA else (),
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
