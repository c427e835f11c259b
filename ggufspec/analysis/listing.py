"""Lists of what is stored: benches in a few words each, and what of this machine's models was measured."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from ggufspec import results
from ggufspec.analysis import arms
from ggufspec.analysis.judging import rank
from ggufspec.domain import Role, SpeedVerdict
from ggufspec.errors import ResultsError
from ggufspec.modelfiles.api import LocalModels, find_models
from ggufspec.options import ModelsOptions, takes
from ggufspec.results import ResultSet
from ggufspec.steps import SILENT, Sink


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


@takes(ModelsOptions)
def models(asked: ModelsOptions, sink: Sink = SILENT) -> LocalModels:
    """List the models on this machine, and what can draft for what, as ``ggufspec models`` does.

    Of models, only headers are read. Files that are no complete model are left out. A pair says what the
    newest bench of it measured.
    """
    found = find_models(asked.folders, sink)
    measured = _measured_pairs() if found.pairs else {}
    pairs = []
    for pair in found.pairs:
        bench = measured.get(
            _files(pair.target.path, None if pair.drafter is pair.target else pair.drafter.path)
        )
        pairs.append(pair if bench is None else replace(pair, speedup=bench.speedup, bench=bench.name))
    return replace(found, pairs=tuple(pairs))


_Files = tuple[Path | None, Path | None]
"""Of a target and what drafts for it; a target whose own layers draft has no other file."""


def _measured_pairs() -> dict[_Files, ListedBench]:
    """Return the newest bench of each pair of files that was measured, with its largest speed-up."""
    measured: dict[_Files, ListedBench] = {}
    for name in results.ids():
        try:
            groups = arms.group(results.load(name))
        except ResultsError:
            continue  # `ggufspec show --list` names it
        gains: dict[_Files, float] = {}
        for arm in groups:
            if arm.role is not Role.DRAFTING or arm.synthetic or arm.gain is None or arm.spec.servers:
                continue
            if arm.spec.drafting is not None and arm.spec.drafting.method.drafts_with_model:
                drafter = arm.spec.drafter
                pair = _files(arm.spec.pair.target.path, None if drafter is None else drafter.path)
                gains[pair] = max(arm.gain.ratio.value, gains.get(pair, 0.0))
        measured |= {pair: ListedBench(name=name, speedup=gain) for pair, gain in gains.items()}
    return measured


def _files(target: Path | None, drafter: Path | None) -> _Files:
    return target and target.resolve(), drafter and drafter.resolve()


def summarize(bench: ResultSet) -> ListedBench:
    """Return a bench in a few words."""
    groups = arms.group(bench)
    judged = [(arm, arm.judgement) for arm in groups if arm.judgement is not None]
    ranking = rank(judged)
    leading, judgement = ranking.best, ranking.judgement
    if leading is None and judged:  # no text is the target's own
        leading, judgement = max(judged, key=lambda pair: pair[1].factor)
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
