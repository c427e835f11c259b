"""What ``forecast.concurrency`` expects of a crossover's cells, before any of them is measured."""

from __future__ import annotations

import math
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ggufspec import engines
from ggufspec.domain import Failure, ModelFile, Program, Prompt, RunSpec
from ggufspec.forecast import profiles, trace
from ggufspec.forecast.concurrency import TrafficPoint
from ggufspec.forecast.costs import CostCurve
from ggufspec.forecast.profiles import ExpectedRound, TracedTexts
from ggufspec.llama.command import LEARNING_METHODS
from ggufspec.measure import Block, Deadline, Session
from ggufspec.serving import plan_traffic
from ggufspec.tuning import budgeting, calibrating, looking, prospects, untraced
from ggufspec.tuning.budgeting import CellPace, Pace
from ggufspec.tuning.prospects import Traces
from ggufspec.tuning.values import Stage

if TYPE_CHECKING:
    from ggufspec.engines import InprocessEngine

_TRACES_SHARE = 0.05  # of the time
_COSTS_SHARE = 0.1
_FEWEST_PROMPTS = 2
_SEVERAL = 2  # users, or more


@dataclass(frozen=True, kw_only=True)
class Expected:
    """What is expected of the cells: rounds of a computed server, and a note on what forecasts rest on."""

    rounds: tuple[ExpectedRound, ...]
    note: str


def time_cells(
    session: Session, blocks: Mapping[TrafficPoint, Block], deadline: Deadline
) -> Generator[Stage, None, CellPace]:
    """Yield a Stage; return how long requests take here, by a load, some tokens and the first prompt.

    Raises:
        TimeLimitError: that alone takes more than a quarter of the time limit.
    """
    first, drafters = _first(blocks)
    users = max(point.users for point in blocks)
    with looking.open_library(session.install, drafters, first.pair.target) as engine:
        yield Stage(name="loading", done=0, total=1)
        try:
            start = looking.measure_start(
                engine, first, drafters, deadline, program=Program.SERVER, users=users
            )
        except Failure as failure:
            raise looking.explain_failure(failure, deadline) from failure
    tokens = start.beginning.target_trace.n_prompt
    return CellPace(users=users, pace=start.pace, prompt_tokens=tokens)


def _first(blocks: Mapping[TrafficPoint, Block]) -> tuple[RunSpec, list[ModelFile]]:
    """Return the target's run on the first prompt of the shallowest cell, and what drafts."""
    block = blocks[min(blocks, key=lambda point: point.depth)]
    requests = block.arms[0].traffic
    assert requests is not None
    sources = (arm.draft_source for arm in block.arms if arm.drafting is not None)
    drafters = [*dict.fromkeys(source for source in sources if source is not None)]
    return replace(block.arms[0], traffic=None, prompt=requests.prompts[0]), drafters


def expect_rounds(
    session: Session, blocks: Mapping[TrafficPoint, Block], deadline: Deadline, pace: CellPace | None
) -> Generator[Stage, None, Expected]:
    """Yield a Stage for each step; return what a computed server takes for a round in each cell.

    There is nothing where the library cannot be used, or where a method cannot be computed.

    Args:
        session: of the crossover.
        blocks: the arms of each cell, which differ in the draft size alone.
        deadline: of the crossover, a part of which this may take.
        pace: how long requests take here; None without a time limit.
    """
    install, shallow = session.install, min(point.depth for point in blocks)
    block = next(block for point, block in blocks.items() if point.depth == shallow)
    arms = [replace(arm, traffic=None) for arm in block.arms if arm.drafting is not None]
    why_not = _why_not(session, arms)
    if why_not is not None:
        return Expected(rounds=(), note=_interpolated(why_not))
    first, drafters = _first(blocks)
    requests = block.arms[0].traffic
    assert requests is not None
    limit_s = math.inf if deadline.limit_s is None else deadline.limit_s
    times = Pace(token_s=0.0, load_s=0.0) if pace is None else pace.pace
    with looking.open_library(install, drafters, first.pair.target) as engine:
        try:
            chosen = requests.prompts
            if pace is not None:
                affordable = int(limit_s * _TRACES_SHARE / times.answer(first.n_predict))
                chosen = budgeting.spread(requests.prompts, max(_FEWEST_PROMPTS, affordable))
            tracing = deadline.stage(limit_s * _TRACES_SHARE)
            traces = Traces(
                texts=(yield from _trace(engine, first, arms, chosen, drafters, tracing)),
                drafters=drafters,
                engine="server",
                n_predict=first.n_predict,
                build=install.build_number,
            )
            curves, _ = yield from calibrating.curves(
                engine,
                install,
                first,
                arms,
                traces,
                users=max(point.users for point in blocks),
                pace=times,
                deadline=deadline.stage(limit_s * _COSTS_SHARE),
                depth=max(point.depth for point in blocks) - shallow,
            )
        except Failure as failure:
            return Expected(rounds=(), note=_interpolated(failure.reason))
    (curve,) = curves.values()
    return Expected(
        rounds=tuple(_compute(blocks, arms, traces, curve, shallow=shallow, seed=session.suite.seed)),
        note=(
            "forecasts: the server is computed for every cell, from a trace of the prompts and timed costs, "
            "and corrected by the measured cells"
        ),
    )


def _why_not(session: Session, arms: Sequence[RunSpec]) -> str | None:
    """Return why nothing can be computed; None where it can."""
    if (reason := untraced.why_untraced(session)) is not None:
        return reason
    heads = engines.check_library(session.install).heads
    build = session.install.build_number
    for arm in arms:
        is_learning = not LEARNING_METHODS.isdisjoint(arm.drafts_by.chain.methods)
        if is_learning or not prospects.can_forecast(arm, Program.SERVER, build, heads=heads, users=_SEVERAL):
            return f"drafting by {arm.drafts_by.chain} cannot be computed"
    return None


def _interpolated(reason: str) -> str:
    return f"forecasts: interpolated between measured cells, because {reason}"


def _trace(
    engine: InprocessEngine,
    first: RunSpec,
    arms: Sequence[RunSpec],
    prompts: Sequence[Prompt],
    drafters: Sequence[ModelFile],
    deadline: Deadline,
) -> Generator[Stage, None, list[TracedTexts]]:
    limits = prospects.draft_limits(arms, first.n_predict)
    spec = replace(first, n_predict=trace.needed(first.n_predict, max(limits.sizes), Program.SERVER))
    texts: list[TracedTexts] = []
    for number, prompt in enumerate(prompts):
        if texts and deadline.is_over():
            break
        yield Stage(name=f"tracing · {prompt.id}", done=number, total=len(prompts))
        engine.timeout_s = deadline.timeout_s()
        texts += profiles.traces(engine, spec, (prompt,), drafters, limits=limits, program=Program.SERVER)
    return texts


def _compute(
    points: Iterable[TrafficPoint],
    arms: Sequence[RunSpec],
    traces: Traces,
    curve: CostCurve,
    *,
    shallow: int,
    seed: int,
) -> Iterator[ExpectedRound]:
    """Yield the rounds of the target alone and of each draft size in each cell; traces are at ``shallow``."""
    for users, depth in points:
        sent = plan_traffic(traces.prompts, users, seed=seed)
        forecasts = prospects.serve_users(arms, traces, curve, sent, depth=depth - shallow)
        for index, forecast in enumerate(forecasts):
            if index == 0:
                alone_s = users / forecast.served_alone.tokens_per_s
                yield ExpectedRound(users=users, depth=depth, seconds=alone_s)
            seconds = users * forecast.forecast.mean_accepted_length / forecast.tokens_per_s
            yield ExpectedRound(users=users, depth=depth, draft=forecast.run.drafting.n_max, seconds=seconds)
