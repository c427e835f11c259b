"""What a notebook shows of a value. The report room renders it; the package registers that room here.

Values of lower rooms need not import the report for their ``_repr_html_``.
"""

from __future__ import annotations

from collections.abc import Callable

_renderers: list[Callable[[object], str]] = []


def register(renderer: Callable[[object], str]) -> None:
    """Let a function render values for notebooks, in place of the one before."""
    _renderers[:] = [renderer]


def html(value: object) -> str:
    """Return the HTML of a value."""
    return _renderers[-1](value)
