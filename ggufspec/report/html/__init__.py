"""Benches as HTML: a page that needs no network, and what notebooks show."""

from __future__ import annotations

from jinja2 import Environment, PackageLoader, StrictUndefined

from ggufspec.harmless import harmless

TEMPLATES = Environment(
    loader=PackageLoader(__name__, "page"),
    autoescape=True,
    undefined=StrictUndefined,
    finalize=lambda value: harmless(value) if type(value) is str else value,  # markup is our own
    trim_blocks=True,
    lstrip_blocks=True,
)
