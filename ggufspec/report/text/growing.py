"""A bench while it is measured: the table so far, what runs now, and the time left."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ggufspec import units
from ggufspec.analysis import Arm
from ggufspec.domain import Role, RunSpec
from ggufspec.harmless import one_line
from ggufspec.report.text import figures, overview, tables
from ggufspec.results import ResultSet

_MOST_NAMED = 3  # arms in one line
_LINES_BELOW = 2  # an empty one, and the state
_SOON_S = 60.0
_TABLE = overview.ARMS.without(
    *("layers", "method_shares", "mean_accepted_length", "gpu_j_per_token", "cpu_j_per_token"),
    *("texts", "status"),
)
"""Without what does not change, or comes with the last run only."""


@dataclass(frozen=True, kw_only=True)
class Progress:
    """How far a bench is.

    Attributes:
        n_done: counted runs, failed ones included.
        n_planned: how many there will be.
        is_most: whether there may be fewer.
        left_s: the expected seconds to the end; None if they are not known.
        running: what is being measured; None between runs.
    """

    n_done: int
    n_planned: int
    is_most: bool = False
    left_s: float | None = None
    running: RunSpec | None = None


def describe_count(results: ResultSet) -> str:
    """Return the number of runs: ``3 of 24 runs``; ``3 runs`` where the plan is not recorded."""
    planned = results.meta.planned_runs
    return f"{len(results.current)}{'' if planned is None else f' of {planned}'} runs"


def growing_table(groups: Sequence[Arm], progress: Progress, *, height: int) -> str:
    """Return the table of the arms so far, with the state below, for a terminal.

    Args:
        groups: the arms, none before the first run.
        progress: how far the bench is.
        height: lines of the terminal. Of a long table, the arms that are compared with what runs are shown.
    """
    shown = groups
    room = max(1, height - _LINES_BELOW - 1)
    if len(groups) + _LINES_BELOW > room and progress.running is not None:
        baseline = progress.running.baseline
        shown = [arm for arm in groups if arm.spec.baseline == baseline] or groups
    lines = _arm_table(shown).split("\n") if shown else []
    if len(lines) + _LINES_BELOW > room:
        lines = [*lines[: room - _LINES_BELOW - 1], "…"]
    return "\n".join((*lines, *([""] if lines else []), describe_state(progress)))


def _arm_table(groups: Sequence[Arm]) -> str:
    models = {arm.models for arm in groups if arm.role is Role.DRAFTING}
    layout = _TABLE if len(models) > 1 else _TABLE.without("models")
    return tables.render(layout.fill(overview.list_arms(groups)), tables.TERMINAL)


def growing_line(groups: Sequence[Arm], progress: Progress) -> str:
    """Return the state of a bench as one line, with the speed-ups so far, the largest first."""
    ranked = sorted(
        (arm for arm in groups if arm.gain is not None),
        key=lambda arm: -(arm.gain.ratio.value if arm.gain else 0.0),
    )
    more = [f"{len(ranked) - _MOST_NAMED} more"] if len(ranked) > _MOST_NAMED else []
    speedups = ", ".join((*map(_describe_gain, ranked[:_MOST_NAMED]), *more))
    return "; ".join(filter(None, (describe_state(progress), speedups)))


def describe_state(progress: Progress) -> str:
    """Return how many runs are done, the time left, and what is being measured."""
    return ", ".join(_state(progress))


def _state(progress: Progress) -> Iterator[str]:
    bound_word = "of at most" if progress.is_most else "of"
    yield f"{progress.n_done:,} {bound_word} {units.counted(progress.n_planned, 'run')}"
    if progress.left_s is not None and progress.n_done < progress.n_planned:
        bound = "at most" if progress.is_most else "about"
        left_s = progress.left_s  # without fractions of a second
        left = f"{max(1, round(left_s))} s" if left_s < _SOON_S else units.format_duration(left_s)
        yield f"{bound} {left} left"
    if progress.running is not None:
        yield f"running {describe_run(progress.running)}"


def describe_run(spec: RunSpec) -> str:
    """Return what a run measures: ``drafting with draft-model γ=3 on the prompt code1``."""
    drafting = spec.drafting
    role = spec.role.value if spec.role is not Role.TARGET else "target alone"
    what = role if drafting is None else f"{role} with {drafting.chain} γ={drafting.n_max}"
    return one_line(f"{what} on the prompt {spec.prompt.id}")


def _describe_gain(arm: Arm) -> str:
    drafting, gain = arm.spec.drafts_by, arm.gain
    assert gain is not None
    return f"{drafting.chain} γ={drafting.n_max}: {figures.factor(gain.ratio)}"
