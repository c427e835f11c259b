"""The installs of llama.cpp that were found, and what each can do, as text or JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence

from ggufspec.llama.install import Install


def table(installs: Sequence[Install], output: str) -> str:
    """Return one block per install, the one that is taken first on top.

    Args:
        installs: what ``install.find_all`` found.
        output: ``text`` or ``json``.
    """
    if output == "json":
        return json.dumps([_row(install) for install in installs], indent=2) + "\n"
    return "".join(f"{line}\n" for install in installs for line in _lines(install))


def _row(install: Install) -> dict[str, object]:
    return {
        "found": install.origin,
        "version": install.version,
        "commit": install.commit,
        "backend": install.backend,
        "can": [program.value for program in install.programs],
        "gpus": list(install.devices),
        "library": None if install.library is None else str(install.library),
        "note": install.note,
        "path": str(install.root),
    }


def _lines(install: Install) -> list[str]:
    version, backend = install.version or "unknown version", install.backend or "unknown backend"
    details = [f"can: {', '.join(program.value for program in install.programs)}", *install.devices]
    return [
        f"{version}  {backend}  ({install.origin})  {install.root}",
        *(f"    {line}" for line in (*details, install.note) if line),
    ]
