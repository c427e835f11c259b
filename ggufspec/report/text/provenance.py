"""Where figures come from: the llama.cpps of this machine; build, models, software and machine of a bench."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from ggufspec import units
from ggufspec.domain import Build, FileUse, Machine, MachineDetails
from ggufspec.llama.install import Install, Skipped, releases
from ggufspec.results import ResultSet

_FIRST = ("ggufspec", "Python")


def list_facts(results: ResultSet) -> dict[str, str]:
    """Return what is recorded about a bench, by name; what is not recorded is left out."""
    meta = results.meta
    software = meta.software or {}
    endpoints = dict.fromkeys(spec.endpoint for spec in results.runs.specs if spec.endpoint is not None)
    servers = {"servers": "; ".join(endpoint.summary for endpoint in endpoints)}
    facts = {
        **(servers if endpoints else _of_build(meta.build)),
        **{
            f"llama.cpp {name}": ", ".join(filter(None, _of_build(build).values()))
            for name, build in meta.builds.items()
        },
        "engine": meta.engine,
        "models": ", ".join(
            f"{file.name}: {file.summary}" for file in meta.files or () if file.use is FileUse.MODEL
        ),
        "prompts": f"SHA-256 {meta.suite_sha256[:12]}…" if meta.suite_sha256 else None,
        "workers, before": "; ".join(worker.summary for worker in meta.workers),
        "environment": ", ".join(f"{key}={value}" for key, value in (meta.environment or {}).items()),
        **{name: software.get(name) for name in _FIRST},
        "packages": ", ".join(
            f"{name} {version}" for name, version in software.items() if name not in _FIRST
        ),
        **_of_machine(meta.machine),
        "started": _when(meta.started_at),
        "runs": str(len(results.runs)),
        "stored in": f"{results.folder} (schema {meta.schema_version})",
    }
    return {name: text for name, text in facts.items() if text}


def page(results: ResultSet) -> str:
    """Return the facts as one line each, below a heading."""
    lines = (f"  {name}: {text}" for name, text in list_facts(results).items())
    return "\n".join(("Recorded:", *lines, ""))


def _of_build(build: Build) -> Mapping[str, str | None]:
    return {
        "llama.cpp": str(releases.identify(build)),
        "commit": build.commit,
        "backend": build.backend,
        "compiler": build.compiler,
        "build flags": " ".join(build.flags),
        "programs": build.path,
    }


def _of_machine(machine: Machine) -> Mapping[str, str | None]:
    details = machine.details or MachineDetails()
    limit, swap = details.memory_limit_bytes, details.swap_bytes
    memory = [units.format_bytes(machine.memory_bytes)]
    memory += [f"limited to {units.format_bytes(limit)}"] if limit is not None else []
    memory += [f"swap {units.format_bytes(swap)}"] if swap is not None else []
    return {
        "processor": ", ".join(
            (machine.cpu, units.counted(machine.cores, "core"), *_describe_processor(details))
        ),
        "memory": ", ".join(memory),
        "GPUs": ", ".join(machine.gpus),
        "GPU memory": ", ".join(map(units.format_bytes, machine.gpu_bytes)),
        "GPU driver": machine.gpu_driver,
        "system": machine.system,
        "distribution": details.distribution,
        "kernel": details.kernel,
        "container": details.container,
        "virtual machine": details.hypervisor,
        "machine": machine.hostname,
    }


def _describe_processor(details: MachineDetails) -> Iterator[str]:
    for name in ("vendor", "family", "model", "stepping", "microcode", "governor"):
        value = getattr(details, name)
        if value is not None:
            yield f"{name} {value}"
    if details.smt is not None:
        yield f"SMT {'on' if details.smt else 'off'}"
    if details.numa_nodes is not None:
        yield units.counted(details.numa_nodes, "NUMA node")


def _when(text: str) -> str:
    """Return an ISO time as people write it; other text is returned unchanged."""
    try:
        return f"{datetime.fromisoformat(text).astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
    except ValueError:
        return text


def table(installs: Sequence[Install], output: str, skipped: Sequence[Skipped] = ()) -> str:
    """Return a block per install, the one that is used by default on top, and per build that is not used.

    Args:
        installs: the installs that can be used; the first one is the default.
        output: ``text`` or ``json``.
        skipped: builds that cannot be used.
    """
    rows = [*map(_row, installs), *map(_skipped_row, skipped)]
    if output == "json":
        return json.dumps(rows, indent=2) + "\n"
    return "".join(f"{line}\n" for row in rows for line in _lines(row))


def _row(install: Install) -> dict[str, object]:
    # rpc: models can be spread over workers elsewhere
    can = [*(program.value for program in install.programs), *(["rpc"] if install.has_rpc else [])]
    return {
        "found": install.origin,
        "version": install.version,
        "commit": install.commit,
        "backend": install.backend,
        "can": can,
        "gpus": list(install.devices),
        "library": None if install.library is None else str(install.library),
        "cmake": list(install.added),
        "note": install.note,
        "path": str(install.root),
        "skipped": None,
    }


def _skipped_row(build: Skipped) -> dict[str, object]:
    built = build.built
    known = {name: built and getattr(built, name) for name in ("version", "commit", "backend")}
    return {
        "found": build.origin,
        **known,
        "can": [],
        "gpus": [],
        "library": None,
        "cmake": list(built.added) if built else [],
        "note": build.remedy,
        "path": str(build.path),
        "skipped": build.reason,
    }


def _lines(row: Mapping[str, Any]) -> Iterator[str]:
    """Yield the block of a row."""
    build = Build(version=row["version"], commit=row["commit"], backend=row["backend"], path=row["path"])
    place, backend = "not used" if row["skipped"] else row["found"], build.backend or "unknown backend"
    yield f"{releases.identify(build)}  {backend}  ({place})  {build.path}"
    can = f"can: {', '.join(row['can'])}" if row["can"] else "the library alone: --engine inprocess"
    cmake = " ".join(("cmake:", *(f"-D{definition}" for definition in row["cmake"]))) if row["cmake"] else ""
    reason = f"{row['skipped']}: {row['note']}"
    details = (reason,) if row["skipped"] else (can, *row["gpus"], cmake, row["note"])
    yield from (f"    {line}" for line in details if line)
