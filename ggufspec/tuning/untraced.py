"""What to measure where no library can trace: only the chosen engine is used.

Timed requests say what fits into the time. One run of each prompt at the largest draft size of a draft model
tells the rounds of its smaller ones, and short runs at two others what they cost: so they are forecast. Of
heads, n-grams and whatever else cannot be replayed, sizes are spread over every source, and ``running`` then
measures the neighbours of the fastest one, as long as there is time.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path

from ggufspec import engines, forecast, temporary, units
from ggufspec.domain import Failure, Prompt, RunSpec, Sample, Status
from ggufspec.engines import Engine, Measurement
from ggufspec.errors import NoInstallError
from ggufspec.forecast import RoundsRun
from ggufspec.measure import Deadline, Session
from ggufspec.tuning import budgeting, prospects
from ggufspec.tuning.budgeting import Pace
from ggufspec.tuning.values import Plan, Prospect, Spent, Stage, TuningForecast

_NEEDED = "`ggufspec build` makes a llama.cpp whose library can trace texts"
_SIZES_EACH = 3  # draft sizes of a source that are measured first: its own one, and those farthest from it
_BY_ROUNDS = 3  # configurations that are measured of those that were forecast
_COST_SIZES = (1, 4)  # draft sizes beside the largest that are run for what their rounds cost
_COST_PROMPTS = 2  # of each of them, and of the target alone


def why_untraced(session: Session) -> str | None:
    """Return why no library can trace, whatever the engine; None where it can."""
    sent = (arm.prompts for block in session.suite.blocks for arm in block.arms)
    prompts = chain(session.suite.prompts, *sent)
    asked = sorted(frozenset[str]().union(*(prompt.needs for prompt in prompts)))
    if asked:
        return f"the library knows texts alone, and prompts have {', '.join(asked)}"
    try:
        engines.check_library(session.install)
    except NoInstallError as error:
        return f"{error.message} ({_NEEDED})"
    return None


def replayable(plan: Plan) -> list[list[RunSpec]]:
    """Return the configurations that rounds forecast, by source; a few sizes are rather measured."""
    if plan.users is not None:
        return []
    program, build = engines.ENGINES[plan.session.engine.name], plan.session.install.build_number
    arms = [arm for arm in prospects.drafting_arms(plan.blocks) if prospects.can_replay(arm, program, build)]
    return [group for group in prospects.groups(arms).values() if len(group) > _SIZES_EACH]


def plan_measuring(plan: Plan) -> Generator[Stage, None, TuningForecast]:
    """Time some requests and rounds; return what they forecast, and what to measure without a forecast.

    Raises:
        Failure: the target alone cannot be measured.
        TimeLimitError: not even the least fits into the time limit.
    """
    begun = time.monotonic()
    suite = plan.session.suite
    arms = prospects.in_measuring_order(prospects.drafting_arms(plan.blocks))
    by_rounds = replayable(plan)
    n_measured = len({*map(prospects.source, arms)}) - len(by_rounds)
    yield Stage(name="timing requests", done=0, total=1)
    drafting = max(by_rounds[0], key=lambda arm: arm.drafts_by.n_max) if by_rounds else arms[0]
    pace = _time_requests(plan, drafting)
    wanted = plan.wanted(
        finalists=min(len(arms), _SIZES_EACH * n_measured + (_BY_ROUNDS if by_rounds else 0)),
        traces=False,
        replays=len(by_rounds),
    )
    budget = budgeting.plan_budget(plan.deadline, pace, wanted)
    prompts = budgeting.affordable_prompts(suite.prompts, budget)
    least = replace(wanted, replays=0)
    deadline = plan.deadline.reserve(budgeting.least_measuring_s(pace, least, plan.deadline))
    forecasts, notes = yield from _forecast_by_rounds(plan, by_rounds, prompts, budget.n_predict, deadline)
    known = {prospects.source(prospect.arm) for prospect in forecasts}
    unknown = [arm for arm in arms if prospects.source(arm) not in known]
    firsts = unknown[: len({*map(prospects.source, unknown)})]
    n_forecast = max(1, min(_BY_ROUNDS, budget.finalists - len(firsts))) if forecasts else 0
    n_unknown = max(0, budget.finalists - n_forecast)
    return TuningForecast(
        prospects=tuple(forecasts),
        unknown=tuple(unknown[:n_unknown]),
        prompts=prompts,
        n_predict=budget.n_predict,
        finalists=max(1, n_forecast),
        pace=pace,
        spent=Spent(calibration_s=time.monotonic() - begun),
        notes=(
            *budgeting.describe_budget(budget, wanted, plan.deadline),
            *notes,
            *(
                f"time: only the first {chosen.n_turns} of {whole.n_turns} turns of {whole.id} are measured"
                for chosen in prompts
                for whole in suite.prompts
                if chosen.id == whole.id and chosen.n_turns < whole.n_turns
            ),
            *(
                f"time: {_name(arm)} left out, because --max-time was too short to measure it"
                for arm in firsts[n_unknown:]
            ),
        ),
    )


def _name(arm: RunSpec) -> str:
    return str(arm.drafts_by.chain) if arm.draft_source is None else arm.draft_source.filename


def _forecast_by_rounds(
    plan: Plan,
    sources: Sequence[Sequence[RunSpec]],
    prompts: Sequence[Prompt],
    n_predict: int,
    deadline: Deadline,
) -> Generator[Stage, None, tuple[list[Prospect], list[str]]]:
    """Yield a Stage for each source of drafts; return the forecasts of its sizes, and what they rest on.

    A source without rounds, because its runs failed or time was over, has no forecasts.
    """
    forecasts: list[Prospect] = []
    notes: list[str] = []
    if not sources:
        return forecasts, notes
    prompts = budgeting.take_turns(prompts)  # of each category one, where not all can be run
    with temporary.folder() as scratch, plan.session.engine as engine:

        def measure(arm: RunSpec, prompts: Sequence[Prompt]) -> Iterator[tuple[Prompt, Sample]]:
            _send(plan, engine, arm, prompts[0], budgeting.TIMED, scratch / "warm-up")
            for prompt in prompts:
                if deadline.is_over():
                    return
                sample = _send(plan, engine, arm, prompt, n_predict, scratch / "run")[1].sample
                if sample.status is Status.OK and sample.decode_tps:
                    yield prompt, sample

        few = prompts[:_COST_PROMPTS]
        alone = [sample for _, sample in measure(plan.alone, few)]
        n_alone = sum(sample.decoded or 0 for sample in alone)
        for number, arms in enumerate(sources):
            yield Stage(name=f"counting rounds · {_name(arms[0])}", done=number, total=len(sources))
            *smaller, largest = sorted(arms, key=lambda arm: arm.drafts_by.n_max)
            timed = [min(smaller, key=lambda arm: abs(arm.drafts_by.n_max - size)) for size in _COST_SIZES]
            runs = [*_rounds_of(measure(largest, prompts), n_predict)]
            costs = [run for arm in timed for run in _rounds_of(measure(arm, few), n_predict)]
            if not (runs and costs and n_alone):
                continue
            curve = forecast.time_rounds(runs + costs, sum(sample.gen_s or 0.0 for sample in alone) / n_alone)
            draftings = [arm.drafting for arm in arms if arm.drafting is not None]
            build = plan.session.install.build_number
            forecasts += prospects.assign(arms, forecast.replays(runs, curve, draftings, build=build))
            at = ", ".join(str(arm.drafts_by.n_max) for arm in timed)
            notes.append(
                f"forecast: draft sizes of {_name(largest)} by its rounds at γ {largest.drafts_by.n_max} on "
                f"{units.counted(len(runs), 'prompt')}; their costs by runs at γ {at}, too"
            )
    return forecasts, notes


def _rounds_of(measured: Iterator[tuple[Prompt, Sample]], n_predict: int) -> Iterator[RoundsRun]:
    """Yield the rounds of each run that tells them, or that counts at least what each position accepted."""
    for prompt, sample in measured:
        rounds = sample.rounds or forecast.from_counts(sample.accepted_at or (), sample.n_rounds or 0)
        if rounds and sample.gen_s:
            yield RoundsRun(
                prompt_id=prompt.id,
                rounds=rounds,
                seconds=sample.gen_s,
                category=prompt.category,
                n_prompt=sample.prompt_tokens or 1,
                ended=(sample.gen_tokens or 0) < n_predict,
            )


def _time_requests(plan: Plan, drafting: RunSpec) -> Pace:
    """Return how long requests take in the engine that measures: two are sent, the second to a warm program.

    One that drafts is sent, too: a drafter makes loads longer.

    Raises:
        Failure: a run of the target alone failed, or took too long.
    """
    suite = plan.session.suite
    prompt, *_ = suite.prompts
    with temporary.folder() as scratch, plan.session.engine as engine:

        def send(arm: RunSpec) -> tuple[float, Measurement]:
            return _send(plan, engine, arm, prompt, min(budgeting.TIMED, arm.n_predict), scratch / "run")

        sent = [send(arm) for arm in (plan.alone, plan.alone, drafting)]
        keeps_loads = engine.load_key(plan.alone) is not None
    _, alone, drafted = (measured for _, measured in sent)
    sample = alone.sample
    if sample.status is not Status.OK or not sample.decode_tps:
        raise Failure(sample.status, alone.error or "the target alone decoded nothing")
    first_s, again_s, drafting_s = (_beside_decoding(taken_s, measured.sample) for taken_s, measured in sent)
    token_s = 1 / sample.decode_tps
    if not keeps_loads:
        return Pace(token_s=token_s, load_s=0.0, run_s=max(again_s, drafting_s))
    loads_s = max(0.0, first_s - again_s, drafting_s - again_s)
    reading = budgeting.mean_reading(suite.prompts, is_warm=suite.warm_turns)
    pace = Pace(token_s=token_s, load_s=loads_s, prompt_s=again_s * reading)
    drafting_tps = drafted.sample.decode_tps
    return replace(pace, replay_speedup=drafting_tps * token_s) if drafting_tps else pace


def _beside_decoding(taken_s: float, sample: Sample) -> float:
    """Return what a run took beside its tokens: the load of its models, the prompt, the request."""
    decoding_s = (sample.decoded or 0) / sample.decode_tps if sample.decode_tps else 0.0
    return max(0.0, taken_s - decoding_s)


def _send(
    plan: Plan, engine: Engine, arm: RunSpec, prompt: Prompt, n_predict: int, log: Path
) -> tuple[float, Measurement]:
    """Return the seconds of a run on a prompt, its load included, and the run."""
    spec = replace(arm, prompt=replace(prompt, followups=()), n_predict=n_predict)
    begun = time.monotonic()
    with plan.deadline.limiting(engine):
        measured = engine.measure(spec, log)
    return time.monotonic() - begun, measured
