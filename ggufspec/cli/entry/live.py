"""A text on standard error that grows while a command works, drawn only when the command asks for it.

rich's own refresh uses a thread, which would take time from what is being measured.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.live import Live
from rich.text import Text

from ggufspec.harmless import harmless
from ggufspec.report.text import tables

EVERY_S = 60.0
"""How often a line is printed where there is no terminal."""


class LiveText:
    """On a terminal, a text that is replaced in place and removed at the end; otherwise a line a minute."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Start to count the first minute."""
        self._clock = clock
        self._console = Console(stderr=True)
        is_drawn = self._console.is_terminal and not self._console.is_dumb_terminal
        self._live = (
            Live(
                console=self._console,
                auto_refresh=False,
                transient=True,
                redirect_stdout=False,  # tables ask it for its encoding
                vertical_overflow="crop",
            )
            if is_drawn
            else None
        )
        self._printed_at = clock()

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self, _: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def show(self, text: Callable[[int], str], line: Callable[[], str]) -> None:
        """Draw the text, or print the line if a minute has passed since the last one.

        Args:
            text: returns what to draw, for a terminal with so many lines.
            line: returns what to print.
        """
        if self._live is not None:
            drawn = Text(harmless(text(self._console.size.height)), no_wrap=True, overflow="ellipsis")
            drawn.highlight_regex(r"^\d.*$", "cyan")  # how far it is, apart from the table
            self._live.update(drawn, refresh=True)
        elif self._clock() - self._printed_at >= EVERY_S:
            self._printed_at = self._clock()
            self.print(line())

    def print(self, text: str) -> None:
        """Print a line that stays."""
        shown = harmless(tables.fit_terminal(text, self._console.file))
        self._console.print(shown, markup=False, highlight=False, soft_wrap=True)
