"""The installs of llama.cpp on this machine and what each can do, as text or JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence

from ggufspec.llama.install import Install, Skipped, releases


def table(installs: Sequence[Install], output: str, skipped: Sequence[Skipped] = ()) -> str:
    """Return a block per install, the one that is used by default on top, and per build that is not used.

    Args:
        installs: the installs that can be used; the first one is the default.
        output: ``text`` or ``json``.
        skipped: builds that cannot be used.
    """
    if output == "json":
        rows = [*map(_row, installs), *map(_skipped_row, skipped)]
        return json.dumps(rows, indent=2) + "\n"
    blocks = [*map(_lines, installs), *map(_skipped_lines, skipped)]
    return "".join(f"{line}\n" for block in blocks for line in block)


def _abilities(install: Install) -> list[str]:
    """Return what an install's programs do; ``rpc`` where models can be spread over workers elsewhere."""
    return [*(program.value for program in install.programs), *(["rpc"] if install.has_rpc else [])]


def _row(install: Install) -> dict[str, object]:
    return {
        "found": install.origin,
        "version": install.version,
        "commit": install.commit,
        "backend": install.backend,
        "can": _abilities(install),
        "gpus": list(install.devices),
        "library": None if install.library is None else str(install.library),
        "cmake": list(install.added),
        "note": install.note,
        "path": str(install.root),
        "skipped": None,
    }


def _skipped_row(build: Skipped) -> dict[str, object]:
    built = build.built
    return {
        "found": build.origin,
        "version": built and built.version,
        "commit": built and built.commit,
        "backend": built and built.backend,
        "can": [],
        "gpus": [],
        "library": None,
        "cmake": list(built.added) if built else [],
        "note": build.remedy,
        "path": str(build.path),
        "skipped": build.reason,
    }


def _lines(install: Install) -> list[str]:
    version, backend = releases.identify(install.describe()), install.backend or "unknown backend"
    abilities = ", ".join(_abilities(install))
    details = [
        f"can: {abilities}" if abilities else "the library alone: --engine inprocess",
        *install.devices,
        _added(install.added),
    ]
    return [
        f"{version}  {backend}  ({install.origin})  {install.root}",
        *(f"    {line}" for line in (*details, install.note) if line),
    ]


def _added(definitions: Sequence[str]) -> str | None:
    """Return the options of CMake that the user added, as one line; None without any."""
    return f"cmake: {' '.join(f'-D{definition}' for definition in definitions)}" if definitions else None


def _skipped_lines(build: Skipped) -> list[str]:
    version = build.built.version if build.built else "unknown version"
    backend = build.built.backend if build.built else "unknown backend"
    return [
        f"{version}  {backend}  (not used)  {build.path}",
        f"    {build.reason}: {build.remedy}",
    ]
