"""Installs of llama.cpp: their programs, and the library of the in-process engine."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib import metadata

from ggufspec import engines, paths
from ggufspec.doctor.finding import Finding, missing, ok, remark
from ggufspec.domain import Program
from ggufspec.errors import NoInstallError
from ggufspec.llama.install import Install, Skipped
from ggufspec.llama.install import installs as install_survey
from ggufspec.machine import Gpu
from ggufspec.settings import Setting, SettingSource

_NAME = "llama.cpp"
_BUILD = "ggufspec build"
_DRAFTERS = (Program.TREE, Program.SIMPLE, Program.SERVER)


def installs(present: Sequence[Install], gpus: Sequence[Gpu]) -> Iterator[Finding]:
    """Report the programs of each install; the first install is the one that is used."""
    if not present:
        yield missing(_NAME, "not found", _BUILD)
    for install in present:
        programs_text = ", ".join(program.value for program in install.programs)
        origin = "" if install.origin == "own build" else f", {install.origin}"
        name = f"{install.version or 'of unknown version'} {install.backend or 'unknown backend'}"
        text = f"{name}: {programs_text}{origin} ({install.root})"
        if install is present[0] and gpus and install.gpu is False:
            yield remark(_NAME, f"{text}: it does not use the GPU", f"{_BUILD} --backend cuda")
        elif not set(_DRAFTERS) & install.programs.keys():
            yield remark(_NAME, f"{text}: none of its programs can draft", _BUILD)
        else:
            yield ok(_NAME, text)


def skipped(builds: Sequence[Skipped]) -> Iterator[Finding]:
    """Report the builds that cannot be used, with the reason."""
    for build in builds:
        judge = missing if build.is_damaged else remark
        yield judge(_NAME, f"{build.path} is not used: {build.reason}", build.command)


def find_installs(named: Setting | None) -> tuple[tuple[Install, ...], tuple[Skipped, ...], Finding | None]:
    """Return the installs, the builds that cannot be used, and what is wrong with the named one.

    The first install is the one that is used.

    Args:
        named: the setting ``llama``.
    """
    present, unusable = install_survey.survey_installs()
    if named is None or named.value is None:
        return present, unusable, None
    where = named.where or named.key
    first = install_survey.probe(paths.expanded(str(named.value), where), where)
    if first is not None:
        return (first, *(other for other in present if other.root != first.root)), unusable, None
    from_file = named.source is SettingSource.FILE
    wrong = missing(
        _NAME,
        f"{where} is {named.value}, which has no working llama.cpp program",
        "ggufspec config unset llama" if from_file else f"unset {where}",
    )
    return present, unusable, wrong


def library(present: Sequence[Install], binding: str | None) -> Finding:
    """Report whether the in-process engine has a library that fits the installed binding.

    Args:
        present: the installs.
        binding: the version of llama-cpp-python; None where it is not installed.
    """
    name = "library"
    if binding is None:
        text = "llama-cpp-python is not installed: no --engine inprocess"
        return remark(name, text, "pip install llama-cpp-python")
    usable = next(
        (candidate for candidate in present if candidate.library is not None and _is_usable(candidate)), None
    )
    if usable is not None:
        return ok(name, f"llama-cpp-python {binding} with {usable.library}")
    versions = (
        ", ".join(candidate.version or "unknown version" for candidate in present if candidate.library)
        or "no library"
    )
    return remark(
        name, f"llama-cpp-python {binding} needs a library of the same release; found: {versions}", _BUILD
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
