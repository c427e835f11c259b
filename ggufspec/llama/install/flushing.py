"""Let llama.cpp's programs write their logs to the end.

A thread of its own writes a program's log, and the figures come last. Newer programs do not wait for this
thread when they end (ggml-org/llama.cpp#22142), so a busy processor may cost them. Their header says to call
``common_log_flush`` first. A small library that is loaded into the program does that when it ends: on Linux,
where a C compiler is at hand, and for programs that share the logger.
"""

from __future__ import annotations

import functools
import hashlib
import logging
import os
import platform
import re
import shutil
import tempfile
from pathlib import Path

from ggufspec import paths, proc
from ggufspec.errors import ChildCrashedError
from ggufspec.llama.install.installs import Install

_LOG = logging.getLogger("ggufspec")
_SOURCE = Path(__file__).with_name("flush_log.c")
_LOGGER = "libllama-common.so"
_SEPARATORS = re.compile(r"[\s:]")  # of LD_PRELOAD, which knows no quotes


def flush_variables(install: Install) -> dict[str, str]:
    """Return the variables with which the programs of an install write their logs to the end.

    Empty where that is not needed or not possible. A run whose log lacks its end is then repeated.
    """
    if install.library is None or not (install.library / _LOGGER).is_file():
        return {}
    library = _library(paths.cache_dir())
    if library is None:
        return {}
    users = os.environ.get("LD_PRELOAD")
    return {"LD_PRELOAD": f"{users}:{library}" if users else str(library)}


@functools.cache
def _library(folder: Path) -> Path | None:
    """Return the library, compiled once for each cache folder; None where it cannot be used."""
    digest = hashlib.sha256(_SOURCE.read_bytes()).hexdigest()[:8]
    library = folder / f"flush-log-{platform.machine()}-{digest}.so"
    if _SEPARATORS.search(str(library)):
        return None
    if not library.is_file():
        try:
            _compile(library)
        except (OSError, ChildCrashedError) as error:
            _LOG.info("logs may lack their end, and such runs are repeated: %s", error)
            return None
    return library


def _compile(library: Path) -> None:
    """Compile the library, and give it its name in one step.

    Raises:
        OSError: there is no C compiler, or no room.
        ChildCrashedError: the compiler fails.
    """
    compiler = shutil.which("cc")
    if compiler is None:
        raise FileNotFoundError("no C compiler (cc) was found")
    library.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".flush-log-", dir=library.parent) as name:
        made = Path(name) / library.name
        completed, _, said = proc.capture(
            [compiler, "-O2", "-shared", "-fPIC", "-o", str(made), str(_SOURCE), "-ldl"]
        )
        if completed.returncode != 0:
            raise ChildCrashedError(f"{compiler} cannot compile {_SOURCE.name}: {said.strip()}")
        made.replace(library)
