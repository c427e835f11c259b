"""The structs of parameters as a ``llama.h`` declares them, for builds whose layout is not known.

The worker imports this module, so it takes only what Python brings.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

Declared = tuple[str, str]
"""A field's name, and its type as ``layouts.json`` names it."""

_TYPES = {
    "int32_t": "int32",
    "int": "int32",
    "uint32_t": "uint32",
    "float": "float",
    "bool": "bool",
    "size_t": "size",
}
_COMMENT = re.compile(r"//[^\n]*|/\*(?!\.).*?\*/", re.DOTALL)


def find_header(library: Path) -> Path | None:
    """Return the llama.h that was installed with a library.

    An installation has it in ``include`` beside ``lib``, a system's package with the libraries in
    ``lib/x86_64-linux-gnu``, a source tree with the build in ``build/bin``.
    """
    folder = library.parent
    places = (root / "include" / "llama.h" for root in (folder.parent, folder.parent.parent))
    return next((path for path in places if path.is_file()), None)


def read_header(file: Path) -> str:
    """Return a header without its comments."""
    return _COMMENT.sub("", file.read_text(encoding="utf-8", errors="replace"))


def declared(header: str, struct: str) -> Iterator[Declared]:
    """Yield the fields of a struct, in order.

    Raises:
        ValueError: the header has no such struct, or a field's type is unknown.
    """
    match = re.search(rf"struct {struct} \{{(.*?)\n    \}};", header, re.DOTALL)
    if match is None:
        raise ValueError(f"there is no {struct}")
    for line in match[1].split(";"):
        words = re.sub(r"\benum\b|\bconst\b|\bstruct\b", "", line).split()
        if not words:
            continue
        type_name, names = " ".join(words[:-1]), [words[-1]]
        if "," in line:  # bool a, b
            type_name, names = words[0], [name.strip(" ,") for name in words[1:]]
        for name in names:
            is_pointer = "*" in line or type_name.endswith("callback")
            is_enum = re.search(rf"\benum\b[^;]*\b{name}\b", line) is not None
            kind = "pointer" if is_pointer else "int32" if is_enum else _TYPES.get(type_name)
            if kind is None:
                raise ValueError(f"{struct} has {name} of an unknown type, {type_name}")
            yield name.lstrip("*"), kind
