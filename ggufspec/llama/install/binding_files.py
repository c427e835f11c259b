"""The Python binding of a library: two files of llama-cpp-python that declare its structs and functions.

They come from the source that was compiled and lie beside the library, in the folder ``llama_cpp``.
"""

from __future__ import annotations

import shutil
from pathlib import Path

FOLDER = "llama_cpp"
FILES = ("llama_cpp.py", "_ctypes_extensions.py")


def find_binding(folder: Path) -> Path | None:
    """Return the folder with the binding's files in a folder of libraries or packages; None without them."""
    package = folder / FOLDER
    return package if all((package / name).is_file() for name in FILES) else None


def copy_binding(package: Path, into: Path) -> None:
    """Copy the binding's files out of llama-cpp-python's package into a folder of libraries."""
    (into / FOLDER).mkdir(exist_ok=True)
    for name in FILES:
        shutil.copyfile(package / name, into / FOLDER / name)
