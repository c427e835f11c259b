"""What to measure where no library can trace, so that nothing is forecast: sizes spread over every source.

Only the chosen engine is used: timed requests say what fits into the time. ``running`` then measures the
neighbours of the fastest one, as long as there is time.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from ggufspec import temporary
from ggufspec.domain import Failure, Program, RunSpec, Status
from ggufspec.engines import Engine, Measurement
from ggufspec.tuning import budgeting, prospects
from ggufspec.tuning.budgeting import Pace, Wanted
from ggufspec.tuning.values import Plan, Spent, TuningForecast

_SIZES_EACH = 3  # draft sizes of a source that are measured first: its own one, and those farthest from it
_TIMED = 32  # tokens of a timed request


def plan_measuring(plan: Plan) -> TuningForecast:
    """Time some requests; return what to measure, without a forecast.

    Raises:
        Failure: the target alone cannot be measured.
        TimeLimitError: not even the least fits into the time limit.
    """
    begun = time.monotonic()
    suite = plan.session.suite
    arms = prospects.in_measuring_order(prospects.drafting_arms(plan.blocks))
    n_sources = len({prospects.source(arm) for arm in arms})
    pace = _time_requests(plan, arms[0])
    wanted = Wanted(
        prompts=sum(1 + len(prompt.followups) for prompt in suite.prompts),
        n_predict=plan.alone.n_predict,
        users=plan.users,
        finalists=min(len(arms), _SIZES_EACH * n_sources),
        traces=False,
        launches=Program.SERVER in plan.session.install.programs,
    )
    budget = budgeting.plan_budget(plan.deadline, pace, wanted)
    return TuningForecast(
        prospects=(),
        unknown=arms[: budget.finalists],
        prompts=budgeting.affordable_prompts(suite.prompts, budget),
        n_predict=budget.n_predict,
        finalists=1,
        pace=pace,
        spent=Spent(calibration_s=time.monotonic() - begun),
        notes=(
            *budgeting.describe_budget(budget, wanted, plan.deadline),
            *_left_out(arms[:n_sources], budget.finalists),
        ),
    )


def _left_out(first: Sequence[RunSpec], measured: int) -> Iterator[str]:
    """Say for which sources of drafts there is no time; ``first`` has one configuration of each."""
    for arm in first[measured:]:
        assert arm.drafting is not None
        name = arm.drafting.chain if arm.draft_source is None else arm.draft_source.filename
        yield f"time: {name} left out, because --max-time was too short to measure it"


def _time_requests(plan: Plan, drafting: RunSpec) -> Pace:
    """Return how long requests take in the engine that measures: two are sent, the second to a warm program.

    One that drafts is sent, too: a drafter makes loads longer.

    Raises:
        Failure: a run of the target alone failed, or took too long.
    """
    with temporary.folder() as scratch, plan.session.engine as engine:
        first_s, _ = _send(plan, engine, plan.alone, scratch / "alone")
        again_s, alone = _send(plan, engine, plan.alone, scratch / "alone")
        drafting_s, _ = _send(plan, engine, drafting, scratch / "drafting")
        keeps_loads = engine.load_key(plan.alone) is not None
    if alone.sample.status is not Status.OK or not alone.sample.decode_tps:
        raise Failure(alone.sample.status, alone.error or "the target alone decoded nothing")
    token_s = 1 / alone.sample.decode_tps
    beside_s = max(0.0, again_s - (alone.sample.decoded or 0) * token_s)
    if not keeps_loads:
        return Pace(token_s=token_s, load_s=0.0, run_s=max(beside_s, beside_s + drafting_s - again_s))
    return Pace(token_s=token_s, load_s=max(first_s, drafting_s, again_s) - again_s, prompt_s=beside_s)


def _send(plan: Plan, engine: Engine, arm: RunSpec, log: Path) -> tuple[float, Measurement]:
    """Return the seconds of a short run on the first prompt, its load included, and the run."""
    prompt, *_ = plan.session.suite.prompts
    spec = replace(arm, prompt=replace(prompt, followups=()), n_predict=min(_TIMED, arm.n_predict))
    own_s, begun = engine.timeout_s, time.monotonic()
    engine.timeout_s = plan.deadline.timeout_s(own_s)
    try:
        measured = engine.measure(spec, log)
    finally:
        engine.timeout_s = own_s
    return time.monotonic() - begun, measured
