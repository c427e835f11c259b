"""Benches as one HTML file that needs nothing else: no network, no server, no other file.

Everything that a stranger may have written (prompts, model names, metadata) is escaped: by Jinja in the page,
by its ``tojson`` inside scripts. A Content-Security-Policy lets only the two scripts and the style sheet that
are in the file run, by their hashes, and no request leave the page.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib import metadata

from ggufspec.forecast import Forecast
from ggufspec.report.html import TEMPLATES
from ggufspec.report.html.sections import beside, section
from ggufspec.report.plot import browser
from ggufspec.results import ResultSet


def html(results: ResultSet | Sequence[ResultSet], forecasts: Sequence[Forecast] = ()) -> str:
    """Return a report on one bench, or on several with the later ones compared with the first.

    Args:
        results: what was measured.
        forecasts: of the first bench's arms, drawn into its curve.
    """
    benches = [results] if isinstance(results, ResultSet) else list(results)
    style, behaviour, library = _source("style.css"), _source("behaviour.js"), browser.javascript()
    sections = [section(each, forecasts if place == 0 else ()) for place, each in enumerate(benches)]
    return TEMPLATES.get_template("report.html").render(
        sections=sections,
        compared=[beside(benches[0], other) for other in benches[1:]],
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
    """Return a file of ours as it stands in the page; it holds nothing of a stranger."""
    assert TEMPLATES.loader is not None
    return TEMPLATES.loader.get_source(TEMPLATES, name)[0]


def _hash(source: str) -> str:
    """Return how a Content-Security-Policy names one script or style sheet."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(source.encode()).digest()).decode()}'"
