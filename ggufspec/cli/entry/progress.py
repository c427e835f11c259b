"""A bar over a loop whose length is known, on a terminal; elsewhere nothing is said."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from ggufspec.harmless import one_line

Item = TypeVar("Item")


def following(items: Sequence[Item], about: Callable[[Item], str]) -> Iterator[Item]:
    """Yield items under a bar with the time left; what is printed meanwhile may go to standard error alone.

    Args:
        items: what is gone through.
        about: what is said while an item is worked on.
    """
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("", total=len(items))
        for item in items:
            bar.update(task, description=escape(one_line(about(item))))
            yield item
            bar.advance(task)
