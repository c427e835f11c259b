"""One arm of a bench: its runs, and the estimates that follow from them, pure and ready to print."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import geometric_mean, median

import numpy as np
from numpy.typing import NDArray

from ggufspec import stats
from ggufspec.analysis import acceptance, judging, texts, traffic, warnings
from ggufspec.analysis.acceptance import Acceptance, AcceptanceIntervals
from ggufspec.analysis.traffic import TrafficFigures
from ggufspec.domain import (
    Build,
    RequestOutcome,
    Role,
    RunSpec,
    Sample,
    SpeedJudgement,
    Status,
    TextVerdict,
    UserRequest,
)
from ggufspec.results import Runs

_LEAST_FAILURES = 2  # a single failure is an accident, and clipping would leave such a run out, too
_LARGEST_DIFFERENCE = 0.02
"""Of the share of failed runs between two arms.

Where one run in fifty is cut that takes 30 % longer, a mean moves by 0.6 %: less than ``judging.THRESHOLD``.
"""


@dataclass(frozen=True, kw_only=True)
class Failures:
    """How many runs, or requests of several users, failed, and of how many.

    A time limit that cuts the slow runs of one arm alone makes that arm faster than it is, and no interval of
    the other runs knows of it. Where both arms lose alike, their ratio keeps its meaning.
    """

    failed: int = 0
    of: int = 0

    @property
    def share(self) -> float:
        """From 0 to 1."""
        return self.failed / self.of if self.of else 0.0

    def differs_from(self, other: Failures) -> bool:
        """Whether so many more failed on one side that what is left may be its fast ones."""
        is_more = abs(self.failed - other.failed) >= _LEAST_FAILURES
        return is_more and abs(self.share - other.share) > _LARGEST_DIFFERENCE


def count_failures(runs: Sequence[Runs]) -> tuple[Failures, Failures]:
    """Return the failures of an arm's runs, and of the requests in those of several users."""
    statuses = [status for one in runs for status in one.column("status")]
    outcomes = [
        request.outcome
        for one in runs
        for traffic in one.column("traffic")
        if traffic is not None
        for request in traffic.requests
        if request.outcome is not RequestOutcome.STOPPED  # by ggufspec, at the end of a run
    ]
    return (
        Failures(failed=len(statuses) - statuses.count(Status.OK), of=len(statuses)),
        Failures(failed=sum(outcome is not RequestOutcome.OK for outcome in outcomes), of=len(outcomes)),
    )


def fails_unlike(one: Sequence[Runs], other: Sequence[Runs]) -> bool:
    """Whether the runs or requests of one arm fail more often than those of another."""
    pairs = zip(count_failures(one), count_failures(other), strict=True)
    return any(first.differs_from(second) for first, second in pairs)


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
class ComparedRates:
    """The tokens/s of arms that are compared, whose far runs are clipped together, on first use."""

    unclipped: Mapping[RunSpec, stats.Rates]

    @cached_property
    def clipped(self) -> Mapping[RunSpec, stats.Rates]:
        """The rates of each arm, see ``stats.clip``."""
        return dict(zip(self.unclipped, stats.clip([*self.unclipped.values()]), strict=True))


@dataclass(frozen=True, kw_only=True)
class Arm:
    """All runs of one specification over all prompts; ``spec`` is that, without a prompt.

    ``good`` are those that ended well and are plausible. ``baseline`` is the target alone under the same
    settings, for an arm that drafts. ``build`` is the llama.cpp that ran it, and ``counterpart`` the same arm
    with the first llama.cpp, in a bench of several.
    All other figures follow from these; each is computed on first use.

    Attributes:
        measured: tokens/s of all good runs, see ``rates``.
        compared_rates: those of the cells that all arms of the block have and that are not excluded.
        excluded: the cells that are excluded for every arm, because a run of one arm was disturbed from
            outside or wrote another text.
        disturbed: the share of its runs that count although something disturbed them of which it is not
            known what it did, as swapping and heat, 0 to 1. What other programs did is part of intervals.
        stopping: when the bench was looked at, if it is measured until its verdicts are decided. Intervals
            and verdicts are then those of the last look, and ``rates`` the repeats up to it.
        look: the complete repeats at that look; None before the first one, and in other benches.
        runs_done: runs of the whole bench.
        runs_planned: what its plan counts; None where that is not recorded.
    """

    spec: RunSpec
    runs: Runs
    good: Runs
    measured: stats.Rates
    compared_rates: ComparedRates
    excluded: frozenset[stats.Cell]
    disturbed: float
    baseline: Arm | None
    layers: LayerCounts | None
    draft_layers: LayerCounts | None
    build: Build
    counterpart: Arm | None = None
    stopping: stats.StoppingRule | None = None
    look: int | None = None
    runs_done: int = 0
    runs_planned: int | None = None

    @property
    def role(self) -> Role:
        """What this arm measures."""
        return self.spec.role

    @cached_property
    def rates(self) -> stats.Rates:
        """Tokens/s of the cells that all arms of the block have and that are not excluded, far runs clipped.

        All figures of speed are of these, so that the quotient of two arms in a table is their speed-up.
        """
        return self.compared_rates.clipped[self.spec]

    @property
    def outputs(self) -> Sequence[Sample]:
        """The samples of the good runs, without texts and times."""
        return self.good.outputs

    @property
    def synthetic(self) -> bool:
        """Whether acceptance was simulated: then the texts have no meaning."""
        return bool(self.spec.drafting and self.spec.drafting.synthetic)

    @property
    def what(self) -> str:
        """What this arm measures, in words."""
        return f"{self.role.value}, synthetic" if self.synthetic else self.role.value

    @property
    def speed(self) -> float:
        """Its tokens/s; 0 where they are not known, which is behind all others."""
        return self.rate.value if self.rate else 0.0

    @property
    def draft_size(self) -> int | None:
        """γ, where something drafts and it is known."""
        return self.spec.draft_size

    @property
    def models(self) -> tuple[str, ...]:
        """What this arm runs: the files of its models, and the method where no model drafts."""
        return models_of(self.spec)

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
        """The speed-up over the baseline, with its interval and p; ``judgement`` says what follows."""
        return self._compare_with(self.baseline, lambda arm: arm.rates, self.compare)

    @cached_property
    def judgement(self) -> SpeedJudgement | None:
        """Whether it is faster than its baseline; None for an arm without one."""
        return None if self.baseline is None else self.judge(self.baseline)

    def judge(self, baseline: Arm, prompts: Set[str] | None = None) -> SpeedJudgement:
        """Judge this arm against another, over some prompts or all."""
        rates, others = (arm.rates if prompts is None else arm.rates_of(prompts) for arm in (self, baseline))
        return self._judge(self._if_comparable(self.compare(rates, others), baseline), rates)

    def _judge(
        self, effect: stats.Effect | None, rates: stats.Rates, *, threshold: float = judging.THRESHOLD
    ) -> SpeedJudgement:
        present = ~np.isnan(rates.table)
        servers = self.spec.servers
        return judging.judge_effect(
            effect,
            prompts=int(present.any(axis=1).sum()),
            repeats=int(present.any(axis=0).sum()),
            runs_done=self.runs_done,
            runs_planned=self.runs_planned,
            text_differs=self.text_differs,
            threshold=threshold,
            repeats_load=servers is None or len(servers.endpoints) >= 2 * stats.MIN_LOADS,
            family=1 if self.stopping is None else self.stopping.comparisons,
        )

    @cached_property
    def text_differs(self) -> bool:
        """Whether the target finds that a text of this arm is not its own, near-ties aside."""
        differences, audits = self.runs.column("difference"), self.runs.column("audit")
        return self.role is Role.DRAFTING and any(
            (difference is not None and difference.verdict is TextVerdict.DIVERGENCE)
            or (audit is not None and bool(audit.divergent))
            for difference, audit in zip(differences, audits, strict=True)
        )

    @cached_property
    def gain_of_all(self) -> stats.Effect | None:
        """The speed-up of all runs as measured: none is excluded or clipped."""
        return self._compare_with(self.baseline, lambda arm: _until(arm.measured, self.look), self.compare)

    @property
    def is_decided(self) -> bool:
        """Whether it was found to be faster than its baseline, slower, or the same."""
        return self.judgement is not None and self.judgement.is_decided

    def compare(self, rates: stats.Rates, baseline: stats.Rates) -> stats.Effect | None:
        """Compare some of this arm's rates with others, by the procedure of the bench's intervals."""
        if self.stopping is not None and self.look is not None:
            return stats.fixed_effect(rates, baseline, tests=self.stopping.tests)
        effect = stats.paired_effect(rates, baseline)
        if effect is None or self.stopping is None:
            return effect
        return effect.without_interval(stats.Gap.NO_LOOK)

    @cached_property
    def median_gain(self) -> float | None:
        """The speed-up from each prompt's median over repeats: a check that few runs do not decide it."""
        return stats.median_ratio(self.rates, self.baseline.rates) if self.baseline else None

    @cached_property
    def work_gain(self) -> float | None:
        """The speed-up of all texts together: total tokens over total time, over that of the baseline."""
        rate, alone = self.work_rate, self.baseline.work_rate if self.baseline else None
        return rate / alone if rate and alone else None

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
        """The speed over the same arm's with the first llama.cpp on these prompts, with interval and p."""
        return self._compare_with(self.counterpart, lambda arm: arm.rates, stats.fixed_effect)

    @property
    def change_judgement(self) -> SpeedJudgement | None:
        """Whether it is faster than the same arm with the first llama.cpp; None without that."""
        return self.judge_change()

    def judge_change(self, *, threshold: float = judging.THRESHOLD) -> SpeedJudgement | None:
        """Judge the arm against the same with the first llama.cpp; None without that.

        Args:
            threshold: the smallest change that matters, 0.01 for 1 %.
        """
        if self.counterpart is None:
            return None
        return self._judge(self.change, self.rates, threshold=threshold)

    def fails_unlike(self, other: Arm) -> bool:
        """Whether so many more runs of one of two arms failed that the others may be its fast ones."""
        return fails_unlike([self.runs], [other.runs])

    def _compare_with(
        self,
        other: Arm | None,
        rates: Callable[[Arm], stats.Rates],
        compare: Callable[[stats.Rates, stats.Rates], stats.Effect | None],
    ) -> stats.Effect | None:
        """Compare rates of this arm with those of another; None without that."""
        return None if other is None else self._if_comparable(compare(rates(self), rates(other)), other)

    def _if_comparable(self, effect: stats.Effect | None, other: Arm) -> stats.Effect | None:
        """Return a comparison with another arm; its estimate alone where no interval would hold.

        That is where the two do not fail alike, or where it is not known what disturbed many of the runs did.
        """
        if effect is not None and self.fails_unlike(other):
            return effect.without_interval(stats.Gap.UNLIKE_FAILURES)
        if effect is not None and max(self.disturbed, other.disturbed) > judging.MOST_DISTURBED:
            return effect.without_interval(stats.Gap.DISTURBED)
        return effect

    @cached_property
    def acceptance(self) -> Acceptance | None:
        """Acceptance over all good runs together; None where nothing drafts."""
        return acceptance.of_counted(self.good.counted_outputs) if self.role is Role.DRAFTING else None

    @cached_property
    def acceptance_intervals(self) -> AcceptanceIntervals | None:
        """The same with intervals over prompts, or over conversations; None where nothing drafts."""
        return self.with_intervals(self.outputs)

    def with_intervals(self, outputs: Sequence[Sample]) -> AcceptanceIntervals | None:
        """Return the acceptance in parts of the good runs, one for each, with intervals over prompts."""
        units = self.measured.conversations
        of_unit: dict[str, list[Sample]] = {}
        for spec, output in zip(self.good.specs, outputs, strict=True):
            of_unit.setdefault(units.get(spec.prompt.id, spec.prompt.id), []).append(output)
        if self.role is not Role.DRAFTING:
            return None
        return acceptance.intervals(of_unit, repeats=self.repeats, draft_size=self.draft_size)

    @cached_property
    def round_ms(self) -> dict[str, float]:
        """Milliseconds of a round: drafting, verification, the rest; empty where the log does not say."""
        columns = [*map(self.good.column, ("draft_s", "verify_s", "gen_s", "n_rounds"))]
        if not all(all(column) for column in columns[:2]) or not self.good or self.draft_size is None:
            return {}
        draft, verify, whole, rounds = map(sum, columns)
        seconds_of = {"draft": draft, "verify": verify, "rest": whole - draft - verify}
        return {f"{name}_ms_per_round": seconds * 1000 / rounds for name, seconds in seconds_of.items()}

    @property
    def ttft_s(self) -> float | None:
        """Median time to the first token, where the engine sees it."""
        seen = [seconds for seconds in self.good.column("ttft_s") if seconds is not None]
        return median(seen) if seen else None

    @cached_property
    def first_tokens(self) -> stats.Rates:
        """Seconds to the first token by prompt, those that users send among them, where they are seen."""
        if self.spec.traffic is not None:
            return self.of_requests(lambda request: request.ttft_s)
        return self.table(np.nan_to_num(self.good.numbers("ttft_s")))

    @cached_property
    def traffic(self) -> TrafficFigures | None:
        """What several users saw in all runs; None for one request after another."""
        return traffic.summarize_traffic(self.runs)

    def of_requests(self, figure: Callable[[UserRequest], float | None]) -> stats.Rates:
        """Return a figure of answered requests by prompt and repeat, the geometric mean where several are."""
        sent, values = self.spec.traffic, dict[stats.Cell, list[float]]()
        assert sent is not None
        kept = {repeat for _, repeat in self.rates}
        for repeat, sample in zip(*map(self.good.column, ("repeat", "traffic")), strict=True):
            for request in sample.requests if repeat in kept else ():
                if request.outcome is RequestOutcome.OK and (value := figure(request)):
                    cell = sent.prompts[request.prompt].id, repeat
                    values.setdefault(cell, []).append(value)
        rates = stats.Rates.of({cell: geometric_mean(of_cell) for cell, of_cell in values.items()})
        if self.rates.loads is None:
            return rates
        in_runs = self.rates.loads[:1, [self.rates.columns[repeat] for repeat in rates.repeats]]
        return replace(rates, loads=np.repeat(in_runs, len(rates.prompts), axis=0))

    @cached_property
    def request_rates(self) -> stats.Rates:
        """Tokens/s behind the first token of requests, by the prompts that users send."""
        return self.of_requests(lambda request: request.token_s and 1 / request.token_s)

    def rates_of(self, prompts: Set[str]) -> stats.Rates:
        """Return tokens/s on some prompts: those of runs, or those that users send in a run."""
        rates = self.rates if prompts <= self.rates.rows.keys() else self.request_rates
        return rates.of_prompts(prompts)

    @cached_property
    def user_rates(self) -> stats.Rates:
        """Tokens/s of each user in the cells of ``rates``; empty without traffic."""
        samples = self.good.column("traffic")
        seen = [None if sample is None else traffic.user_rate(sample) for sample in samples]
        users = self.table(np.array(seen, dtype=np.float64))
        return users if self.rates.clipped is None else stats.replace_rates(users, self.rates.clipped)

    def table(self, values: NDArray[np.float64]) -> stats.Rates:
        """Return positive values of the good runs in the cells of ``rates``, which know their loads."""
        table = np.full(self.rates.table.shape, np.nan)
        for (prompt, repeat), value in zip(_cells(self.good), values.tolist(), strict=True):
            if value > 0 and (prompt, repeat) in self.rates:
                table[self.rates.rows[prompt], self.rates.columns[repeat]] = value
        return replace(self.rates, table=table, clipped=np.zeros(table.shape, dtype=np.bool_))

    @cached_property
    def user_rate(self) -> stats.Estimate | None:
        """Tokens/s that each of several users sees; None without traffic."""
        return stats.mean_rate(self.user_rates)

    @cached_property
    def user_gain(self) -> stats.Effect | None:
        """How many times faster each user is served than by the baseline at the same number of users."""
        return self._compare_with(self.baseline, lambda arm: arm.user_rates, stats.paired_effect)

    @cached_property
    def energy(self) -> dict[str, Energy]:
        """Energy per token by device, of those devices whose energy was measured."""
        energies = {}
        for device, joules in self.joules.items():
            alone = self.baseline.joules.get(device) if self.baseline else None
            per_token = stats.mean_rate(joules)
            if per_token is not None:
                ratio = None
                if self.baseline is not None and alone is not None:
                    ratio = self._if_comparable(self.compare(joules, alone), self.baseline)
                energies[device] = Energy(
                    device=device, runs=len(joules), per_token=per_token, ratio=ratio.ratio if ratio else None
                )
        return energies

    @cached_property
    def joules(self) -> dict[str, stats.Rates]:
        """J per token by device, in the cells of ``rates`` whose energy is that of their request."""
        runs = self.good
        used = {device: runs.numbers(name) for device, name in _DEVICES.items()}
        used = {device: joules for device, joules in used.items() if not np.isnan(joules).all()}
        if not used:
            return {}
        prompt_tps, prompt_s = runs.numbers("prompt_tps"), np.zeros(len(runs))
        np.divide(runs.numbers("prompt_tokens"), prompt_tps, out=prompt_s, where=prompt_tps > 0)
        decode_s = runs.numbers("gen_s") + np.nan_to_num(runs.numbers("sampling_s"))
        requests = np.nan_to_num(prompt_s) + decode_s >= _MOSTLY * runs.numbers("wall_s")
        return {
            device: self.table(np.where(requests, joules / runs.numbers("decoded"), np.nan))
            for device, joules in used.items()
        }

    @cached_property
    def audit(self) -> texts.AuditSummary | None:
        """What the audits of the texts say together; None where none was audited or compared."""
        return texts.summarize_audits(self.good)

    @cached_property
    def validity(self) -> texts.Validity | None:
        """How many answers have the form that their prompts ask for; None where none is asked for."""
        return texts.judge_validity(self.good)

    @cached_property
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
            return PARTIAL if worth is Status.OK else worth.value
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


def models_of(spec: RunSpec) -> tuple[str, ...]:
    """Return what a run takes: the files of its models, and methods that draft without a file."""
    files = [spec.model.filename, *([spec.drafter.filename] if spec.drafter else [])]
    if spec.drafting is None:
        return tuple(files)
    methods = [*spec.drafting.first, *([spec.drafting.method] if spec.drafter is None else [])]
    return (*files, *(["+".join(methods)] if methods else []))
