"""What people run today: a command of llama.cpp, in whatever text it stands, read as options of a bench."""

from __future__ import annotations

from ggufspec.pasting.reading import PastedCommand, choose_command, paste, read_command, read_text
from ggufspec.pasting.texts import FoundCommand, command_of_words, find_commands
