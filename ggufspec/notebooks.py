"""The HTML that notebooks show for a value.

The package registers the renderer of ``report`` here, so that values in lower rooms can have a
``_repr_html_`` without importing it.
"""

from __future__ import annotations

from collections.abc import Callable

_renderers: list[Callable[[object], str]] = []


def register(renderer: Callable[[object], str]) -> None:
    """Set the function that renders values for notebooks."""
    _renderers[:] = [renderer]


def html(value: object) -> str:
    """Return the HTML of a value."""
    return _renderers[-1](value)
