"""Benches as one HTML file that needs no network, server or other file.

Untrusted text (prompts, model names, metadata) is escaped: by Jinja in the page, by its ``tojson`` inside
scripts. A Content-Security-Policy allows only the two scripts and the style sheet in the file, by their
hashes, and no requests.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib import metadata

from ggufspec.forecast import Forecast
from ggufspec.report.html import TEMPLATES
from ggufspec.report.html.sections import pair_benches, section
from ggufspec.report.plot import browser
from ggufspec.results import ResultSet


def html(results: ResultSet | Sequence[ResultSet], forecasts: Sequence[Forecast] = ()) -> str:
    """Return a report on one bench, or on several with a comparison of each later one with the first.

    Args:
        results: one or several benches.
        forecasts: for the curve of the first bench.
    """
    benches = [results] if isinstance(results, ResultSet) else list(results)
    style, behaviour, library = _source("style.css"), _source("behaviour.js"), browser.javascript()
    sections = [section(bench, forecasts if place == 0 else ()) for place, bench in enumerate(benches)]
    return TEMPLATES.get_template("report.html").render(
        sections=sections,
        compared=[pair_benches(benches[0], other) for other in benches[1:]],
        style=style,
        library=library,
        behaviour=behaviour,
        policy=(
            "default-src 'none'; base-uri 'none'; form-action 'none'; img-src data:; "
            f"style-src {_hash(style)}; script-src {_hash(library)} {_hash(behaviour)}"
        ),
        version=metadata.version("ggufspec"),
        made_at=f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
    )


def _source(name: str) -> str:
    """Return a file of the page template; it has no untrusted text."""
    assert TEMPLATES.loader is not None
    return TEMPLATES.loader.get_source(TEMPLATES, name)[0]


def _hash(source: str) -> str:
    """Return the hash of a script or style sheet for a Content-Security-Policy."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(source.encode()).digest()).decode()}'"
