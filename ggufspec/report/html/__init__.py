"""Benches as HTML: a page that needs no network, and the output of notebooks."""

from __future__ import annotations

from jinja2 import Environment, PackageLoader, StrictUndefined

from ggufspec.harmless import harmless

TEMPLATES = Environment(
    loader=PackageLoader(__name__, "page"),
    autoescape=True,
    undefined=StrictUndefined,
    finalize=lambda value: harmless(value) if type(value) is str else value,  # only templates contain markup
    trim_blocks=True,
    lstrip_blocks=True,
)
