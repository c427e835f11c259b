"""Installed builds of llama.cpp: which are here, what each holds and what it understands."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ggufspec import lazy
from ggufspec.choices import Backend
from ggufspec.llama.install.library import find_library

if TYPE_CHECKING:
    from ggufspec.llama.install.environment import flush_variables, program_environment, switches
    from ggufspec.llama.install.installs import Install
    from ggufspec.llama.install.store import Built, Skipped

__getattr__, __dir__ = lazy.attach(__name__)  # a worker of `inprocess` needs none of these
