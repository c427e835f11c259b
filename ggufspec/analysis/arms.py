"""Stored runs to arms: what is compared with what, and which runs count."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from itertools import compress

import numpy as np
from numpy.typing import NDArray

from ggufspec import stats
from ggufspec.analysis.arm import Arm, ComparedRates, LayerCounts
from ggufspec.analysis.judging import MOST_DISTURBED
from ggufspec.analysis.rates import counted
from ggufspec.analysis.warnings import MeasurementWarning
from ggufspec.domain import (
    NO_PROMPT,
    OWN_PROCESSES,
    Drafting,
    Method,
    ModelFile,
    Role,
    RunSpec,
    Sample,
    Status,
    TextVerdict,
)
from ggufspec.results import ResultSet, Runs, number_loads

_MOST_EXCLUDED = 0.5  # of the cells; if more would be, none is
_MOST_LACKING = 0.5  # of the cells: an arm that lacks more does not decide which cells the others show
_DISTURBANCES = frozenset(
    {MeasurementWarning.BUSY_MACHINE, MeasurementWarning.SWAPPING, MeasurementWarning.GPU_THROTTLED}
)


def group(results: ResultSet, runs: Runs | None = None) -> tuple[Arm, ...]:
    """Return the arms of a bench: each baseline with what is compared with it, in the order of the axes.

    Args:
        results: a bench.
        runs: those that count; by default the newest of each cell.
    """
    runs = results.current if runs is None else runs
    members, arm_of = _members(runs)
    tps = counted(runs)
    runs_of = {spec: runs.select(np.flatnonzero(arm_of == number)) for number, spec in enumerate(members)}
    good = {
        spec: runs.select(np.flatnonzero((arm_of == number) & (tps > 0)))
        for number, spec in enumerate(members)
    }
    grid = _RateGrid.of(
        runs, arm_of, own_processes=results.meta.engine in OWN_PROCESSES, cores=results.meta.machine.cores
    )
    measured = dict(zip(members, grid.rates(tps), strict=True))
    stopping = results.meta.stopping
    selections = _selections(members, measured, grid, runs, stopping)
    rates = _compare_rates({spec: measured[spec].where(selections[_block(spec)].kept) for spec in members})
    layers = {
        spec: _layers(
            [output for _, output in runs_of[spec].counted_outputs], results.meta.build_of(spec).backend
        )
        for spec in members
    }
    drafters = {
        (spec.model, spec.offload.drafter.layers, spec.build): layers[spec]
        for spec in members
        if spec.role is Role.DRAFTER
    }
    builds = [None, *results.meta.builds]
    first = next(iter(results.meta.builds), None)
    order = {_block(spec): number for number, spec in reversed(list(enumerate(members)))}
    groups: dict[RunSpec, Arm] = {}
    for spec in sorted(
        members, key=lambda spec: (order[_block(spec)], builds.index(spec.build), *_rank(spec))
    ):
        selection = selections[_block(spec)]
        groups[spec] = Arm(
            spec=spec,
            runs=runs_of[spec],
            good=good[spec],
            measured=measured[spec],
            compared_rates=rates[spec],
            excluded=selection.excluded,
            disturbed=selection.disturbed.get(spec, 0.0),
            baseline=groups.get(spec.baseline) if spec.role is Role.DRAFTING else None,
            layers=None if spec.role is Role.DRAFTER else layers[spec],
            draft_layers=drafters.get((spec.pair.draft, spec.offload.drafter.layers, spec.build))
            if spec.pair.draft is not None and spec.role is not Role.TARGET
            else None,
            build=results.meta.build_of(spec),
            counterpart=groups.get(replace(spec, build=first)) if spec.build != first else None,
            stopping=stopping,
            look=selection.look,
            runs_done=len(runs),
            runs_planned=results.meta.planned_runs,
        )
    return tuple(groups.values())


def _compare_rates(rates: Mapping[RunSpec, stats.Rates]) -> dict[RunSpec, ComparedRates]:
    """Return the rates of each arm beside those of the arms that are compared with it."""
    compared: dict[tuple[RunSpec, bool], dict[RunSpec, stats.Rates]] = {}
    for spec, of_arm in rates.items():
        compared.setdefault((_block(spec), spec.role is Role.DRAFTER), {})[spec] = of_arm
    together = (ComparedRates(unclipped=unclipped) for unclipped in compared.values())
    return {spec: side_by_side for side_by_side in together for spec in side_by_side.unclipped}


@dataclass(frozen=True, kw_only=True)
class _RateGrid:
    """The place of each run in tables of shape (arms, prompts, repeats)."""

    prompts: Sequence[str]
    repeats: Sequence[int]
    place: tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.intp]]
    shape: tuple[int, int, int]
    loads: NDArray[np.float64]
    slowed: NDArray[np.float64]

    @classmethod
    def of(cls, runs: Runs, arm_of: NDArray[np.intp], *, own_processes: bool, cores: int) -> _RateGrid:
        """Place runs.

        Args:
            runs: of a bench.
            arm_of: number of each run's arm.
            own_processes: whether a run without a recorded load had a process of its own; if not, all such
                runs of an arm are one load.
            cores: of the machine.
        """
        specs, spec_of = runs.by_spec()
        prompts = sorted({spec.prompt.id for spec in specs})
        row = {prompt: number for number, prompt in enumerate(prompts)}
        row_of = np.array([row[spec.prompt.id] for spec in specs], dtype=np.intp)[spec_of]
        repeats, column_of = np.unique(np.array(runs.column("repeat"), dtype=np.intp), return_inverse=True)
        recorded = number_loads(runs)
        unrecorded = np.nan if own_processes else -1.0 - arm_of
        return cls(
            prompts=prompts,
            repeats=repeats.tolist(),
            place=(arm_of, row_of, column_of),
            shape=(int(arm_of.max(initial=-1)) + 1, len(prompts), len(repeats)),
            loads=np.where(np.isnan(recorded), unrecorded, recorded),
            slowed=_expected_slowdowns(runs, cores),
        )

    def table(self, values: NDArray[np.float64], where: NDArray[np.bool_]) -> NDArray[np.float64]:
        """Return one value for each cell of each arm, NaN where there is none."""
        tables = np.full(self.shape, np.nan)
        tables[tuple(axis[where] for axis in self.place)] = values[where]
        return tables

    def rates(self, tps: NDArray[np.float64]) -> Iterator[stats.Rates]:
        """Yield the tokens/s of each arm."""
        good = tps > 0
        tables, loads, slowed = (self.table(values, good) for values in (tps, self.loads, self.slowed))
        conversations = _conversations(self.prompts)
        for table, of_arm, slowed_of_arm in zip(tables, loads, slowed, strict=True):
            yield stats.Rates(
                self.prompts,
                self.repeats,
                table,
                loads=None if np.isnan(of_arm).all() else of_arm,
                conversations=conversations,
                slowed=slowed_of_arm if np.nansum(slowed_of_arm) > 0 else None,
            )


def _expected_slowdowns(runs: Runs, cores: int) -> NDArray[np.float64]:
    """Return the logarithm by which other programs are expected to have slowed each run; 0 for most runs."""
    busy = _have_doubts(runs, {MeasurementWarning.BUSY_MACHINE})
    taken = np.where(busy, np.nan_to_num(runs.numbers("others_cores")), 0.0) if busy.any() else busy
    return stats.expected_slowdown(taken.astype(np.float64), cores)


def _conversations(prompts: Sequence[str]) -> dict[str, str]:
    """Return the conversation of each later turn: ``story#2`` is a turn of ``story``."""
    asked_prompts = set(prompts)
    parts = ((prompt, *prompt.rpartition("#")) for prompt in prompts)
    return {
        prompt: first for prompt, first, _, number in parts if first in asked_prompts and number.isdigit()
    }


@dataclass(frozen=True, kw_only=True)
class _RunSelection:
    """Which cells of a block count."""

    kept: NDArray[np.bool_]
    excluded: frozenset[stats.Cell]
    disturbed: Mapping[RunSpec, float]
    look: int | None


def _selections(
    members: Sequence[RunSpec],
    measured: Mapping[RunSpec, stats.Rates],
    grid: _RateGrid,
    runs: Runs,
    stopping: stats.StoppingRule | None,
) -> dict[RunSpec, _RunSelection]:
    """Return by block which cells count: those that all arms have, less those that are excluded.

    With a stopping rule, these are the cells of the repeats up to the last look.

    A run is excluded only for a disturbance from outside that was recorded, or for a text that no near-tie
    explains; then its cell is excluded for all arms. Where that would be most cells, nothing is excluded, and
    intervals are wider by what the load of other programs may have done (``stats.disturbance_error``). An
    arm of which more than a fifth of the texts differ does not exclude them: it is not fair as such, and its
    warning says so.
    """
    everywhere = np.ones(len(runs), dtype=np.bool_)
    disturbed = grid.table(_have_doubts(runs, _DISTURBANCES).astype(float), everywhere)
    unexplained = np.where(grid.table(grid.slowed, everywhere) > 0, 0.0, disturbed)
    differing = grid.table(_are_other_texts(runs).astype(float), everywhere)
    made = ~np.isnan(disturbed)
    repeats = np.array(grid.repeats)
    numbers: dict[RunSpec, list[int]] = {}
    for number, spec in enumerate(members):
        numbers.setdefault(_block(spec), []).append(number)
    selections = {}
    for one_block, in_block in numbers.items():
        of_this = [number for number in in_block if members[number].role is not Role.DRAFTER] or in_block
        block = [number for number in of_this if len(measured[members[number]])] or in_block
        present = np.array([~np.isnan(measured[members[number]].table) for number in block])
        counts = present.sum(axis=(1, 2))
        shared = present[counts >= (1 - _MOST_LACKING) * counts.max()].all(axis=0)
        of_block = np.where(present, disturbed[block], np.nan)
        of_texts = np.where(present, differing[block], 0.0)
        fair = of_texts.sum(axis=(1, 2)) <= MOST_DISTURBED * counts
        faulty = (of_block == 1).any(axis=0) | (of_texts[fair] == 1).any(axis=0)
        excluded = shared & faulty
        if excluded.sum() > _MOST_EXCLUDED * shared.sum():
            excluded = np.zeros_like(shared)
        look = None if stopping is None else stopping.last_look(_complete_repeats(made[of_this], repeats))
        kept = shared & ~excluded
        counting = {number: kept & ~np.isnan(measured[members[number]].table) for number in of_this}
        selections[one_block] = _RunSelection(
            kept=kept if look is None else kept & (repeats < look),
            excluded=frozenset(
                (grid.prompts[row], grid.repeats[column]) for row, column in np.argwhere(excluded).tolist()
            ),
            disturbed={
                members[number]: float(unexplained[number][cells].mean())
                for number, cells in counting.items()
                if cells.any()
            },
            look=look,
        )
    return selections


def _complete_repeats(made: NDArray[np.bool_], repeats: NDArray[np.intp]) -> int:
    """Return how many repeats in a row, from the first on, have every run.

    Args:
        made: whether there is a run, failed or not, shape (arms, prompts, repeats).
        repeats: the number of each repeat, ascending.
    """
    of_prompts = made[:, made.any(axis=(0, 2))]  # others were for warm-ups alone
    is_complete = of_prompts.all(axis=(0, 1)) & (repeats == np.arange(len(repeats)))
    return int(np.logical_and.accumulate(is_complete).sum())


def _have_doubts(runs: Runs, doubts: Set[str]) -> NDArray[np.bool_]:
    """Return which runs have one of these warnings."""
    column = runs.column("doubts")
    marked = np.zeros(len(runs), dtype=np.bool_)
    for at in compress(range(len(column)), column):  # most runs have none
        marked[at] = not doubts.isdisjoint(column[at])
    return marked


def _are_other_texts(runs: Runs) -> NDArray[np.bool_]:
    """Return of which runs the text is known to differ from the target's own by more than near-ties.

    The target of a running server cannot be asked.
    """
    differing = np.zeros(len(runs), dtype=np.bool_)
    for at in [at for at, identical in enumerate(runs.column("text_identical")) if identical is False]:
        difference = runs.column("difference")[at]
        near_tie = difference is not None and difference.verdict is TextVerdict.NEAR_TIE
        differing[at] = not near_tie and runs.specs[at].servers is None
    return differing


def _members(runs: Runs) -> tuple[list[RunSpec], NDArray[np.intp]]:
    """Return the arms in the order of their first runs, and for each run the place of its own among them."""
    specs, spec_of = runs.by_spec()
    first: dict[str, RunSpec] = {}
    members: dict[RunSpec, int] = {}
    files: dict[str, ModelFile] = {}
    arm_of = np.empty(len(specs), dtype=np.intp)
    for number in dict.fromkeys(spec_of.tolist()):
        spec = first.setdefault(specs[number].key, specs[number])
        spec = _with_first_files(spec, files)
        # for the target alone, nothing counts that is the drafter's
        arm = replace(spec.baseline if spec.role is Role.TARGET else spec, prompt=NO_PROMPT)
        arm_of[number] = members.setdefault(arm, len(members))
    return list(members), arm_of[spec_of]


def _with_first_files(spec: RunSpec, files: dict[str, ModelFile]) -> RunSpec:
    """Return a run whose models have the path at which the bench first had the same content.

    Args:
        spec: of a run.
        files: content -> the file that had it first; grows.
    """
    target, draft = (
        model if model is None or model.content is None else files.setdefault(model.content, model)
        for model in (spec.pair.target, spec.pair.draft)
    )
    if target is spec.pair.target and draft is spec.pair.draft:
        return spec
    assert target is not None
    return replace(spec, pair=replace(spec.pair, target=target, draft=draft))


def _block(spec: RunSpec) -> RunSpec:
    """Return what an arm is compared with, whatever its llama.cpp."""
    return replace(spec.baseline, build=None)


def _rank(spec: RunSpec) -> tuple[int, int, int, str, float, float, str]:
    """Sort the target alone first, then each drafter alone, then drafting by method and draft size."""
    drafter = spec.pair.draft.filename if spec.pair.draft and spec.role is not Role.TARGET else ""
    drafting = spec.drafting or Drafting(n_max=0)
    method = tuple(Method).index(drafting.method)
    return (
        *(tuple(Role).index(spec.role), method, len(drafting.first), drafter),
        *(drafting.n_max, drafting.p_min, drafting.sampling or ""),
    )


def _layers(outputs: Sequence[Sample], backend: str | None) -> LayerCounts | None:
    """Return what the logs say went to the GPU; a build for the processor alone offloads nothing.

    Such a build may still claim that it offloaded (a library with remote devices compiled in does), so its
    claim is not asked. Nor is its total: no layer could be on a GPU.
    """
    ok = Status.OK
    logged = [sample for sample in outputs if sample.status is ok]
    if backend == "cpu":
        return LayerCounts(offloaded=0, total=None) if logged else None
    models = [sample.target for sample in logged if sample.target is not None]
    total = next((model.total_layers for model in models if model.total_layers), None)
    offloaded = next((model.offloaded_layers for model in models if model.offloaded_layers is not None), None)
    return None if offloaded is None else LayerCounts(offloaded=offloaded, total=total)
