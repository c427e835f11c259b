"""Options of CMake that a user adds to a build: their form, and what they must not change."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from ggufspec.errors import SourceError

_FORM = re.compile(r"-D([A-Za-z_]\w*)=(.*)")
_OWN_PREFIXES = ("GGML_", "LLAMA_")
"""How llama.cpp's own options begin. One that its tree does not mention is misspelt, and without effect."""

_PLACES = re.compile(
    r"CMAKE_((RUNTIME|LIBRARY)_OUTPUT_DIRECTORY|(BUILD_WITH_)?INSTALL_RPATH\w*|MAKE_PROGRAM)"
)
"""Options for where a build lies and what makes it, which are the same for every tree."""

_WORD = re.compile(r"\w+")
_TRUE, _FALSE = {"ON", "1", "YES", "TRUE", "Y"}, {"OFF", "0", "NO", "FALSE", "N"}  # CMake's own spellings


def parse_definitions(words: Iterable[str]) -> tuple[str, ...]:
    """Return options of CMake as ``NAME=VALUE``, sorted by name.

    Args:
        words: each of the form ``-DNAME=VALUE``.

    Raises:
        ValueError: one has another form, or a name is given twice.
    """
    values: dict[str, str] = {}
    for word in words:
        match = _FORM.fullmatch(word)
        if match is None:
            raise ValueError(f"{word!r} is not of the form -DNAME=VALUE")
        name, value = match.groups()
        if name in values:
            raise ValueError(f"{name} is given twice")
        values[name] = value
    return tuple(f"{name}={values[name]}" for name in sorted(values))


def add_definitions(
    root: Path, chosen: Mapping[str, str], added: Iterable[str], needed: Mapping[str, str]
) -> dict[str, str]:
    """Return the options of a build with those that a user adds, which replace what was chosen.

    Args:
        root: the tree.
        chosen: what the build sets itself.
        added: as ``parse_definitions`` returns them.
        needed: names -> values without which the build would not be what was asked for.

    Raises:
        SourceError: one contradicts what is needed, has no effect, or is unknown to the tree.
    """
    values = dict(definition.split("=", 1) for definition in added)
    mentioned = _mentioned(root) if any(name.startswith(_OWN_PREFIXES) for name in values) else frozenset()
    for name, value in values.items():
        if name.startswith(_OWN_PREFIXES) and name not in mentioned:
            raise SourceError(
                f"this llama.cpp has no option {name}", "ggml/CMakeLists.txt of its source lists its options"
            )
        if _PLACES.fullmatch(name):
            raise SourceError(f"ggufspec sets {name} itself", "leave it out")
        if name in needed and not _equal(value, needed[name]):
            raise SourceError(
                f"-D{name}={value} contradicts what the build needs: {name}={needed[name]}",
                "leave it out; --backend and --cuda-arch choose the backend and its GPUs",
            )
    return {**chosen, **values}


def refuse_definitions(added: Iterable[str]) -> None:
    """Refuse options of CMake for a tree that is built with make.

    Raises:
        SourceError: there are some.
    """
    if words := [f"-D{definition}" for definition in added]:
        raise SourceError(
            f"this llama.cpp is built with make, which takes no options of CMake: {' '.join(words)}",
            "leave --cmake out, or choose a newer --version",
        )


def _mentioned(root: Path) -> frozenset[str]:
    files = (path for pattern in ("CMakeLists.txt", "*.cmake") for path in root.rglob(pattern))
    texts = (path.read_text(encoding="utf-8", errors="replace") for path in files if path.is_file())
    return frozenset(word for text in texts for word in _WORD.findall(text))


def _equal(value: str, needed: str) -> bool:
    upper = value.upper()
    return value == needed or (needed == "ON" and upper in _TRUE) or (needed == "OFF" and upper in _FALSE)
