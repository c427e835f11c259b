"""Tell mkdocstrings that names imported under ``TYPE_CHECKING`` are there: ``ggufspec.lazy`` imports them."""

from __future__ import annotations

from typing import Any

import griffe


class LazyImports(griffe.Extension):
    def on_alias_instance(self, *, alias: griffe.Alias, **_: Any) -> None:
        alias.runtime = True
