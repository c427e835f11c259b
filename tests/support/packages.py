"""llama-cpp-python as an installer leaves it in site-packages, with any library."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from pathlib import Path

from tests.support.libraries import compile_source, library_source

_PYTHON = ("__init__.py", "llama_cpp.py")

DEVICES = """
#include <stddef.h>
static int types[] = {0, 1}; /* the processor, a GPU */
#ifndef COUNT
#define COUNT 1
#endif
size_t ggml_backend_dev_count(void) { return COUNT; }
void *ggml_backend_dev_get(size_t i) { return &types[i]; }
int ggml_backend_dev_type(void *device) { return *(int *) device; }
const char *ggml_backend_dev_name(void *device) { return *(int *) device ? "CUDA0" : "CPU"; }
const char *ggml_backend_dev_description(void *device) { return "NVIDIA L4"; }
void ggml_backend_dev_memory(void *device, size_t *free, size_t *total) {
    *free = (size_t) 20 << 30;
    *total = (size_t) 24 << 30;
}
"""


def compile_library(folder: Path, *, has_gpu: bool = False) -> bytes:
    """Return a libllama that can be loaded and lists devices: the processor, and a GPU if asked for."""
    more = f"#define COUNT {2 if has_gpu else 1}\n{DEVICES}"
    return compile_source(library_source(more=more), folder).read_bytes()


def write_package(site: Path, libraries: Mapping[str, bytes], *, version: str = "0.3.36") -> Path:
    """Install llama-cpp-python into a folder; return the package's own.

    Args:
        site: the folder of packages.
        libraries: by their names in the package's ``lib``.
        version: of the distribution.
    """
    package = site / "llama_cpp"
    files = {f"llama_cpp/{name}": b"" for name in _PYTHON}
    files |= {f"llama_cpp/lib/{name}": content for name, content in libraries.items()}
    info = f"llama_cpp_python-{version}.dist-info"
    files[f"{info}/METADATA"] = (
        f"Metadata-Version: 2.1\nName: llama_cpp_python\nVersion: {version}\n".encode()
    )
    for name, content in files.items():
        (site / name).parent.mkdir(parents=True, exist_ok=True)
        (site / name).write_bytes(content)
    (site / info / "RECORD").write_text(make_record(files, info))
    return package


def make_record(files: Mapping[str, bytes], info: str) -> str:
    """Return the RECORD of these files of a package, whose metadata is in the folder ``info``."""
    rows = (f"{name},sha256={_digest(content)},{len(content)}\n" for name, content in files.items())
    return "".join((*rows, f"{info}/RECORD,,\n"))


def _digest(content: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode().rstrip("=")
