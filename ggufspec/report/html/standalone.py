"""What every page that is one file has: the sources of its scripts and styles, and the policy for them."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence

from ggufspec.report.html import TEMPLATES


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
