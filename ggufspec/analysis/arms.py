"""What a bench compares: its runs grouped into arms, each with its estimates, pure and ready to print."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import median

import numpy as np
from numpy.typing import NDArray

from ggufspec import stats
from ggufspec.analysis import acceptance, traffic, warnings, windows
from ggufspec.analysis.acceptance import Acceptance, AcceptanceIntervals
from ggufspec.analysis.traffic import TrafficFigures
from ggufspec.analysis.warnings import MeasurementWarning
from ggufspec.domain import (
    NO_PROMPT,
    Build,
    Difference,
    Method,
    ModelFile,
    Role,
    RunOutcome,
    RunSpec,
    Sample,
    Status,
    TextVerdict,
)
from ggufspec.results import ResultSet, Runs

PARTIAL = "partial"
MOST_DISTURBED = 0.2
"""Share of disturbed runs above which no verdict is given."""

_MOST_EXCLUDED = 0.5  # of the cells; if more would be, none is
_MOST_LACKING = 0.5  # of the cells: an arm that lacks more does not decide which cells the others show
_DISTURBANCES = frozenset(
    {MeasurementWarning.BUSY_MACHINE, MeasurementWarning.SWAPPING, MeasurementWarning.GPU_THROTTLED}
)
_MOSTLY = 0.8  # of the watched time: a fifth at most, at less power, is something else than the request
_DEVICES = {"GPU": "gpu_j", "CPU": "cpu_j"}


@dataclass(frozen=True, kw_only=True)
class LayerCounts:
    """Layers on the GPU as llama.cpp counts them: one more than the model has blocks."""

    offloaded: int
    total: int | None


@dataclass(frozen=True, kw_only=True)
class Energy:
    """What a token takes of one kind of device, in J, and how that compares with the target alone.

    Measured is a request as a whole: evaluating the prompt, decoding, and what idle devices draw meanwhile,
    divided by the tokens decoded after the prompt. Runs whose request fills less than four fifths of the time
    that was watched are left out: they loaded models, as every short run of a program of its own does.
    """

    device: str  # "GPU": all that may be used; "CPU": all packages
    runs: int
    per_token: stats.Estimate
    ratio: stats.Estimate | None  # over the target alone, paired; below 1 drafting saves energy


@dataclass(frozen=True, kw_only=True)
class Arm:
    """All runs of one specification over all prompts; ``spec`` is that, without a prompt.

    ``good`` are those that ended well and are plausible. ``outputs`` are their samples without texts and
    times. ``baseline`` is the target alone under the same settings, for an arm that drafts. ``build`` is the
    llama.cpp that ran it, and ``counterpart`` the same arm with the first llama.cpp, in a bench of several.
    All other figures follow from these; each is computed on first use.

    Attributes:
        measured: tokens/s of all good runs, see ``windows``.
        rates: those of the cells that all arms of the block have and that are not excluded. All figures of
            speed are of these, so that the quotient of two arms in a table is their speed-up.
        excluded: the cells that are excluded for every arm, because a run of one arm was disturbed from
            outside or wrote another text.
        disturbed: the share of the block's runs that were disturbed from outside, 0 to 1.
        stopping: when the bench was looked at, if it is measured until its verdicts are decided. Intervals
            and verdicts are then those of the last look, and ``rates`` the repeats up to it.
        look: the complete repeats at that look; None before the first one, and in other benches.
    """

    spec: RunSpec
    runs: Runs
    good: Runs
    outputs: Sequence[Sample]
    measured: stats.Rates
    rates: stats.Rates
    excluded: frozenset[stats.Cell]
    disturbed: float
    baseline: Arm | None
    layers: LayerCounts | None
    draft_layers: LayerCounts | None
    build: Build
    counterpart: Arm | None = None
    stopping: stats.StoppingRule | None = None
    look: int | None = None

    @property
    def role(self) -> Role:
        """What this arm measures."""
        return self.spec.role

    @property
    def synthetic(self) -> bool:
        """Whether acceptance was simulated: then the texts have no meaning."""
        return bool(self.spec.drafting and self.spec.drafting.synthetic)

    @property
    def what(self) -> str:
        """What this arm measures, in words."""
        return f"{self.role.value}, synthetic" if self.synthetic else self.role.value

    @property
    def draft_size(self) -> int | None:
        """γ, where something drafts and it is known."""
        return self.spec.draft_size

    @property
    def models(self) -> tuple[str, ...]:
        """What this arm runs: the files of its models, and the method where no model drafts."""
        return models(self.spec)

    @property
    def drafts_with(self) -> str:
        """What drafts: a file, or a method without one; of a chain both, in the order in which they draft.

        Empty where nothing drafts, and for a running server, which does not say.
        """
        return " and ".join(reversed(self.models[1:]))

    @property
    def prompts(self) -> int:
        """Number of distinct prompts."""
        return len({spec.prompt.id for spec in self.runs.specs})

    @property
    def repeats(self) -> int:
        """Number of repeats of each prompt."""
        return len(set(self.runs.column("repeat")))

    @cached_property
    def rate(self) -> stats.Estimate | None:
        """Tokens/s over all prompts, with an interval that includes drift between repeats."""
        return stats.mean_rate(self.rates)

    @property
    def dropped(self) -> int:
        """Number of good runs that do not count, because another arm lacks their cell or it is excluded."""
        return len(self.measured) - len(self.rates)

    @cached_property
    def gain(self) -> stats.Effect | None:
        """The speed-up over the baseline, with its interval, p and verdict.

        There is no verdict where more than a fifth of the block's runs was disturbed.
        """
        effect = self.compare(self.rates, self.baseline.rates) if self.baseline else None
        if effect is None or self.disturbed <= MOST_DISTURBED:
            return effect
        return replace(effect, verdict=stats.SpeedVerdict.NONE)

    @cached_property
    def gain_of_all(self) -> stats.Effect | None:
        """The speed-up without exclusions: of all cells that this arm and its baseline have."""
        if self.baseline is None:
            return None
        return self.compare(_until(self.measured, self.look), _until(self.baseline.measured, self.look))

    @property
    def is_decided(self) -> bool:
        """Whether the verdict over the baseline is sure: faster, slower or the same."""
        return self.gain is not None and self.gain.verdict not in {
            stats.SpeedVerdict.UNCLEAR,
            stats.SpeedVerdict.NONE,
        }

    def compare(self, rates: stats.Rates, baseline: stats.Rates) -> stats.Effect | None:
        """Compare some of this arm's rates with others, by the procedure of the bench's intervals."""
        if self.stopping is not None and self.look is not None:
            return stats.sequential_effect(rates, baseline, self.stopping)
        effect = stats.paired_effect(rates, baseline)
        if effect is None or self.stopping is None:
            return effect
        return stats.without_interval(effect, stats.Gap.NO_LOOK)

    @cached_property
    def median_gain(self) -> float | None:
        """The speed-up from each prompt's median over repeats: a check that few runs do not decide it."""
        return stats.median_ratio(self.rates, self.baseline.rates) if self.baseline else None

    @cached_property
    def work_gain(self) -> float | None:
        """The speed-up of all texts together: total tokens over total time, over that of the baseline."""
        own, alone = self.work_rate, self.baseline.work_rate if self.baseline else None
        return own / alone if own and alone else None

    @cached_property
    def work_rate(self) -> float | None:
        """Tokens/s of all runs that count, taken as one: total tokens over total time."""
        tokens = seconds = 0.0
        for cell, decoded in zip(_cells(self.good), self.good.numbers("decoded").tolist(), strict=True):
            if cell in self.rates:
                tokens += decoded
                seconds += decoded / self.rates[cell]
        return tokens / seconds if seconds else None

    @cached_property
    def change(self) -> stats.Effect | None:
        """The speed over the same arm's with the first llama.cpp, with its interval, p and verdict."""
        return stats.paired_effect(self.rates, self.counterpart.rates) if self.counterpart else None

    @cached_property
    def acceptance(self) -> Acceptance | None:
        """Acceptance over all good runs together; None where nothing drafts."""
        return acceptance.of(self.outputs) if self.role is Role.DRAFTING else None

    @cached_property
    def acceptance_intervals(self) -> AcceptanceIntervals | None:
        """The same with intervals over prompts, or over conversations; None where nothing drafts."""
        units = self.measured.conversations
        of_unit: dict[str, list[Sample]] = {}
        for spec, output in zip(self.good.specs, self.outputs, strict=True):
            of_unit.setdefault(units.get(spec.prompt.id, spec.prompt.id), []).append(output)
        return acceptance.intervals(of_unit) if self.role is Role.DRAFTING else None

    @property
    def round_ms(self) -> dict[str, float]:
        """Milliseconds of a round: drafting, verification, the rest; empty where nobody tells."""
        columns = map(self.good.column, ("draft_s", "verify_s", "gen_s", "n_rounds"))
        timed = [parts for parts in zip(*columns, strict=True) if parts[0] and parts[1]]
        if len(timed) < len(self.good) or not timed or self.draft_size is None:
            return {}
        draft, verify, whole, rounds = (sum(column) for column in zip(*timed, strict=True))
        seconds_of = {"draft": draft, "verify": verify, "rest": whole - draft - verify}
        return {f"{name}_ms_per_round": seconds * 1000 / rounds for name, seconds in seconds_of.items()}

    @property
    def ttft_s(self) -> float | None:
        """Median time to the first token, where the engine sees it."""
        seen = [seconds for seconds in self.good.column("ttft_s") if seconds is not None]
        return median(seen) if seen else None

    @cached_property
    def traffic(self) -> TrafficFigures | None:
        """What several users saw in all runs; None for one request after another."""
        return traffic.summarize_traffic(self.runs)

    @cached_property
    def user_rates(self) -> stats.Rates:
        """Tokens/s of each user in the cells of ``rates``; empty without traffic."""
        table = np.full(self.rates.table.shape, np.nan)
        for cell, sample in zip(_cells(self.good), self.good.column("traffic"), strict=True):
            rate = None if sample is None else traffic.user_rate(sample)
            if rate is not None and cell in self.rates:
                table[self.rates.rows[cell[0]], self.rates.columns[cell[1]]] = rate
        return self.rates.with_table(table)

    @cached_property
    def user_rate(self) -> stats.Estimate | None:
        """Tokens/s that each of several users sees; None without traffic."""
        return stats.mean_rate(self.user_rates)

    @cached_property
    def user_gain(self) -> stats.Effect | None:
        """How many times faster each user is served than by the baseline at the same number of users."""
        return stats.paired_effect(self.user_rates, self.baseline.user_rates) if self.baseline else None

    @cached_property
    def energy(self) -> dict[str, Energy]:
        """Energy per token by device, of those devices whose energy was measured."""
        energies = {}
        for device, joules in self.joules.items():
            alone = self.baseline.joules.get(device) if self.baseline else None
            per_token = stats.mean_rate(joules)
            if per_token is not None:
                ratio = stats.paired_effect(joules, alone) if alone else None
                energies[device] = Energy(
                    device=device, runs=len(joules), per_token=per_token, ratio=ratio.ratio if ratio else None
                )
        return energies

    @cached_property
    def joules(self) -> dict[str, dict[tuple[str, int], float]]:
        """Device -> (prompt id, repeat) -> J per token, of runs whose energy is that of their request."""
        runs = self.good
        used = {device: runs.numbers(name) for device, name in _DEVICES.items()}
        used = {device: joules for device, joules in used.items() if not np.isnan(joules).all()}
        if not used:
            return {}
        prompt_tps, prompt_s = runs.numbers("prompt_tps"), np.zeros(len(runs))
        np.divide(runs.numbers("prompt_tokens"), prompt_tps, out=prompt_s, where=prompt_tps > 0)
        decode_s = runs.numbers("gen_s") + np.nan_to_num(runs.numbers("sampling_s"))
        requests = np.nan_to_num(prompt_s) + decode_s >= _MOSTLY * runs.numbers("wall_s")
        cells = _cells(runs)
        by_device = {}
        for device, joules in used.items():
            each_token = joules / runs.numbers("decoded")
            counts = np.flatnonzero(requests & (each_token > 0)).tolist()
            by_device[device] = {cells[place]: float(each_token[place]) for place in counts}
        return by_device

    @property
    def compared(self) -> dict[str, bool]:
        """Prompt id -> whether every one of its compared texts is the target's own."""
        is_same: dict[str, bool] = {}
        for spec, same in zip(self.good.specs, self.good.column("text_identical"), strict=True):
            if same is not None:
                is_same[spec.prompt.id] = is_same.get(spec.prompt.id, True) and same
        return is_same

    @property
    def status(self) -> str:
        """``ok``, ``partial``, or what the runs are worth most often where none counts."""
        if self.good and not len(self.rates):
            worth = Counter(warnings.outcome(run) for run in self.good).most_common(1)[0][0]
            return PARTIAL if worth is RunOutcome.OK else worth.value
        if len(self.good) == len(self.runs):
            return Status.OK.value
        if self.good:
            return PARTIAL
        return Counter(warnings.outcome(run).value for run in self.runs).most_common(1)[0][0]


def _until(rates: stats.Rates, look: int | None) -> stats.Rates:
    """Return the rates of the repeats up to a look; all of them without one."""
    if look is None:
        return rates
    return rates.where(np.array([[repeat < look for repeat in rates.columns]], dtype=np.bool_))


def _cells(runs: Runs) -> list[stats.Cell]:
    """Return the place of each run."""
    return [(spec.prompt.id, repeat) for spec, repeat in zip(runs.specs, runs.column("repeat"), strict=True)]


def models(spec: RunSpec) -> tuple[str, ...]:
    """Return what a run takes: the files of its models, and methods that draft without a file."""
    files = [spec.model.filename, *([spec.drafter.filename] if spec.drafter else [])]
    if spec.drafting is None:
        return tuple(files)
    methods = [*spec.drafting.first, *([spec.drafting.method] if spec.drafter is None else [])]
    return (*files, *(["+".join(methods)] if methods else []))


def counted(runs: Runs) -> NDArray[np.float64]:
    """Return the tokens/s of each run, see ``windows``; NaN of those that enter no mean."""
    ok, wrong = (
        Status.OK,
        MeasurementWarning.IMPLAUSIBLE,
    )  # looked up once: the members of an enum are slow to find
    counts = [
        said.status is ok and wrong not in named
        for said, named in zip(runs.outputs, runs.column("doubts"), strict=True)
    ]
    return np.where(counts, windows.decode_rates(runs), np.nan)


def group(results: ResultSet, runs: Runs | None = None) -> tuple[Arm, ...]:
    """Return the arms of a bench: each baseline with what is compared with it, in the order of the axes.

    Args:
        results: a bench.
        runs: those that count; by default the newest of each cell.
    """
    runs = results.current if runs is None else runs
    members, arm_of = _members(runs)
    tps, outputs = counted(runs), runs.outputs
    places = {spec: np.flatnonzero(arm_of == number).tolist() for number, spec in enumerate(members)}
    good = {spec: np.flatnonzero((arm_of == n) & (tps > 0)).tolist() for n, spec in enumerate(members)}
    grid = _Grid.of(runs, arm_of, own_processes=results.meta.engine.startswith("binary"))
    measured = dict(zip(members, grid.rates(tps), strict=True))
    stopping = results.meta.stopping
    selections = _selections(members, measured, grid, runs, stopping)
    layers = {
        spec: _layers([outputs[place] for place in places[spec]], results.meta.build_of(spec).backend)
        for spec in members
    }
    drafters = {
        (spec.model, spec.offload.draft_layers, spec.build): layers[spec]
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
            runs=runs.select(places[spec]),
            good=runs.select(good[spec]),
            outputs=[outputs[place] for place in good[spec]],
            measured=measured[spec],
            rates=measured[spec].where(selection.kept),
            excluded=selection.excluded,
            disturbed=selection.disturbed,
            baseline=groups.get(spec.baseline) if spec.role is Role.DRAFTING else None,
            layers=None if spec.role is Role.DRAFTER else layers[spec],
            draft_layers=drafters.get((spec.pair.draft, spec.offload.draft_layers, spec.build))
            if spec.pair.draft is not None and spec.role is not Role.TARGET
            else None,
            build=results.meta.build_of(spec),
            counterpart=groups.get(replace(spec, build=first)) if spec.build != first else None,
            stopping=stopping,
            look=selection.look,
        )
    return tuple(groups.values())


@dataclass(frozen=True, kw_only=True)
class _Grid:
    """The place of each run in tables of shape (arms, prompts, repeats)."""

    prompts: Sequence[str]
    repeats: Sequence[int]
    place: tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.intp]]
    shape: tuple[int, int, int]
    loads: NDArray[np.float64]

    @classmethod
    def of(cls, runs: Runs, arm_of: NDArray[np.intp], *, own_processes: bool) -> _Grid:
        """Place runs.

        Args:
            runs: of a bench.
            arm_of: number of each run's arm.
            own_processes: whether a run without a recorded load had a process of its own; if not, all such
                runs of an arm are one load.
        """
        specs, spec_of = runs.by_spec()
        prompts = sorted({spec.prompt.id for spec in specs})
        row = {prompt: number for number, prompt in enumerate(prompts)}
        row_of = np.array([row[spec.prompt.id] for spec in specs], dtype=np.intp)[spec_of]
        repeats, column_of = np.unique(np.array(runs.column("repeat"), dtype=np.intp), return_inverse=True)
        recorded = runs.numbers("load")
        unrecorded = np.nan if own_processes else -1.0 - arm_of
        return cls(
            prompts=prompts,
            repeats=repeats.tolist(),
            place=(arm_of, row_of, column_of),
            shape=(int(arm_of.max(initial=-1)) + 1, len(prompts), len(repeats)),
            loads=np.where(np.isnan(recorded), unrecorded, recorded),
        )

    def table(self, values: NDArray[np.float64], where: NDArray[np.bool_]) -> NDArray[np.float64]:
        """Return one value for each cell of each arm, NaN where there is none."""
        tables = np.full(self.shape, np.nan)
        tables[tuple(axis[where] for axis in self.place)] = values[where]
        return tables

    def rates(self, tps: NDArray[np.float64]) -> Iterator[stats.Rates]:
        """Yield the tokens/s of each arm."""
        good = tps > 0
        tables, loads = self.table(tps, good), self.table(self.loads, good)
        conversations = _conversations(self.prompts)
        for table, of_arm in zip(tables, loads, strict=True):
            known = None if np.isnan(of_arm).all() else of_arm
            yield stats.Rates(self.prompts, self.repeats, table, loads=known, conversations=conversations)


def _conversations(prompts: Sequence[str]) -> dict[str, str]:
    """Return the conversation of each later turn: ``story#2`` is a turn of ``story``."""
    known = set(prompts)
    parts = ((prompt, *prompt.rpartition("#")) for prompt in prompts)
    return {prompt: first for prompt, first, _, number in parts if first in known and number.isdigit()}


@dataclass(frozen=True, kw_only=True)
class _Selection:
    """Which cells of a block count."""

    kept: NDArray[np.bool_]
    excluded: frozenset[stats.Cell]
    disturbed: float
    look: int | None


def _selections(
    members: Sequence[RunSpec],
    measured: Mapping[RunSpec, stats.Rates],
    grid: _Grid,
    runs: Runs,
    stopping: stats.StoppingRule | None,
) -> dict[RunSpec, _Selection]:
    """Return by block which cells count: those that all arms have, less those that are excluded.

    With a stopping rule, these are the cells of the repeats up to the last look.

    A run is excluded only for a disturbance from outside that was recorded, or for a text that no near-tie
    explains; then its cell is excluded for all arms. Where that would be most cells, nothing is excluded. An
    arm of which more than a fifth of the texts differ does not exclude them: it is not fair as such, and its
    warning says so.
    """
    everywhere = np.ones(len(runs), dtype=np.bool_)
    disturbed = grid.table(np.array([*map(_was_disturbed, runs.column("doubts"))], dtype=float), everywhere)
    texts = zip(runs.specs, runs.column("text_identical"), runs.column("difference"), strict=True)
    differing = grid.table(np.array([_differs(*text) for text in texts], dtype=float), everywhere)
    made = ~np.isnan(disturbed)
    repeats = np.array(grid.repeats)
    selections = {}
    for one_block in dict.fromkeys(map(_block, members)):
        in_block = [number for number, spec in enumerate(members) if _block(spec) == one_block]
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
        selections[one_block] = _Selection(
            kept=kept if look is None else kept & (repeats < look),
            excluded=frozenset(
                (grid.prompts[row], grid.repeats[column]) for row, column in np.argwhere(excluded).tolist()
            ),
            disturbed=float(np.nanmean(of_block)) if present.any() else 0.0,
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


def _was_disturbed(names: Sequence[str]) -> bool:
    return not _DISTURBANCES.isdisjoint(names)


def _differs(spec: RunSpec, identical: bool | None, difference: Difference | None) -> bool:
    """Whether a text is known to differ from the target's own by more than near-ties."""
    if spec.servers is not None:
        return False  # the target of a running server cannot be asked
    near_tie = difference is not None and difference.verdict is TextVerdict.NEAR_TIE
    return identical is False and not near_tie


def _members(runs: Runs) -> tuple[list[RunSpec], NDArray[np.intp]]:
    """Return the arms in the order of their first runs, and for each run the place of its own among them."""
    specs, spec_of = runs.by_spec()
    first: dict[str, RunSpec] = {}
    members: dict[RunSpec, int] = {}
    files: dict[str, ModelFile] = {}
    arm_of = np.empty(len(specs), dtype=np.intp)
    for number in dict.fromkeys(spec_of.tolist()):
        spec = first.setdefault(specs[number].key, specs[number])
        arm_of[number] = members.setdefault(_of(_with_first_files(spec, files)), len(members))
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


def _of(spec: RunSpec) -> RunSpec:
    """Return a run's arm; older benches name a drafter even for the target alone."""
    return replace(spec.baseline if spec.role is Role.TARGET else spec, prompt=NO_PROMPT)


def _block(spec: RunSpec) -> RunSpec:
    """Return what an arm is compared with, whatever its llama.cpp."""
    return replace(spec.baseline, build=None)


def _rank(spec: RunSpec) -> tuple[int, int, int, str, float, float]:
    """Sort the target alone first, then each drafter alone, then drafting by method and draft size."""
    drafter = spec.pair.draft.filename if spec.pair.draft and spec.role is not Role.TARGET else ""
    drafting = spec.drafting
    return (
        tuple(Role).index(spec.role),
        tuple(Method).index(drafting.method) if drafting else 0,
        len(drafting.first) if drafting else 0,
        drafter,
        drafting.n_max if drafting else 0,
        drafting.p_min if drafting else 0.0,
    )


def _layers(outputs: Sequence[Sample], backend: str | None) -> LayerCounts | None:
    """Return what the logs say went to the GPU; a build for the processor alone offloads nothing.

    Such a build may still claim that it offloaded (a library with remote devices compiled in does), so its
    claim is not asked.
    """
    ok = Status.OK
    logged = [sample for sample in outputs if sample.status is ok]
    total = next((sample.total_layers for sample in logged if sample.total_layers), None)
    if backend == "cpu":
        return LayerCounts(offloaded=0, total=total) if logged else None
    offloaded = next(
        (sample.offloaded_layers for sample in logged if sample.offloaded_layers is not None), None
    )
    return None if offloaded is None else LayerCounts(offloaded=offloaded, total=total)
