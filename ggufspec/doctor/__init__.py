"""Checks what a bench needs, and names a command that fixes each problem. It changes nothing."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from ggufspec import machine, paths
from ggufspec.doctor import machines, models, programs
from ggufspec.doctor.finding import Checkup, Finding, FindingStatus, missing, ok, remark
from ggufspec.doctor.storage import prune
from ggufspec.errors import GgufspecError
from ggufspec.machine import nvml
from ggufspec.modelfiles import hub
from ggufspec.options import settings

__all__ = ["Checkup", "Finding", "FindingStatus", "examine", "prune"]

_NEEDED = {"compiler", "CMake", "Ninja"}


def examine(*, offline: bool = False, llama: Path | None = None) -> Checkup:
    """Run all checks.

    Args:
        offline: do not use the network.
        llama: folder of a llama.cpp that is used first; None for the one of the settings.
    """
    settings_finding, current = _settings()
    named = current["llama"]
    if llama is not None:
        named = settings.Setting(key="llama", value=str(llama), where="--llama")
    access = hub.Access(offline=offline or current["offline"].value is True)
    request = models.HubRequest(access)
    installs, skipped, misnamed = programs.find_installs(named)
    gpus = next((item.gpus for item in installs if item.gpus), ()) or machine.nvidia_gpus()
    threads = current["threads"].value
    built = tuple(programs.examine_building())
    findings = (
        settings_finding,
        *machines.examine_machine(threads if isinstance(threads, int) else None),
        *machines.gpus(gpus, nvml.temperature_c()),
        machines.disk("builds", paths.builds_dir(), "GGUFSPEC_CACHE"),
        machines.disk("data", paths.runs_dir(), "GGUFSPEC_DATA"),
        machines.disk("Hub cache", access.cache_dir, "HF_HOME"),
        *built,
        *([misnamed] if misnamed else ()),
        *(() if misnamed and not installs else programs.installs(installs, gpus)),
        *programs.skipped(skipped),
        programs.library(installs),
        *models.examine_models(access, request),
    )
    can_build = not any(item.name in _NEEDED and item.status is FindingStatus.MISSING for item in built)
    return Checkup(findings=findings, can_run=misnamed is None and bool(installs or can_build))


def _settings() -> tuple[Finding, Mapping[str, settings.Setting]]:
    try:
        current = settings.read_settings()
    except GgufspecError as error:
        return missing("settings", error.message, error.hint or "ggufspec config path"), settings.defaults()
    changed = [f"{key} = {item.value}" for key, item in current.items() if item.where]
    for name, guess in settings.strange_variables().items():
        advice = f"; did you mean {guess}?" if guess else ""
        return remark("settings", f"ggufspec does not know {name}{advice}", f"unset {name}"), current
    return ok("settings", ", ".join(changed) or "all defaults"), current
