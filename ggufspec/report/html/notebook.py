"""Results in notebooks: the verdict, a compact table, its basis, and the warnings.

Notebooks have a style sheet of their own, and remove styles and scripts from untrusted output. So these are
plain elements without colours, readable on light and dark pages. Untrusted names are escaped, and protected
from the notebook's typesetting of formulas.
"""

from __future__ import annotations

from dataclasses import replace

from ggufspec.analysis import BenchComparison, Board, Diagnosis, arms
from ggufspec.report.html import TEMPLATES, board
from ggufspec.report.text import comparison, overview, reasons, tuned
from ggufspec.report.text.figures import engine
from ggufspec.report.text.tables import Page
from ggufspec.results import ResultSet
from ggufspec.tuning import Tuned

_MOST_ROWS = 40


def notebook_html(value: object) -> str:
    """Return a value as HTML for a notebook.

    Raises:
        TypeError: there is no HTML for such a value.
    """
    page, all_rows = _page(value)
    return TEMPLATES.get_template("notebook.html").render(page=page, most=_MOST_ROWS, all_rows=all_rows)


def _page(value: object) -> tuple[Page, str]:
    """Return what people read of a value, and the call that returns all rows of its table."""
    match value:
        case ResultSet():
            return overview.page(value, arms.group(value)), "ggufspec.summary(…)"
        case Tuned():
            page = tuned.page(value, tuned.serving_command(value), {})
            return replace(page, notes=(*page.notes, *value.outlook.notes)), "ggufspec.summary(…)"
        case BenchComparison():
            return comparison.page(value), "ggufspec.frames.comparison(…)"
        case Board():
            rows = ({"row": row, "address": None} for row in value.rows)
            bundles = (
                f"{bundle.name}: {bundle.state.value}, SHA-256 {bundle.sha256}" for bundle in value.bundles
            )
            found, table = tuple(board.sentences(value)), board.CONFIGURATIONS.fill(rows)
            return Page(found=found, table=table, notes=tuple(bundles)), "ggufspec.frames.board(…)"
        case Diagnosis(target=target, drafting=drafting):
            step = drafting or target
            name = "" if step is None else str(step.arm.runs.column("engine")[0])
            found = tuple(reasons.sentences(value, name))
            table = reasons.PARTS.fill(reasons.list_parts(value))
            return Page(found=found, engine=engine(name) if name else "", table=table), ""
    raise TypeError(f"there is no HTML for {type(value).__name__}")
