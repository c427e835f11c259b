"""Installed builds of llama.cpp: which are here, what each holds and what it understands."""

from __future__ import annotations

from ggufspec.choices import Backend
from ggufspec.llama.install.environment import flush_variables, program_environment, switches
from ggufspec.llama.install.installs import Install, find_library
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
