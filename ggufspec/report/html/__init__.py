"""Benches as HTML: a page that needs no network, and what notebooks show."""

from __future__ import annotations

from ggufspec.report.html.notebook import notebook_html
from ggufspec.report.html.pages import html

__all__ = [
    "html",
    "notebook_html",
]
