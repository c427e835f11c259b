"""Modules whose names are imported on first use, because importing all of them takes too long."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache
from importlib import import_module


def attach(module: str) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """Return ``__getattr__`` and ``__dir__`` of a module that has its imports under ``TYPE_CHECKING``.

    Type checkers, editors and the reference read these imports. So does this function, so that the names are
    listed nowhere else.
    """

    @cache
    def homes() -> dict[str, str]:
        file = sys.modules[module].__file__
        assert file is not None
        # Read line by line: to import ast or pathlib, or to compile patterns, takes longer than all of this.
        with open(file, encoding="utf-8") as source:  # noqa: PTH123
            block = source.read().partition("\nif TYPE_CHECKING:")[2]
        found: dict[str, str] = {}
        home, is_open = "", False  # whether names in parentheses go on
        for line in block.splitlines()[1:]:
            if line and not line.startswith(" "):
                break
            words = line.partition("#")[0].strip()
            if words.startswith("from "):
                home, _, words = words.removeprefix("from ").partition(" import ")
            elif not is_open:
                continue
            is_open = (is_open or words.startswith("(")) and ")" not in words
            names = [part.split()[0] for part in words.strip("()").split(",") if part.strip()]
            found |= dict.fromkeys(dir(import_module(home)) if names == ["*"] else names, home)
        return found

    def load(name: str) -> object:
        if name == "__all__":
            return names()
        if name not in homes():
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        return getattr(__import__(homes()[name], fromlist=[name]), name)  # of a package, a module, too

    def names() -> list[str]:
        return sorted(homes())

    return load, names
