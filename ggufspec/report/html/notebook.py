"""Results in notebooks: the verdict, a compact table, its basis, and the warnings.

Notebooks have a style sheet of their own, and remove styles and scripts from untrusted output. So these are
plain elements without colours, readable on light and dark pages. Untrusted names are escaped, and protected
from the notebook's typesetting of formulas.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ggufspec import units
from ggufspec.analysis import Arm, BenchComparison, Board, Diagnosis, arms, review
from ggufspec.domain import Launch, Role
from ggufspec.report.html import TEMPLATES, board
from ggufspec.report.text import comparison, configuration, overview, reasons
from ggufspec.report.text.figures import engine, extent, llama_cpp, three_digits
from ggufspec.report.text.tuned import expected, verdict
from ggufspec.report.text.verdict import verdicts
from ggufspec.results import ResultSet
from ggufspec.tuning import Tuned

_MOST_ROWS = 40
_HEADS = {"": "measured"}
_TEXTS = {
    *("", "model", "verdict", "status", "step", "spent on"),
    *("pair", "machine", "llama.cpp", "engine", "bundle is", "report"),
}
"""Left-aligned columns."""


@dataclass(frozen=True, kw_only=True)
class _Row:
    cells: Mapping[str, str]
    chosen: bool = False


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
        rows=[_Row(cells=overview.row(arm)) for arm in groups],
        basis=(_basis(results, groups),),
    )


def tuned_html(tuned: Tuned) -> str:
    """Return a tuning as HTML for a notebook: a table of the measured arms, with the choice in bold."""
    groups = [arm for arm in arms.group(tuned.results) if arm.role is not Role.DRAFTER]
    outlook, spent = tuned.outlook, tuned.spent
    effort = (
        f"{units.counted(len(outlook.prospects), 'configuration')} forecast from "
        f"{units.counted(len(outlook.prompts), 'prompt')}; the best were measured, and confirmed by new "
        f"runs beside the target alone; {units.format_duration(spent.total_s)} in all."
    )
    return _page(
        tuned.results,
        groups,
        sentences=tuple(verdict(tuned)),
        rows=[
            _Row(cells=dict(_with_forecast(tuned, arm)), chosen=arm.spec == tuned.overall.arm.spec)
            for arm in groups
        ],
        served=tuple(configuration.served(tuned.launch, tuned.serving)),
        command=_serving_command(tuned.launch),
        basis=(effort, *outlook.notes, _basis(tuned.results, groups)),
    )


def comparison_html(compared: BenchComparison) -> str:
    """Return a comparison of two benches as HTML for a notebook."""
    cells = comparison.rows(compared)
    return _rendered(
        sentences=(
            *comparison.basis(compared),
            f"Before: {compared.before}. After: {compared.after}.",
        ),
        columns=comparison.columns(cells),
        rows=[_Row(cells=row) for row in cells],
        every="ggufspec.report.frames.comparison(…)",
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
    rows = [
        {
            "step": str(row["step"]),
            "spent on": str(row["part"]),
            "ms": three_digits(row["ms"]),
            "share": units.format_percent(row["share"]),
        }
        for row in reasons.rows(diagnosis)
    ]
    return _rendered(
        sentences=tuple(reasons.sentences(diagnosis, name)),
        columns=[*rows[0]] if rows else [],
        rows=[_Row(cells=row) for row in rows],
        every="",
        basis=(engine(name),) if name else (),
    )


def board_html(shown: Board) -> str:
    """Return a board as HTML for a notebook."""
    cells = board.notebook_rows(shown.rows)
    return _rendered(
        sentences=tuple(board.sentences(shown)),
        columns=[*cells[0]] if cells else [],
        rows=[_Row(cells=row) for row in cells],
        every="pandas.DataFrame(board.rows)",
        basis=tuple(
            f"{bundle.name}: {bundle.state.value}, SHA-256 {bundle.sha256}" for bundle in shown.bundles
        ),
    )


def _page(
    results: ResultSet,
    groups: Sequence[Arm],
    *,
    sentences: Sequence[str],
    rows: Sequence[_Row],
    basis: Sequence[str],
    served: Sequence[str] = (),
    command: str = "",
) -> str:
    return _rendered(
        sentences=(*sentences, engine(results.meta.engine)),
        columns=overview.columns([row.cells for row in rows]),
        rows=rows,
        every="ggufspec.summary(…)",
        served=served,
        command=command,
        basis=basis,
        id=results.meta.id,
        warnings=review.warnings(results, groups),
    )


def _serving_command(launch: Launch | None) -> str:
    """Return the command that serves a choice, if llama-server was started by exactly that, and answered."""
    return shlex.join(launch.argv) if launch is not None and launch.failure is None else ""


def _rendered(
    *,
    sentences: Sequence[str],
    columns: Sequence[str],
    rows: Sequence[_Row],
    every: str,
    basis: Sequence[str],
    served: Sequence[str] = (),
    command: str = "",
    id: str = "",  # noqa: A002  # the users' word
    warnings: Mapping[str, str] | None = None,
) -> str:
    """Render the template; ``every`` is the call that returns all rows if there are too many to show."""
    return TEMPLATES.get_template("notebook.html").render(
        sentences=sentences,
        columns=[
            {"name": name, "head": _HEADS.get(name, name), "side": "left" if name in _TEXTS else "right"}
            for name in columns
        ],
        rows=rows[:_MOST_ROWS],
        left_out=max(0, len(rows) - _MOST_ROWS),
        every=every,
        served=served,
        command=command,
        basis=basis,
        id=id,
        warnings=warnings or {},
    )


def _with_forecast(tuned: Tuned, arm: Arm) -> Iterator[tuple[str, str]]:
    """Yield an arm's cells, with the forecast before the measured tokens/s."""
    forecast = expected(tuned, arm.spec)
    for name, text in overview.row(arm).items():
        if name == "tokens/s":
            yield "forecast", units.format_rate(forecast.tokens_per_s.value) if forecast else ""
        yield name, text


def _basis(results: ResultSet, groups: Sequence[Arm]) -> str:
    """Return a sentence on prompts and repeats, llama.cpp, engine and processor."""
    build, parts = results.meta.build, []
    if groups:
        parts.append(extent(groups[0]))
    version = ", ".join(filter(None, (llama_cpp(build), build.backend)))
    return "; ".join((*parts, f"{version}, engine {results.meta.engine}", results.meta.machine.cpu)) + "."
