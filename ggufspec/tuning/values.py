"""The values of tuning: forecasts of configurations, measured choices, and the verdict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ggufspec import notebooks
from ggufspec.analysis import Arm, arms
from ggufspec.domain import Launch, ModelFile, Offload, Program, Prompt, RunSpec, Serving, Traffic
from ggufspec.forecast import Advice, Calibration, Forecast
from ggufspec.forecast.costs import CostCurve
from ggufspec.forecast.whatif import Machines
from ggufspec.measure import NO_DEADLINE, Block, Deadline, Session
from ggufspec.modelfiles.gguf import ModelCard
from ggufspec.results import Recommendation, ResultSet
from ggufspec.serving import plan_traffic
from ggufspec.tuning.budgeting import Pace, Wanted

CostSetup = tuple[Offload, ModelFile | None]
"""What costs depend on: where layers are, and which model drafts."""

Curves = dict[CostSetup, CostCurve]


def cost_setup(arm: RunSpec) -> CostSetup:
    """Return what the costs of a configuration depend on."""
    return arm.offload, arm.draft_source


@dataclass(frozen=True, kw_only=True)
class Prospect:
    """A configuration that drafts, with its forecasts over all prompts and by category."""

    arm: RunSpec
    overall: Forecast
    by_category: Mapping[str, Forecast]

    def forecast(self, category: str | None) -> Forecast:
        """Return the forecast of a category; None means all prompts."""
        return self.overall if category is None else self.by_category[category]


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A checked session, the configurations to choose from, and the time limit.

    Attributes:
        session: how the finalists will be measured; its suite holds all prompts.
        serving: what the configurations are to serve; all are measured with memory for that.
        blocks: the configurations, each block with the target alone first.
        vram_bytes: GPU memory to plan with; None without a GPU.
        deadline: the time limit of the whole tuning.
        precision: requested relative half width of the speed-ups' intervals.
        forecast_only: nothing is measured after the forecast: short runs of the target alone and at a
            middle γ correct the costs.
        fresh: measure costs again, even where stored ones could be reused.
        beyond: larger draft sizes, to follow the best one beyond the largest of ``blocks``; none where the
            draft sizes were given.
        why_untraced: why llama.cpp's library cannot trace, see ``untraced``; None where it can.
        users: who send requests at once, in what is measured to choose and to confirm; None for one request
            after another. The specifications of ``blocks`` and ``beyond`` are of one request at a time, with
            the context of all slots: costs are timed with these.
        mixture: the target's header, where it is a mixture of experts.
        simulated: the machine whose peaks stand in for costs; None to time this one.
    """

    session: Session
    serving: Serving
    blocks: tuple[Block, ...]
    vram_bytes: int | None
    precision: float | None
    deadline: Deadline = NO_DEADLINE
    forecast_only: bool = False
    fresh: bool = False
    beyond: tuple[RunSpec, ...] = ()
    why_untraced: str | None = None
    users: int | None = None
    mixture: ModelCard | None = None
    simulated: Machines | None = None

    def plan_traffic(self, prompts: Sequence[Prompt]) -> Traffic | None:
        """Return what the users send of some prompts; None for one request after another."""
        if self.users is None:
            return None
        return plan_traffic(prompts, self.users, seed=self.session.suite.seed)

    @property
    def launches(self) -> bool:
        """Whether a server is started at the end."""
        return Program.SERVER in self.session.install.programs

    def wanted(self, **more: Any) -> Wanted:
        """Return what is wanted of the time limit, where there is time for it."""
        return Wanted(
            prompts=sum(prompt.n_turns for prompt in self.session.suite.prompts),
            n_predict=self.alone.n_predict,
            users=self.users,
            forecast_only=self.forecast_only,
            launches=self.launches,
            **more,
        )

    @property
    def alone(self) -> RunSpec:
        """The target alone, as a specification that waits for its prompt."""
        return self.blocks[0].arms[0]

    def with_threads(self, threads: int) -> Plan:
        """Return the plan with another number of threads."""
        blocks = tuple(block.replace(threads=threads) for block in self.blocks)
        return replace(
            self, blocks=blocks, beyond=tuple(replace(arm, threads=threads) for arm in self.beyond)
        )


@dataclass(frozen=True, kw_only=True)
class Stage:
    """The current step of a tuning, and how many of its parts are done.

    ``notes`` are sentences for people that are known from this step on.
    """

    name: str
    done: int
    total: int
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class NextBench:
    """A bench that a tuning or a crossover needs next.

    Attributes:
        session: what to measure.
        resume: the stored bench that it continues; None for a new one.
        confirms: whether its figures are the verdict.
        note: what is measured, or why it is measured again; None where nothing is to be said.
    """

    session: Session
    resume: str | None = None
    confirms: bool = False
    note: str | None = None


@dataclass(frozen=True, kw_only=True)
class Spent:
    """Seconds by stage."""

    traces_s: float = 0.0
    costs_s: float = 0.0
    calibration_s: float = 0.0
    measuring_s: float = 0.0

    @property
    def total_s(self) -> float:
        """The seconds of all stages."""
        return self.traces_s + self.costs_s + self.calibration_s + self.measuring_s


@dataclass(frozen=True, kw_only=True)
class TuningForecast:
    """All forecasts, and what the finalists are measured on.

    Attributes:
        prospects: of every configuration, in the order of the axes.
        unknown: configurations that cannot be forecast; they are measured.
        prompts: the traced prompts; those to measure where nothing was traced.
        n_predict: tokens of each.
        finalists: number of configurations that there is time to measure.
        pace: how long tokens, prompts and loads take here; None without a time limit.
        spent: seconds of the traces, the costs and the calibration.
        calibration: how the costs of the best forecast were corrected by measured runs.
        notes: what was left out, reused or shortened.
    """

    prospects: tuple[Prospect, ...]
    unknown: tuple[RunSpec, ...]
    prompts: tuple[Prompt, ...]
    n_predict: int
    finalists: int
    spent: Spent
    pace: Pace | None = None
    calibration: Calibration | None = None
    notes: tuple[str, ...] = ()

    def with_threads(self, threads: int) -> TuningForecast:
        """Return the same forecasts for configurations with another number of threads."""
        return replace(
            self,
            prospects=tuple(
                replace(prospect, arm=replace(prospect.arm, threads=threads)) for prospect in self.prospects
            ),
            unknown=tuple(replace(arm, threads=threads) for arm in self.unknown),
        )

    def prospect(self, spec: RunSpec) -> Prospect | None:
        """Return the forecasts of a configuration; the length of its texts does not matter."""
        return next((prospect for prospect in self.prospects if is_same(prospect.arm, spec)), None)


def is_same(first: RunSpec, other: RunSpec) -> bool:
    """Whether two specifications are of one configuration; prompts and lengths of texts do not matter."""
    return _configuration(first) == _configuration(other)


def _configuration(spec: RunSpec) -> tuple[object, ...]:
    return spec.model, spec.drafter, spec.offload, spec.drafting


@dataclass(frozen=True, kw_only=True)
class Selection:
    """What the finalists' runs select for confirmation. Their figures are biased upward by selection.

    Attributes:
        results: the stored bench of the target alone and the finalists.
        fastest: the fastest configuration that drafts; None where none may win.
        winner: the smallest draft among ``alike``.
        runner_up: the fastest other configuration; None without one.
        alike: configurations that are as good as the fastest by these runs, the smallest draft first.
        racing: configurations to load once more before one is chosen; none where the choice is good enough.
        by_category: configurations for categories that significantly need another one; the target alone, too.
        edge: γ of the fastest, where no larger draft size of its kind was measured.
        unlike_target: configurations whose text differs from the target's own, so that they cannot win.
    """

    results: ResultSet = field(repr=False)
    fastest: RunSpec | None = None
    winner: RunSpec | None = None
    runner_up: RunSpec | None = None
    alike: tuple[RunSpec, ...] = ()
    racing: tuple[RunSpec, ...] = ()
    by_category: Mapping[str, RunSpec] = field(default_factory=dict)
    edge: int | None = None
    unlike_target: tuple[RunSpec, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Tuned(notebooks.Shown):
    """The verdict, with the forecasts and measurements behind it.

    Attributes:
        outlook: what was forecast.
        selection: what was selected for confirmation, and from which runs.
        results: the stored bench that confirms: the target alone, the winner and the runner-up.
        overall: what to run over all prompts.
        by_category: what to run for each category of prompts that have two or more.
        refusal: why not to draft and what would have to change, where that is the verdict.
        spent: seconds of all stages.
        serving: what the choice is to serve; None where that was not asked for.
        launch: how llama-server answered when it was started with the choice; None without a llama-server.
        passed_over: faster configurations that could not be served, and why.
    """

    outlook: TuningForecast
    selection: Selection
    results: ResultSet = field(repr=False)
    overall: Recommendation
    by_category: Mapping[str, Recommendation]
    refusal: Advice | None
    spent: Spent
    serving: Serving | None = None
    launch: Launch | None = None
    passed_over: tuple[tuple[RunSpec, str], ...] = ()

    def confirmed(self, spec: RunSpec) -> Arm:
        """Return the arm of the bench that confirms with a specification of it."""
        return next(arm for arm in arms.group(self.results) if arm.spec == spec)
