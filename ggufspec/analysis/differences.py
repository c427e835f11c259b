"""In what two benches differ that are compared: builds, machines, environments, models and settings."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import replace

from ggufspec.analysis.matching import settings_of
from ggufspec.domain import FileIdentity, FileUse, RunSpec
from ggufspec.llama.install import releases
from ggufspec.results import Meta, ResultSet


def find_differences(
    before: ResultSet, after: ResultSet, arms: Iterable[tuple[RunSpec, RunSpec]]
) -> dict[str, tuple[str, str]]:
    """Return in what two benches differ that are compared: builds, machines, models, settings.

    Args:
        before: what is compared with.
        after: what is judged.
        arms: the specification of each arm in both.
    """
    first, second = before.meta, after.meta
    facts: dict[str, tuple[object, object]] = {
        "llama.cpp": (str(releases.identify(first.build)), str(releases.identify(second.build))),
        "commit": (first.build.commit, second.build.commit),
        "backend": (first.build.backend, second.build.backend),
        "engine": (first.engine, second.engine),
        "machine": (first.machine.hostname, second.machine.hostname),
        "processor": (first.machine.cpu, second.machine.cpu),
        "GPUs": (", ".join(first.machine.gpus), ", ".join(second.machine.gpus)),
        "GPU driver": (first.machine.gpu_driver or "", second.machine.gpu_driver or ""),
    }
    facts |= dict(_other_details(first, second))
    facts |= _other_environment(first.environment, second.environment)
    facts |= dict(other_models(before, after))
    if replace(first.build, path="") == replace(second.build, path=""):
        programs = {FileUse.PROGRAM, FileUse.LIBRARY}  # of what calls itself the same llama.cpp
        facts |= dict(_other_files(first.files or (), second.files or (), programs))
    for old, new in arms:
        facts[f"{new.role.value} server"] = _server(old), _server(new)
        ours, theirs = settings_of(old), settings_of(new)
        facts |= {name: (ours[name], theirs[name]) for name in ours if ours[name] != theirs[name]}
    return {name: (str(a), str(b)) for name, (a, b) in facts.items() if a != b}


def _server(spec: RunSpec) -> str:
    """Return a server that ran already, in words; an empty text for models that were loaded."""
    endpoint = spec.endpoint
    if endpoint is None:
        return ""
    return " ".join(filter(None, (endpoint.software, endpoint.version, f"at {endpoint.url}")))


_DETAILS = ("microcode", "governor", "smt", "numa_nodes", "kernel", "container", "hypervisor")
"""Details of a machine that may change a speed."""


def _other_details(before: Meta, after: Meta) -> Iterator[tuple[str, tuple[object, object]]]:
    """Yield how llama.cpp was built, and details of the machine, as far as both are recorded."""
    old, new = before.build, after.build
    facts: dict[str, tuple[object, ...]] = {"compiler": (old.compiler, new.compiler)}
    if replace(old, path="") == replace(new, path=""):  # other versions have other flags
        facts["build flags"] = (_list_others(old.flags, new.flags), _list_others(new.flags, old.flags))
    details = before.machine.details, after.machine.details
    if None not in details:
        facts |= {name: tuple(getattr(first, name) for first in details) for name in _DETAILS}
    for name, (first, second) in facts.items():
        if first not in {None, ""} and second not in {None, ""}:
            yield name, (first, second)


def _list_others(flags: Sequence[str], others: Sequence[str]) -> str:
    """Return the flags that are not among others; ``none`` if they all are, nothing if none are recorded."""
    return " ".join(flag for flag in flags if flag not in others) or ("none" if flags else "")


def _other_environment(
    before: Mapping[str, str] | None, after: Mapping[str, str] | None
) -> dict[str, tuple[object, object]]:
    """Return the variables that may change a speed and differ."""
    names = sorted((before or {}).keys() | (after or {}).keys())
    return {
        name: (
            "not recorded" if before is None else before.get(name, "not set"),
            "not recorded" if after is None else after.get(name, "not set"),
        )
        for name in names
    }


def other_models(before: ResultSet, after: ResultSet) -> Iterator[tuple[str, tuple[str, str]]]:
    """Yield the model files that have the same name in both benches, and another content."""
    yield from _other_files(before.meta.files or (), after.meta.files or (), {FileUse.MODEL})


def _other_files(
    before: Sequence[FileIdentity], after: Sequence[FileIdentity], uses: Set[FileUse]
) -> Iterator[tuple[str, tuple[str, str]]]:
    for name in dict.fromkeys(file.name for file in before if file.use in uses):
        ours, theirs = (
            {file.sha256: file for file in files if file.name == name and file.use in uses}
            for files in (before, after)
        )
        if theirs and not ours.keys() & theirs.keys():
            yield name, (_described(ours.values()), _described(theirs.values()))


def _described(files: Iterable[FileIdentity]) -> str:
    return ", ".join(str(file.summary) for file in files)
