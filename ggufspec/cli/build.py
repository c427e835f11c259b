"""ggufspec build: get llama.cpp's source, compile it for this machine and see that it runs."""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING

import click

from ggufspec.cli.entry.output import echo

if TYPE_CHECKING:
    from ggufspec.llama import progress
    from ggufspec.llama.install import Built

_BACKENDS = ("auto", "cpu", "cuda", "metal", "vulkan", "hip")


@click.command()
@click.option(
    "--version", metavar="V", help="A version of llama-cpp-python, a tag or commit, or legacy (April 2024)."
)
@click.option("--backend", type=click.Choice(_BACKENDS), default="auto", help="What shall compute.")
@click.option("--source", metavar="WHERE", help="sdist, git, git+URL, or a source tree or archive.")
@click.option(
    "--cuda-arch",
    metavar="LIST",
    help="GPUs to compile CUDA code for, such as 86,89,90 (default: CUDAARCHS, else this machine's).",
)
@click.option("-j", "--jobs", type=click.IntRange(min=1), help="Compilers at once (default: as many as fit).")
@click.option("--list", "listing", is_flag=True, help="List what is built and found instead.")
@click.option("--remove", is_flag=True, help="Remove the builds of --version, --backend or both instead.")
@click.option(
    "-o", "--output", type=click.Choice(("text", "json")), default="text", help="How --list prints."
)
def command(
    *,
    version: str | None,
    backend: str,
    source: str | None,
    cuda_arch: str | None,
    jobs: int | None,
    listing: bool,
    remove: bool,
    output: str,
) -> None:
    """Build llama.cpp for this machine, or list and remove what is built.

    Programs and the library for the Python binding come from one build. What is built already is not built
    again. The source is verified; the programs are tested before the build counts. Where CUDA's compiler
    is missing, it comes from the package index.

    \b
    ggufspec build                   the llama.cpp of the installed binding
    ggufspec build --version legacy  the one with `main` and `speculative`
    ggufspec build --backend cuda --cuda-arch 90  for H100 and H200, also on a machine without them
    """
    from ggufspec.llama.build import building, toolchain
    from ggufspec.llama.install import Backend, store
    from ggufspec.llama.install import installs as install
    from ggufspec.llama.source import LEGACY, choose
    from ggufspec.report.text import installs

    if listing:
        usable, skipped = install.survey()
        echo(installs.table(usable, output, skipped), nl=False)
        if not usable:
            echo("no llama.cpp was found: run `ggufspec build`", err=True)
        return
    if remove:
        version = LEGACY if version == "legacy" else version
        wanted = None if backend == "auto" else backend
        if version is None and wanted is None:
            raise click.UsageError("--remove needs --version, --backend or both")
        for built in store.remove(version, wanted):
            echo(f"removed {built.path}")
        return
    if backend == "auto":
        chosen, why = toolchain.choose_backend()
        echo(f"backend: {why}", err=True)
    else:
        chosen = Backend(backend)
    if cuda_arch is not None and chosen is not Backend.CUDA:
        raise click.UsageError("--cuda-arch needs --backend cuda")
    request = building.Request(
        source=choose(source, version),
        backend=chosen,
        jobs=jobs or toolchain.default_jobs(),
        architectures=toolchain.cuda_architectures(cuda_arch) if chosen is Backend.CUDA else (),
    )
    ready = store.find(request.key())
    done = "already built" if ready else "built"
    if ready is None or ready.files is None:
        built = _follow(building.build(request), done)
    else:
        built = ready
        _tell(done, built)
    for difference in toolchain.differences(built.environment):
        echo(f"note: {difference}", err=True)
    echo(built.bin)


def _tell(done: str, built: Built) -> None:
    echo(f"{done}: llama.cpp {built.version} ({built.backend})", err=True)


def _follow(work: Generator[progress.Progress, None, Built], done: str) -> Built:
    """Follow a build: a bar in a terminal, a few lines elsewhere."""
    from contextlib import closing

    from rich.console import Console
    from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description:9}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeRemainingColumn(elapsed_when_finished=True),
    )
    quiet = not console.is_terminal
    with closing(work), Bar(*columns, console=console, transient=True, disable=quiet) as bar:
        told: set[str] = set()
        shown, task = "", bar.add_task("", total=None)
        while True:
            try:
                at = next(work)
            except StopIteration as end:
                built: Built = end.value
                break
            quarter = f"{at.step} {4 * at.done // at.total * 25} %" if at.total else str(at.step)
            if at.notice or (quiet and quarter != shown):
                echo(at.line if at.notice else quarter, err=True)
                told.add(at.line)
            shown = quarter
            bar.update(task, description=at.step, completed=at.done, total=at.total)
    _tell(done, built)
    if built.note and built.note not in told:
        echo(f"note: {built.note}", err=True)
    return built
