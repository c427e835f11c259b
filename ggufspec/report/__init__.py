"""Results for readers: pandas tables, text, charts, and HTML pages."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ggufspec import lazy

if TYPE_CHECKING:
    from ggufspec.report.frames import runs, summary

__getattr__, __dir__ = lazy.attach(__name__)  # pandas is slow to import
