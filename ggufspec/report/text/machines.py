"""One table of what several machines measured: a row for each arm of each machine."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ggufspec.analysis import arms, review
from ggufspec.domain import Role
from ggufspec.report.text import overview, tables
from ggufspec.results import ResultSet

_MACHINE = "machine"
_LABELS = (_MACHINE, "", "γ")
_FIRST_LEFT_OUT = ("CPU J/token", "tokens/round", "GPU layers", "threads", "accepted", "verdict")


def machine_table(benches: Mapping[str, ResultSet], output: str) -> str:
    """Return the arms of several machines, those of a machine together; an empty text without any.

    A speed-up is over the target alone on the same machine.

    Args:
        benches: machine -> what it measured.
        output: as for ``tables.grid``.
    """
    rows = [
        {_MACHINE: machine, **overview.row(arm)}
        for machine, bench in benches.items()
        for arm in arms.group(bench)
        if arm.role is not Role.DRAFTER
    ]
    if not rows:
        return ""
    names = [name for name in overview.columns(rows) if name != _MACHINE]
    return tables.table(overview.keep([_MACHINE, *names], _FIRST_LEFT_OUT), rows, output, labels=_LABELS)


def list_warnings(benches: Mapping[str, ResultSet]) -> Iterator[str]:
    """Yield a line for each machine that has warnings; its own table has their advice."""
    for machine, bench in benches.items():
        names = ", ".join(review.warnings(bench)) if bench.runs else ""
        if names:
            yield f"warning on {machine}: {names}: `ggufspec show {bench.meta.id}`"
