"""Where a bench comes from: build, models, software and machine, as a list of facts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime

from ggufspec import units
from ggufspec.domain import Build, FileUse, Machine, MachineDetails
from ggufspec.llama.install import releases
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
        **{f"llama.cpp {name}": _summarize_build(build) for name, build in meta.builds.items()},
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


def _summarize_build(build: Build) -> str:
    """Return one of several builds in a line."""
    return ", ".join(filter(None, _of_build(build).values()))


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
