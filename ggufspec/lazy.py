"""Modules whose names are imported on first use, because importing all of them takes too long."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable
from functools import cache
from importlib import import_module
from itertools import chain


def attach(module: str) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """Return ``__getattr__`` and ``__dir__`` of a module that has its imports under ``TYPE_CHECKING``.

    Type checkers, editors and the reference read these imports. So does this function, so that the names are
    listed nowhere else.
    """

    @cache
    def homes() -> dict[str, str]:
        file = sys.modules[module].__file__
        assert file is not None
        with open(file, encoding="utf-8") as source:  # noqa: PTH123  # importing pathlib takes longer
            tree = ast.parse(source.read())
        found: dict[str, str] = {}
        blocks = (block.body for block in tree.body if isinstance(block, ast.If))  # that of TYPE_CHECKING
        for node in chain.from_iterable(blocks):
            if isinstance(node, ast.ImportFrom) and node.module is not None:
                names = [alias.name for alias in node.names]
                all_names = dir(import_module(node.module)) if names == ["*"] else names
                found |= dict.fromkeys(all_names, node.module)
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
