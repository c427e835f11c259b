"""Why a table of a bench has nothing to show, and which command would record it."""

from __future__ import annotations

from ggufspec.analysis import arms
from ggufspec.domain import Role, Status
from ggufspec.results import ResultSet

_RECORDS = {"binary": "server", "binary-simple": "server", "server": "inprocess"}
"""Engine -> the one that records positions and rounds where it does not, with any llama.cpp."""
_OF_ROUNDS = {"position": "draft positions", "round": "verification rounds"}


def why_empty(results: ResultSet, per: str) -> str | None:
    """Return why a table of ``show --per`` is empty, and the command that records what is missing.

    Args:
        results: a bench.
        per: what has a row: arm, category, prompt, run, position or round.

    Returns:
        One sentence; None where there is something to show.
    """
    name, runs = results.meta.id, results.current
    if per == "arm" or (per == "run" and results.runs):
        return None
    if not runs:
        return f"nothing was measured in {name}: `ggufspec bench` measures"
    if not any(output.status is Status.OK for output in runs.outputs):
        return f"no run of {name} ended well: `ggufspec show {name} --runs` says how they ended"
    if per == "category" and not any(spec.prompt.category for spec in runs.specs):
        return (
            f"no prompt of {name} has a category: those of `ggufspec bench --suite domains` do, and those of "
            'a suite of your own may (category = "…")'
        )
    if per in _OF_ROUNDS and not _has_rounds(results, per):
        return _without_rounds(results, _OF_ROUNDS[per])
    return None


def _has_rounds(results: ResultSet, per: str) -> bool:
    if per == "round":
        return any(rounds for rounds in results.current.column("rounds"))
    return any(arm.acceptance and arm.acceptance.by_position for arm in arms.group(results))


def _without_rounds(results: ResultSet, what: str) -> str:
    name, engine = results.meta.id, results.meta.engine
    if not any(spec.role is Role.DRAFTING for spec in results.current.specs):
        return f"nothing drafts in {name}, so it has no {what}: name a drafter with -md FILE, or a --method"
    other = _RECORDS.get(engine)
    how = f": `ggufspec bench --engine {other}` records them" if other else ""
    return f"no {what} were recorded in {name}, because the engine {engine} did not tell them{how}"
