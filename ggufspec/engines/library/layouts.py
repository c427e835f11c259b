"""Find the layout of a library's parameters: the one whose fields have the values that the library sets."""

from __future__ import annotations

import ctypes
import platform
from pathlib import Path
from typing import Any

from ggufspec.domain import Failure, Status
from ggufspec.engines.library.llama_h import NEEDED, Default, Layout, Llama, layouts
from ggufspec.llama.install import device_list, find_library

DEFAULTS = ("llama_model_default_params", "llama_context_default_params")

_UNTOUCHED = 0xA5
_ROOM_BYTES = 4096  # after a struct, in case the library's is larger


def load_library(folder: Path) -> Llama:
    """Load the library in a folder, or beside the programs there; it logs to standard error.

    Raises:
        Failure: there is none, it does not load, or its parameters are unknown.
    """
    file = find_library(folder)
    if file is None:
        raise Failure(Status.LOAD_FAILED, f"{folder} has no libllama")
    opened = _open(file)
    if isinstance(opened, str):
        raise Failure(Status.LOAD_FAILED, f"{file} cannot be used: {opened}")
    library = Llama(*opened)
    device_list.load_plugins(file.parent)
    library.llama_backend_init()
    return library


def _open(file: Path) -> tuple[ctypes.CDLL, Layout] | str:
    """Return a library's functions and the layout of its parameters, or why it cannot be used."""
    try:
        functions = ctypes.CDLL(str(file))
    except OSError as error:
        return f"it does not load: {error}"
    absent = next((name for name in (*DEFAULTS, *NEEDED) if not hasattr(functions, name)), None)
    if absent is not None:
        return f"it lacks {absent}"
    layout = find_layout(functions)
    return (functions, layout) if isinstance(layout, Layout) else f"its llama.h is unknown: {layout}"


def find_layout(functions: ctypes.CDLL) -> Layout | str:
    """Return the newest layout whose defaults the library sets; or how it differs from the newest one.

    Args:
        functions: the loaded library, with both functions of ``DEFAULTS``.
    """
    differences = []
    for layout in layouts():
        difference = find_difference(functions, layout)
        if difference is None:
            return layout
        differences.append(difference)
    return differences[0]


def find_difference(functions: ctypes.CDLL, layout: Layout) -> str | None:
    """Return the first default that is not where a layout has it; None if all are."""
    for name, struct in zip(DEFAULTS, (layout.model, layout.context), strict=True):
        written = bytearray(_call(functions, name, struct))
        for field, ctype in ((item[0], item[1]) for item in struct._fields_):
            where = getattr(struct, field)
            part = slice(where.offset, where.offset + where.size)
            if written[part] != _bytes(ctype, layout.defaults[struct][field]):
                return f"{name} has a different {field}"
            written[part] = bytes([_UNTOUCHED]) * where.size
        padding, after = written[: ctypes.sizeof(struct)], written[ctypes.sizeof(struct) :]
        if padding.strip(bytes([_UNTOUCHED, 0])):  # compilers leave padding unchanged, or write zeros
            return f"{struct.__name__} has more fields in the library"
        if after.strip(bytes([_UNTOUCHED])):
            return f"{struct.__name__} is larger in the library"
    return None


def _call(functions: ctypes.CDLL, name: str, struct: type[ctypes.Structure]) -> bytes:
    """Return the struct that a function writes, with the bytes after it if they can be seen."""
    size = ctypes.sizeof(struct)
    function = functions[name]
    if platform.machine() in {"x86_64", "AMD64"}:
        # a returned struct is written to an address that the caller passes
        room = (ctypes.c_ubyte * (size + _ROOM_BYTES))(*[_UNTOUCHED] * (size + _ROOM_BYTES))
        function.argtypes, function.restype = [ctypes.c_void_p], ctypes.c_void_p
        function(ctypes.addressof(room))
        return bytes(room)

    class Roomy(ctypes.Structure):
        """The struct, and room for a larger one."""

        _fields_ = (("known", struct), ("room", ctypes.c_ubyte * _ROOM_BYTES))

    function.argtypes, function.restype = [], Roomy
    return bytes(function())[:size]


def _bytes(ctype: Any, value: Default) -> bytes:
    return bytes(ctypes.sizeof(ctype)) if value is None else bytes(ctype(value))
