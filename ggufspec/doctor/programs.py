"""Installed builds of llama.cpp: what each can do, and whether the in-process engine has its library."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib import metadata

from ggufspec import engines, paths
from ggufspec.doctor.finding import Finding, missing, ok, remark
from ggufspec.domain import Program
from ggufspec.errors import NoInstallError
from ggufspec.llama.install import Install, Skipped
from ggufspec.llama.install import installs as install
from ggufspec.machine import Gpu
from ggufspec.settings import Setting, SettingSource

_NAME = "llama.cpp"
_BUILD = "ggufspec build"
_DRAFTERS = (Program.TREE, Program.SIMPLE, Program.SERVER)


def installs(found: Sequence[Install], gpus: Sequence[Gpu]) -> Iterator[Finding]:
    """Say what each install can do, the one that is used first on top."""
    if not found:
        yield missing(_NAME, "not found", _BUILD)
    for each in found:
        can = ", ".join(program.value for program in each.programs)
        origin = "" if each.origin == "own build" else f", {each.origin}"
        which = f"{each.version or 'of unknown version'} {each.backend or 'unknown backend'}"
        said = f"{which}: {can}{origin} ({each.root})"
        if each is found[0] and gpus and each.gpu is False:
            yield remark(_NAME, f"{said}: it does not use the GPU", f"{_BUILD} --backend cuda")
        elif not set(_DRAFTERS) & each.programs.keys():
            yield remark(_NAME, f"{said}: none of its programs can draft", _BUILD)
        else:
            yield ok(_NAME, said)


def skipped(builds: Sequence[Skipped]) -> Iterator[Finding]:
    """Say which of our builds cannot be used, and why."""
    for build in builds:
        judge = missing if build.is_damaged else remark
        yield judge(_NAME, f"{build.path} is not used: {build.reason}", build.command)


def find(named: Setting | None) -> tuple[tuple[Install, ...], tuple[Skipped, ...], Finding | None]:
    """Return the installs, the one that is used first on top, and what cannot be used.

    The last is what is wrong with the one that is named.

    Args:
        named: the setting ``llama``.
    """
    found, unusable = install.survey_installs()
    if named is None or named.value is None:
        return found, unusable, None
    where = named.where or named.key
    first = install.probe(paths.expanded(str(named.value), where), where)
    if first is not None:
        return (first, *(each for each in found if each.root != first.root)), unusable, None
    from_file = named.source is SettingSource.FILE
    wrong = missing(
        _NAME,
        f"{where} names {named.value}, which holds no working llama.cpp program",
        "ggufspec config unset llama" if from_file else f"unset {where}",
    )
    return found, unusable, wrong


def library(found: Sequence[Install], binding: str | None) -> Finding:
    """Say whether the in-process engine has a library that belongs to the installed binding.

    Args:
        found: the installs.
        binding: the version of llama-cpp-python; None where it is not installed.
    """
    name = "library"
    if binding is None:
        said = "llama-cpp-python is not installed: no --engine inprocess"
        return remark(name, said, "pip install llama-cpp-python")
    usable = next((each for each in found if each.library is not None and _is_usable(each)), None)
    if usable is not None:
        return ok(name, f"llama-cpp-python {binding} with {usable.library}")
    others = ", ".join(each.version or "unknown version" for each in found if each.library) or "no library"
    return remark(
        name, f"llama-cpp-python {binding} needs a library of the same release; found: {others}", _BUILD
    )


def _is_usable(candidate: Install) -> bool:
    try:
        engines.check_library(candidate)
    except NoInstallError:
        return False
    return True


def binding_version() -> str | None:
    """Return the version of the installed llama-cpp-python, without importing it."""
    try:
        return metadata.version("llama-cpp-python")
    except metadata.PackageNotFoundError:
        return None
