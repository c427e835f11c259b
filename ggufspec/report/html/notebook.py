"""Results in notebooks: the verdict, a compact table, its basis, and the warnings.

Notebooks have a style sheet of their own, and remove styles and scripts from untrusted output. So these are
plain elements without colours, readable on light and dark pages. Untrusted names are escaped, and protected
from the notebook's typesetting of formulas.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import zip_longest
from typing import Any

from ggufspec import units
from ggufspec.analysis import Arm, BenchComparison, Board, Diagnosis, arms, review
from ggufspec.report.columns import FilledTable
from ggufspec.report.html import TEMPLATES, board
from ggufspec.report.rows.benches import ComparedItem
from ggufspec.report.text import comparison, configuration, overview, reasons
from ggufspec.report.text.figures import engine, extent, llama_cpp
from ggufspec.report.text.tuned import MEASURED, list_confirmed, verdict
from ggufspec.report.text.verdict import verdicts
from ggufspec.results import ResultSet
from ggufspec.tuning import Tuned

_MOST_ROWS = 40
_WITHOUT: Mapping[str, Any] = {"all_rows": "", "served": (), "command": "", "id": "", "warnings": {}}
"""The call that returns all rows where there are too many to show; what llama-server answered, and the
command that starts it; the id of the bench; its warnings by name, with advice."""


def notebook_html(value: object) -> str:
    """Return a value as HTML for a notebook.

    Raises:
        TypeError: there is no HTML for such a value.
    """
    match value:
        case ResultSet():
            return results_html(value)
        case Tuned():
            return tuned_html(value)
        case BenchComparison():
            return comparison_html(value)
        case Board():
            return board_html(value)
        case Diagnosis():
            return diagnosis_html(value)
    raise TypeError(f"there is no HTML for {type(value).__name__}")


def results_html(results: ResultSet) -> str:
    """Return a bench as HTML for a notebook."""
    groups = arms.group(results)
    return _page(
        results,
        groups,
        sentences=verdicts(groups) if groups else ("Nothing was measured.",),
        table=overview.ARMS.without("machine").fill(overview.list_arms(groups)),
        basis=(_basis(results, groups),),
    )


def tuned_html(tuned: Tuned) -> str:
    """Return a tuning as HTML for a notebook: a table of the measured arms, with the choice in bold."""
    measured = list_confirmed(tuned)
    groups = [row["measured"].arm for row in measured]
    outlook, spent, launch = tuned.outlook, tuned.spent, tuned.launch
    effort = (
        f"{units.counted(len(outlook.prospects), 'configuration')} forecast from "
        f"{units.counted(len(outlook.prompts), 'prompt')}; the best were measured, and confirmed by new "
        f"runs beside the target alone; {units.format_duration(spent.total_s)} in all."
    )
    return _page(
        tuned.results,
        groups,
        sentences=tuple(verdict(tuned)),
        table=replace(MEASURED, names=("models", *MEASURED.names[1:])).fill(measured),
        chosen=[row["recommended"] for row in measured],
        served=tuple(configuration.served(launch, tuned.serving)),
        command=shlex.join(launch.argv) if launch is not None and launch.failure is None else "",
        basis=(effort, *outlook.notes, _basis(tuned.results, groups)),
    )


def comparison_html(compared: BenchComparison) -> str:
    """Return a comparison of two benches as HTML for a notebook."""
    return _rendered(
        sentences=(
            *comparison.basis(compared),
            f"Before: {compared.before}. After: {compared.after}.",
        ),
        table=comparison.COMPARED.fill(ComparedItem.list(compared)),
        all_rows="ggufspec.frames.comparison(…)",
        basis=(
            *(f"{name}: {before} → {after}" for name, (before, after) in compared.differences.items()),
            *(f"in one of them only: {arm}" for arm in compared.unmatched),
        ),
        warnings={
            f"{name} ({bench})": advice
            for bench, warnings in compared.warnings.items()
            for name, advice in warnings.items()
        },
    )


def diagnosis_html(diagnosis: Diagnosis) -> str:
    """Return where the time goes in a bench as HTML for a notebook."""
    step = diagnosis.drafting or diagnosis.target
    name = "" if step is None else str(step.arm.runs.column("engine")[0])
    return _rendered(
        sentences=tuple(reasons.sentences(diagnosis, name)),
        table=reasons.PARTS.fill(reasons.list_parts(diagnosis)),
        basis=(engine(name),) if name else (),
    )


def board_html(shown: Board) -> str:
    """Return a board as HTML for a notebook."""
    return _rendered(
        sentences=tuple(board.sentences(shown)),
        table=board.CONFIGURATIONS.fill({**vars(row), "address": None} for row in shown.rows),
        all_rows="ggufspec.frames.board(…)",
        basis=tuple(
            f"{bundle.name}: {bundle.state.value}, SHA-256 {bundle.sha256}" for bundle in shown.bundles
        ),
    )


def _page(results: ResultSet, groups: Sequence[Arm], *, sentences: Sequence[str], **parts: Any) -> str:
    """Render what a bench and a tuning have in common; ``parts`` are as for ``_rendered``."""
    return _rendered(
        sentences=(*sentences, engine(results.meta.engine)),
        all_rows="ggufspec.summary(…)",
        id=results.meta.id,
        warnings=review.warnings(results, groups),
        **parts,
    )


def _rendered(
    *,
    sentences: Sequence[str],
    table: FilledTable,
    basis: Sequence[str],
    chosen: Sequence[bool] = (),
    **parts: Any,
) -> str:
    """Render the template.

    Args:
        sentences: the verdict.
        table: of which the first rows are shown.
        basis: what it rests on.
        chosen: whether each row is in bold.
        parts: further ones, instead of those of ``_WITHOUT``.
    """
    return TEMPLATES.get_template("notebook.html").render(
        {**_WITHOUT, **parts},
        sentences=sentences,
        columns=table.columns,
        rows=list(zip_longest(table.rows[:_MOST_ROWS], chosen[:_MOST_ROWS], fillvalue=False)),
        left_out=max(0, len(table.rows) - _MOST_ROWS),
        basis=basis,
    )


def _basis(results: ResultSet, groups: Sequence[Arm]) -> str:
    """Return a sentence on prompts and repeats, llama.cpp, engine and processor."""
    build, parts = results.meta.build, []
    if groups:
        parts.append(extent(groups[0]))
    version = ", ".join(filter(None, (llama_cpp(build), build.backend)))
    return "; ".join((*parts, f"{version}, engine {results.meta.engine}", results.meta.machine.cpu)) + "."
