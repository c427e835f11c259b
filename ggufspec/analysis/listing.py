"""The stored benches in a few words each, for a list of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ggufspec import results
from ggufspec.analysis import arms
from ggufspec.analysis.judging import rank
from ggufspec.domain import SpeedVerdict
from ggufspec.errors import ResultsError
from ggufspec.results import ResultSet


@dataclass(frozen=True, kw_only=True)
class ListedBench:
    """A stored bench.

    Attributes:
        name: its id.
        started_at: ISO 8601, UTC; None where it cannot be read.
        models: the files of its models, each once.
        draft_sizes: the γ that were measured, in ascending order.
        speedup: over the target alone, of the arm that its verdict is about.
        verdict: whether that arm is faster.
        draft_size: the γ of that arm.
        synthetic: whether its acceptance was simulated.
        runs: how many runs count.
        planned_runs: how many make it complete; None where it was not recorded.
        damage: what of it cannot be read; None for an undamaged one.
    """

    name: str
    started_at: str | None = None
    models: tuple[str, ...] = ()
    draft_sizes: tuple[int, ...] = ()
    speedup: float | None = None
    verdict: SpeedVerdict | None = None
    draft_size: int | None = None
    synthetic: bool = False
    runs: int = 0
    planned_runs: int | None = None
    damage: str | None = None

    @property
    def is_complete(self) -> bool | None:
        """Whether every planned run is there; None where that is not known."""
        return None if self.planned_runs is None else self.runs >= self.planned_runs


def stored_benches() -> Iterator[ListedBench]:
    """Yield every stored bench, oldest first; one that cannot be read says so."""
    for name in results.ids():
        try:
            yield summarize(results.load(name))
        except ResultsError as error:
            yield ListedBench(name=name, damage=error.message)


def summarize(bench: ResultSet) -> ListedBench:
    """Return a bench in a few words."""
    groups = arms.group(bench)
    judged = [(arm, arm.judgement) for arm in groups if arm.judgement is not None]
    ranking = rank(judged)
    leading, judgement = ranking.best, ranking.judgement
    if leading is None and judged:  # no text is the target's own
        leading, judgement = max(judged, key=lambda pair: pair[1].ratio.value if pair[1].ratio else 0.0)
    return ListedBench(
        name=bench.folder.name,
        started_at=bench.meta.started_at,
        models=tuple(dict.fromkeys(model for arm in groups for model in arm.models)),
        draft_sizes=tuple(sorted({arm.draft_size for arm in groups if arm.draft_size is not None})),
        speedup=None if judgement is None or judgement.ratio is None else judgement.ratio.value,
        verdict=None if judgement is None else judgement.verdict,
        draft_size=None if leading is None else leading.draft_size,
        synthetic=leading is not None and leading.synthetic,
        runs=len(bench.current),
        planned_runs=bench.meta.planned_runs,
        damage="; ".join(bench.damage) or None,
    )
