"""Installed builds of llama.cpp: which are here, what each holds and what it understands."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from ggufspec.choices import Backend
from ggufspec.llama.install.library import find_library

if TYPE_CHECKING:
    from ggufspec.llama.install.environment import flush_variables, program_environment, switches
    from ggufspec.llama.install.installs import Install
    from ggufspec.llama.install.store import Built, Skipped

__all__ = [
    "Backend",
    "Built",
    "Install",
    "Skipped",
    "find_library",
    "flush_variables",
    "program_environment",
    "switches",
]

_HOMES = {
    "environment": ("flush_variables", "program_environment", "switches"),
    "installs": ("Install",),
    "store": ("Built", "Skipped"),
}
"""Module -> the names of it that are imported on first use: a worker of ``inprocess`` needs none."""


def __getattr__(name: str) -> object:
    """Import a name from its module on first use."""
    for module, names in _HOMES.items():
        if name in names:
            return getattr(import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
