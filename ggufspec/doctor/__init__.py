"""Checks what a bench needs, and names the command that fixes each problem; nothing is changed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from ggufspec import machine, paths, settings
from ggufspec.doctor import building, machines, models, programs
from ggufspec.doctor.finding import Checkup, Finding, FindingStatus, missing, ok, remark
from ggufspec.errors import GgufspecError
from ggufspec.machine import nvml
from ggufspec.modelfiles import hub
from ggufspec.settings import Setting

__all__ = ["Checkup", "Finding", "FindingStatus", "examine"]

_NEEDED = {"compiler", "CMake", "Ninja"}


def examine(*, offline: bool = False) -> Checkup:
    """Look at everything.

    Args:
        offline: ask nothing of the network.
    """
    about_settings, known = _settings()
    access = hub.Access(offline=offline or known["offline"].value is True)
    question = models.Question(access)
    installs, skipped, wrong = programs.find(known["llama"])
    gpus = next((each.gpus for each in installs if each.gpus), ()) or machine.nvidia_smi()
    threads = known["threads"].value
    built = tuple(building.now())
    found = (
        about_settings,
        *machines.now(threads if isinstance(threads, int) else None),
        *machines.gpus(gpus, nvml.temperature_c()),
        *_disks(access),
        *built,
        *([wrong] if wrong else ()),
        *(() if wrong and not installs else programs.installs(installs, gpus)),
        *programs.skipped(skipped),
        programs.library(installs, programs.binding_version()),
        *models.now(access, question),
    )
    can_build = not any(each.name in _NEEDED and each.status is FindingStatus.MISSING for each in built)
    return Checkup(findings=found, can_run=wrong is None and bool(installs or can_build))


def _settings() -> tuple[Finding, Mapping[str, Setting]]:
    try:
        known = settings.read_settings()
    except GgufspecError as error:
        return missing("settings", error.message, error.hint or "ggufspec config path"), settings.defaults()
    given = [f"{key} = {each.value}" for key, each in known.items() if each.where]
    for name, meant in settings.strange_variables().items():
        guess = f"; did you mean {meant}?" if meant else ""
        return remark("settings", f"ggufspec does not know {name}{guess}", f"unset {name}"), known
    return ok("settings", ", ".join(given) or "all defaults"), known


def _disks(access: hub.Access) -> Iterator[Finding]:
    places: tuple[tuple[str, Path, str], ...] = (
        ("builds", paths.builds_dir(), "GGUFSPEC_CACHE"),
        ("data", paths.runs_dir(), "GGUFSPEC_DATA"),
        ("Hub cache", access.cache_dir, "HF_HOME"),
    )
    for name, folder, variable in places:
        yield machines.disk(name, folder, variable)
