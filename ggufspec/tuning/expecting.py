"""What ``forecast.concurrency`` expects of a crossover's cells, before any of them is measured."""

from __future__ import annotations

import math
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, cast

from ggufspec import engines
from ggufspec.domain import ModelFile, Program, Prompt, RunSpec, Serving
from ggufspec.engines import failures
from ggufspec.engines.server import LEARNING_METHODS
from ggufspec.errors import GgufspecError
from ggufspec.forecast import concurrency, profiles, trace
from ggufspec.forecast.concurrency import Place
from ggufspec.forecast.costs import CostCurve
from ggufspec.forecast.profiles import ExpectedRound, TracedTexts
from ggufspec.measure import Block, Session
from ggufspec.serving import plan_traffic
from ggufspec.tuning import looking, pricing, prospects
from ggufspec.tuning.values import Plan, Stage

if TYPE_CHECKING:
    from ggufspec.engines import InprocessEngine

_TRACES_SHARE = 0.05  # of the time
_COSTS_SHARE = 0.1
_FEWEST_PROMPTS = 2
_SEVERAL = 2  # users, or more

Expected = tuple[tuple[ExpectedRound, ...], str]
"""The rounds, and a note on what forecasts rest on."""


def expect_rounds(
    session: Session, blocks: Mapping[Place, Block], max_time_s: float | None
) -> Generator[Stage, None, Expected]:
    """Yield a Stage for each step; return what a computed server takes for a round in each cell.

    There is nothing where the library cannot be used, or where a method cannot be computed.

    Args:
        session: of the crossover.
        blocks: the arms of each cell, which differ in the draft size alone.
        max_time_s: of the crossover, a part of which this may take; None for no limit.
    """
    install, shallow = session.install, min(place.depth for place in blocks)
    block = next(block for place, block in blocks.items() if place.depth == shallow)
    arms = [replace(arm, traffic=None) for arm in block.arms if arm.drafting is not None]
    why_not = _why_not(session, arms)
    if why_not is not None:
        return (), _interpolated(why_not)
    requests = block.arms[0].traffic
    assert requests is not None
    first = replace(block.arms[0], traffic=None, prompt=requests.prompts[0])
    drafters = [*dict.fromkeys(arm.draft_source for arm in arms if arm.draft_source is not None)]
    plan = Plan(
        session=session,
        serving=Serving(context=first.context),
        blocks=(),
        vram_bytes=None,
        max_time_s=max_time_s,
        precision=None,
        users=max(place.users for place in blocks),
    )
    time_s = math.inf if max_time_s is None else max_time_s
    inside = prospects.drafts_inside(drafters, first.pair.target)
    with engines.make("inprocess", install, timeout_s=max_time_s, with_mtp=inside) as made:
        engine = cast("InprocessEngine", made)
        try:
            yield Stage(name="loading", done=0, total=1)
            token_s, _, _ = looking.measure_speed(engine, first, 1)
            affordable = time_s * _TRACES_SHARE / (first.n_predict * token_s)
            number = len(requests.prompts) if math.isinf(affordable) else int(affordable)
            chosen = looking.spread(requests.prompts, max(_FEWEST_PROMPTS, number))
            texts = yield from _trace(engine, first, arms, chosen, drafters)
            curves, _ = yield from pricing.curves(
                engine,
                plan,
                first,
                arms,
                texts,
                token_s=token_s,
                time_s=time_s * _COSTS_SHARE,
                depth=max(place.depth for place in blocks) - shallow,
            )
        except failures.Failure as failure:
            return (), _interpolated(failure.reason)
    (curve,) = curves.values()
    rounds = _compute(session, blocks, arms, texts, curve, shallow=shallow)
    return tuple(rounds), (
        "forecasts: the server is computed for every cell, from a trace of the prompts and timed costs, and "
        "corrected by the measured cells"
    )


def _why_not(session: Session, arms: Sequence[RunSpec]) -> str | None:
    """Return why nothing can be computed; None where it can."""
    for arm in arms:
        assert arm.drafting is not None
        is_learning = not LEARNING_METHODS.isdisjoint(arm.drafting.chain.methods)
        build = session.install.build_number
        if is_learning or not prospects.can_forecast(arm, Program.SERVER, build, users=_SEVERAL):
            return f"drafting by {arm.drafting.chain} cannot be computed"
    try:
        engines.check_library(session.install)
    except GgufspecError as error:
        return error.message
    return None


def _interpolated(reason: str) -> str:
    return f"forecasts: interpolated between measured cells, because {reason}"


def _trace(
    engine: InprocessEngine,
    first: RunSpec,
    arms: Sequence[RunSpec],
    prompts: Sequence[Prompt],
    drafters: Sequence[ModelFile],
) -> Generator[Stage, None, list[TracedTexts]]:
    limits = prospects.draft_limits(arms, first.n_predict)
    spec = replace(first, n_predict=trace.needed(first.n_predict, max(limits.sizes), Program.SERVER))
    texts: list[TracedTexts] = []
    for number, prompt in enumerate(prompts):
        yield Stage(name=f"reading ahead · {prompt.id}", done=number, total=len(prompts))
        texts += profiles.traces(engine, spec, (prompt,), drafters, limits=limits)
    return texts


def _compute(
    session: Session,
    blocks: Mapping[Place, Block],
    arms: Sequence[RunSpec],
    texts: Sequence[TracedTexts],
    curve: CostCurve,
    *,
    shallow: int,
) -> Iterator[ExpectedRound]:
    """Yield the rounds of the target alone and of each draft size in each cell."""
    first = arms[0]
    assert first.drafting is not None
    by_id = {
        text.prompt.id: text.target_trace if first.draft_source is None else text.by_drafter[0]
        for text in texts
    }
    prompts = [text.prompt for text in texts]
    for users, depth in blocks:
        sent = plan_traffic(prompts, users, seed=session.suite.seed)
        forecasts = concurrency.forecasts_of_users(
            [by_id[prompt.id] for prompt in sent.prompts],
            curve,
            users=users,
            n_max=[arm.drafting.n_max for arm in arms if arm.drafting is not None],
            p_min=(first.drafting.p_min,),
            method=first.drafting.method,
            n_requests=sent.n_requests,
            n_predict=first.n_predict,
            depth=depth - shallow,
            batch=first.runtime.batch or concurrency.BATCH,
            ubatch=first.ubatch or concurrency.UBATCH,
            build=session.install.build_number,
        )
        for place, one in enumerate(forecasts):
            if place == 0:
                alone_s = users / one.served_alone.tokens_per_s
                yield ExpectedRound(users=users, depth=depth, seconds=alone_s)
            seconds = users * one.forecast.mean_accepted_length / one.tokens_per_s
            yield ExpectedRound(users=users, depth=depth, draft=one.n_max, seconds=seconds)
