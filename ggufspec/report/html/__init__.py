"""Benches as HTML: a page that needs no network, and the output of notebooks."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator, Sequence

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


def _split_code(text: str) -> Iterator[tuple[bool, str]]:
    """Yield the parts of a sentence, and whether each stands between backticks, which are left out."""
    parts = text.split("`")
    if len(parts) % 2 == 0:  # a backtick of a name: nothing here is code
        yield False, text
        return
    yield from ((place % 2 == 1, part) for place, part in enumerate(parts) if part)


TEMPLATES.filters["split_code"] = _split_code


def read_source(name: str) -> str:
    """Return a file of the page templates; it has no untrusted text."""
    assert TEMPLATES.loader is not None
    return TEMPLATES.loader.get_source(TEMPLATES, name)[0]


def write_policy(style: str, scripts: Sequence[str]) -> str:
    """Return the Content-Security-Policy of a page: its own style sheet and scripts by hash, no requests."""
    return (
        "default-src 'none'; base-uri 'none'; form-action 'none'; img-src data:; "
        f"style-src {_hash(style)}; script-src {' '.join(map(_hash, scripts))}"
    )


def _hash(source: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(source.encode()).digest()).decode()}'"
