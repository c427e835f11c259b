"""What a bench compares: its runs grouped into arms, each with its estimates, pure and ready to print."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import median

import numpy as np
from numpy.typing import NDArray

from ggufspec import stats
from ggufspec.analysis import acceptance, warnings, windows
from ggufspec.analysis.acceptance import Acceptance
from ggufspec.analysis.warnings import MeasurementWarning
from ggufspec.domain import NO_PROMPT, Method, ModelFile, Role, RunSpec, Sample, Status
from ggufspec.results import ResultSet, Runs

PARTIAL = "partial"
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

    ``good`` are those that ended well and are plausible: they enter the means. ``outputs`` are what these
    said, but for texts and times, and ``rates`` their tokens/s, see ``windows``. ``baseline`` is
    the target alone under the same settings, for an arm that drafts. All other figures follow from these;
    each is computed when somebody asks for it first.
    """

    spec: RunSpec
    runs: Runs
    good: Runs
    outputs: Sequence[Sample]
    rates: stats.Rates
    baseline: Arm | None
    layers: LayerCounts | None
    draft_layers: LayerCounts | None

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
        """γ, where something drafts."""
        return self.spec.drafting.n_max if self.spec.drafting else None

    @property
    def models(self) -> tuple[str, ...]:
        """What this arm runs: the files of its models, and the method where no model drafts."""
        return models(self.spec)

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
        """Tokens/s over all prompts; see stats.py for the interval."""
        return stats.mean_rate(self.rates)

    @cached_property
    def gain(self) -> stats.Effect | None:
        """The speed-up over the baseline, with its interval, p and verdict."""
        return stats.paired_effect(self.rates, self.baseline.rates) if self.baseline else None

    @cached_property
    def acceptance(self) -> Acceptance | None:
        """Acceptance over all good runs together; None where nothing drafts."""
        return acceptance.of(self.outputs) if self.spec.drafting else None

    @property
    def round_ms(self) -> dict[str, float]:
        """Milliseconds of a round: drafting, verification, the rest; empty where nobody tells."""
        columns = map(self.good.column, ("draft_s", "verify_s", "gen_s", "n_rounds"))
        told = [parts for parts in zip(*columns, strict=True) if parts[0] and parts[1]]
        if len(told) < len(self.good) or not told or self.draft_size is None:
            return {}
        draft, verify, whole, rounds = (sum(column) for column in zip(*told, strict=True))
        each = {"draft": draft, "verify": verify, "rest": whole - draft - verify}
        return {f"{name}_ms_per_round": seconds * 1000 / rounds for name, seconds in each.items()}

    @property
    def ttft_s(self) -> float | None:
        """Median time to the first token, where the engine sees it."""
        seen = [seconds for seconds in self.good.column("ttft_s") if seconds is not None]
        return median(seen) if seen else None

    @cached_property
    def energy(self) -> dict[str, Energy]:
        """Energy per token by device, of those devices whose energy was measured."""
        found = {}
        for device, own in self.joules.items():
            alone = self.baseline.joules.get(device) if self.baseline else None
            per_token = stats.mean_rate(own)
            if per_token is not None:
                ratio = stats.paired_effect(own, alone) if alone else None
                found[device] = Energy(
                    device=device, runs=len(own), per_token=per_token, ratio=ratio.ratio if ratio else None
                )
        return found

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
        cells = [(spec.prompt.id, each) for spec, each in zip(runs.specs, runs.column("repeat"), strict=True)]
        found = {}
        for device, joules in used.items():
            each_token = joules / runs.numbers("decoded")
            counts = np.flatnonzero(requests & (each_token > 0)).tolist()
            found[device] = {cells[place]: float(each_token[place]) for place in counts}
        return found

    @property
    def compared(self) -> dict[str, bool]:
        """Prompt id -> whether every one of its compared texts is the target's own."""
        found: dict[str, bool] = {}
        for spec, same in zip(self.good.specs, self.good.column("text_identical"), strict=True):
            if same is not None:
                found[spec.prompt.id] = found.get(spec.prompt.id, True) and same
        return found

    @property
    def status(self) -> str:
        """``ok``, ``partial``, or the most frequent failure where no run counts."""
        if len(self.good) == len(self.runs):
            return Status.OK.value
        if self.good:
            return PARTIAL
        return Counter(warnings.outcome(run).value for run in self.runs).most_common(1)[0][0]


def models(spec: RunSpec) -> tuple[str, ...]:
    """Return what a run takes: the files of its models, and the method where no model drafts."""
    drafting = spec.drafting
    if drafting is not None and not drafting.method.needs_drafter:
        return (spec.model.filename, drafting.method.value)
    return (spec.model.filename, spec.drafter.filename) if spec.drafter else (spec.model.filename,)


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


def group(results: ResultSet) -> tuple[Arm, ...]:
    """Return the arms of a bench: each baseline with what is compared with it, in the order of the axes."""
    runs = results.current
    members, arm_of = _members(runs)
    tps, outputs = counted(runs), runs.outputs
    places = {spec: np.flatnonzero(arm_of == number).tolist() for number, spec in enumerate(members)}
    good = {spec: np.flatnonzero((arm_of == n) & (tps > 0)).tolist() for n, spec in enumerate(members)}
    rates = dict(zip(members, _rates(runs, arm_of, tps), strict=True))
    layers = {spec: _layers([outputs[place] for place in places[spec]], results) for spec in members}
    drafters = {
        (spec.model, spec.offload.draft_layers): layers[spec] for spec in members if spec.role is Role.DRAFTER
    }
    order = {spec.baseline: number for number, spec in reversed(list(enumerate(members)))}
    found: dict[RunSpec, Arm] = {}
    for spec in sorted(members, key=lambda spec: (order[spec.baseline], *_rank(spec))):
        found[spec] = Arm(
            spec=spec,
            runs=runs.select(places[spec]),
            good=runs.select(good[spec]),
            outputs=[outputs[place] for place in good[spec]],
            rates=rates[spec],
            baseline=found.get(spec.baseline) if spec.role is Role.DRAFTING else None,
            layers=None if spec.role is Role.DRAFTER else layers[spec],
            draft_layers=drafters.get((spec.pair.draft, spec.offload.draft_layers))
            if spec.pair.draft is not None and spec.role is not Role.TARGET
            else None,
        )
    return tuple(found.values())


def _rates(runs: Runs, arm_of: NDArray[np.intp], tps: NDArray[np.float64]) -> Iterator[stats.Rates]:
    """Yield the tokens/s of each arm."""
    specs, spec_of = runs.by_spec()
    prompts = sorted({spec.prompt.id for spec in specs})
    row = {prompt: number for number, prompt in enumerate(prompts)}
    row_of = np.array([row[spec.prompt.id] for spec in specs], dtype=np.intp)[spec_of]
    repeats, column_of = np.unique(np.array(runs.column("repeat"), dtype=np.intp), return_inverse=True)
    tables = np.full((arm_of.max(initial=-1) + 1, len(prompts), len(repeats)), np.nan)
    good = tps > 0
    tables[arm_of[good], row_of[good], column_of[good]] = tps[good]
    return (stats.Rates(prompts, repeats.tolist(), table) for table in tables)


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


def _rank(spec: RunSpec) -> tuple[int, int, str, float, float]:
    """Sort the target alone first, then each drafter alone, then drafting by method and draft size."""
    drafter = spec.pair.draft.filename if spec.pair.draft and spec.role is not Role.TARGET else ""
    drafting = spec.drafting
    return (
        tuple(Role).index(spec.role),
        tuple(Method).index(drafting.method) if drafting else 0,
        drafter,
        drafting.n_max if drafting else 0,
        drafting.p_min if drafting else 0.0,
    )


def _layers(outputs: Sequence[Sample], results: ResultSet) -> LayerCounts | None:
    """Return what the logs say went to the GPU; a build for the processor alone offloads nothing.

    Such a build may still claim that it offloaded (a library with remote devices compiled in does), so its
    claim is not asked.
    """
    ok = Status.OK
    told = [said for said in outputs if said.status is ok]
    total = next((said.total_layers for said in told if said.total_layers), None)
    if results.meta.build.backend == "cpu":
        return LayerCounts(offloaded=0, total=total) if told else None
    offloaded = next((said.offloaded_layers for said in told if said.offloaded_layers is not None), None)
    return None if offloaded is None else LayerCounts(offloaded=offloaded, total=total)
