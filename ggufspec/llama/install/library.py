"""The shared library of a llama.cpp: where it is, and which GPUs it sees.

Run in a separate process, it lists them as the programs do with ``--list-devices``, so that a library that
crashes is only one that cannot be used. The worker of the engine ``inprocess`` imports this module, so it
takes only what Python brings.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_CPU = 0  # GGML_BACKEND_DEVICE_TYPE_CPU, ggml-backend.h


def find_library(root: Path) -> Path | None:
    """Return the shared library beside programs, or in the library folder of an installation."""
    folders = (root, root.parent / "lib", root.parent / "lib64")
    return next(filter(None, (in_folder(folder, "libllama") for folder in folders)), None)


def in_folder(folder: Path, name: str) -> Path | None:
    """Return a library; a system's packages have it with the version of its ABI alone: libllama.so.0."""
    plain = (folder / f"{name}{ending}" for ending in (".so", ".dylib"))
    return next((path for path in (*plain, *sorted(folder.glob(f"{name}.so.*"))) if path.exists()), None)


def load_plugins(folder: Path) -> None:
    """Load plug-in backends; ggml alone looks for them beside the executable, which is Python here.

    A system's packages have them in a folder that their ggml knows.
    """
    file = in_folder(folder, "libggml")
    ggml = ctypes.CDLL(str(file)) if file else None
    if ggml is not None and hasattr(ggml, "ggml_backend_load_all_from_path"):
        ggml.ggml_backend_reg_count.restype = ctypes.c_size_t
        if not ggml.ggml_backend_reg_count():  # built-in backends are registered by now
            ggml.ggml_backend_load_all_from_path(os.fsencode(folder))
        if not ggml.ggml_backend_reg_count():
            ggml.ggml_backend_load_all()


def list_devices(file: Path) -> Iterator[str]:
    """Yield a line for each device other than the processor: its name, description and memory.

    Args:
        file: libllama; the libraries of ggml are beside it.

    Raises:
        OSError: the library does not load.
        AttributeError: it lacks a function.
    """
    library = ctypes.CDLL(str(file))
    load_plugins(file.parent)

    def declare(name: str, result: Any, *arguments: Any) -> Any:
        function = library[f"ggml_backend_dev_{name}"]
        function.restype, function.argtypes = result, arguments
        return function

    count, get = declare("count", ctypes.c_size_t), declare("get", ctypes.c_void_p, ctypes.c_size_t)
    get_type = declare("type", ctypes.c_int, ctypes.c_void_p)
    get_name = declare("name", ctypes.c_char_p, ctypes.c_void_p)
    describe = declare("description", ctypes.c_char_p, ctypes.c_void_p)
    size = ctypes.POINTER(ctypes.c_size_t)
    get_memory = declare("memory", None, ctypes.c_void_p, size, size)
    for device in map(get, range(count())):
        if get_type(device) == _CPU:
            continue
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        get_memory(device, ctypes.byref(free), ctypes.byref(total))
        memory = f"{total.value >> 20} MiB, {free.value >> 20} MiB free"
        yield f"  {get_name(device).decode()}: {describe(device).decode()} ({memory})"


def main(file: Path) -> int:
    """Print the list, or why there is none; return the exit code."""
    try:
        lines = [*list_devices(file)]
    except (OSError, AttributeError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    sys.stdout.write("".join(f"{line}\n" for line in ("Available devices:", *lines)))
    return 0


if __name__ == "__main__":
    code = main(Path(sys.argv[1]))
    sys.stdout.flush()
    os._exit(code)  # skip unloading, in which libraries have crashed
