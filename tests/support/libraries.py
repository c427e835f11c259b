"""Libraries called libllama in C, with the parameters of a layout, and functions that do nothing."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ggufspec.engines.library.llama_h import NEEDED, Default, StructLayout, layouts

Field = tuple[str, str, Default]  # name, type in C, default

_IN_C: Mapping[Any, str] = {
    ctypes.c_int32: "int32_t",
    ctypes.c_uint32: "uint32_t",
    ctypes.c_float: "float",
    ctypes.c_bool: "bool",
    ctypes.c_void_p: "void *",
    ctypes.c_size_t: "size_t",
}
_INCLUDES = "#include <stdbool.h>\n#include <stddef.h>\n#include <stdint.h>\n#include <stdlib.h>\n"


def fields_of(layout: StructLayout, struct: type[ctypes.Structure]) -> list[Field]:
    """Return the fields of one of a layout's structs."""
    defaults = layout.defaults[struct]
    return [(item[0], _IN_C[item[1]], defaults[item[0]]) for item in struct._fields_]


MODEL, CONTEXT = (fields_of(layouts()[0], struct) for struct in (layouts()[0].model, layouts()[0].context))
"""The fields of the newest layout."""


def library_source(
    model: Sequence[Field] = MODEL,
    context: Sequence[Field] = CONTEXT,
    functions: Sequence[str] = NEEDED,
    more: str = "",
) -> str:
    """Return a library in C."""
    empty = "".join(f"void {name}(void) {{}}\n" for name in functions)
    return _INCLUDES + _struct("llama_model", model) + _struct("llama_context", context) + empty + more


def compile_source(source: str, folder: Path, name: str = "libllama.so") -> Path:
    """Compile a library in C into a folder; return its file."""
    folder.mkdir(exist_ok=True)
    (folder / "llama.c").write_text(source)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", folder / name, folder / "llama.c"], check=True)
    return folder / name


def _struct(name: str, fields: Sequence[Field]) -> str:
    declared = "".join(f"    {c_type} {field};\n" for field, c_type, _ in fields)
    values = "".join(f"        .{field} = {_literal(default)},\n" for field, _, default in fields)
    return (
        f"struct {name}_params {{\n{declared}}};\n"
        f"struct {name}_params {name}_default_params(void) {{\n"
        f"    return (struct {name}_params) {{\n{values}    }};\n}}\n"
    )


def _literal(default: Default) -> str:
    return "0" if default is None else str(default).lower()
