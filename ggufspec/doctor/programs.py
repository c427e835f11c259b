"""Installs of llama.cpp: their programs, and the library of the in-process engine."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ggufspec import engines, paths
from ggufspec.doctor.finding import Finding, missing, ok, remark
from ggufspec.domain import Program
from ggufspec.errors import NoInstallError
from ggufspec.llama.install import Install, Skipped, store
from ggufspec.llama.install import installs as install_survey
from ggufspec.machine import Gpu
from ggufspec.options import settings

_NAME = "llama.cpp"
_BUILD = "ggufspec build"
_DRAFTERS = (Program.TREE, Program.SIMPLE, Program.SERVER)


def installs(present: Sequence[Install], gpus: Sequence[Gpu]) -> Iterator[Finding]:
    """Report the programs of each install; the first install is the one that is used."""
    if not present:
        yield missing(_NAME, "not found", _BUILD)
    for install in present:
        abilities = [*(program.value for program in install.programs), *(["rpc"] if install.has_rpc else [])]
        abilities_text = ", ".join(abilities) or "the library alone"
        origin = "" if install.origin == store.OWN_BUILD else f", {install.origin}"
        name = f"{install.version or 'of unknown version'} {install.backend or 'unknown backend'}"
        text = f"{name}: {abilities_text}{origin} ({install.root})"
        if install is present[0] and gpus and install.gpu is False:
            yield remark(_NAME, f"{text}: it does not use the GPU", f"{_BUILD} --backend cuda")
        elif install.programs and not set(_DRAFTERS) & install.programs.keys():
            yield remark(_NAME, f"{text}: none of its programs can draft", _BUILD)
        else:
            yield ok(_NAME, text)


def skipped(builds: Sequence[Skipped]) -> Iterator[Finding]:
    """Report the builds that cannot be used, with the reason."""
    for build in builds:
        judge = missing if build.is_damaged else remark
        yield judge(_NAME, f"{build.path} is not used: {build.reason}", build.command)


def find_installs(
    named: settings.Setting | None,
) -> tuple[tuple[Install, ...], tuple[Skipped, ...], Finding | None]:
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
    from_file = named.source is settings.SettingSource.FILE
    wrong = missing(
        _NAME,
        f"{where} is {named.value}, which has no working llama.cpp program",
        "ggufspec config unset llama" if from_file else f"unset {where}",
    )
    return present, unusable, wrong


def library(present: Sequence[Install]) -> Finding:
    """Report whether the in-process engine has a library that it can use.

    Args:
        present: the installs.
    """
    name, problems = "library", list[str]()
    for candidate in present:
        try:
            engines.check_library(candidate)
        except NoInstallError as error:
            problems.append(error.message)
        else:
            return ok(name, f"--engine inprocess uses {candidate.library}")
    reason = problems[0] if problems else "no llama.cpp was found"
    return remark(name, f"no --engine inprocess: {reason}", _BUILD)
