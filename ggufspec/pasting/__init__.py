"""What people run today: a command of llama.cpp, in whatever text it stands, read as options of a bench."""

from __future__ import annotations

from ggufspec.pasting.reading import PastedCommand, read_command
from ggufspec.pasting.texts import FoundCommand, command_of_words, find_commands

__all__ = [
    "FoundCommand",
    "PastedCommand",
    "command_of_words",
    "find_commands",
    "read_command",
]
