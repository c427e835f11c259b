"""Look before measuring: traces and cost curves in one process, then a forecast of every configuration."""

from __future__ import annotations

import time
from collections.abc import Generator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, cast

from ggufspec import engines, forecast, units
from ggufspec.domain import ModelFile, Prompt, RunSpec
from ggufspec.engines import ending
from ggufspec.forecast import profiles, trace
from ggufspec.forecast.profiles import Texts
from ggufspec.prompts.chat import Message, Render
from ggufspec.tuning import budget, pricing, prospects
from ggufspec.tuning.budget import Budget
from ggufspec.tuning.values import Outlook, Plan, Spent, Stage

if TYPE_CHECKING:
    from ggufspec.engines.inprocess import InprocessEngine

_HELPING = (2, 4, 8)  # draft sizes at which a drafter may help to write
_SURELY = 2.0
_BEGINNING = 32  # tokens of the first text, which tell whether a drafter may help to write all texts
_SHORT_RUN_S = 0.05  # what a run of an engine that keeps its models takes beside its tokens


def look(plan: Plan) -> Generator[Stage, None, Outlook]:
    """Trace the prompts, measure costs, and forecast; yield a Stage before each step, return the Outlook.

    Raises:
        GgufspecError: the class that belongs to what failed: a model that does not load, a refused drafter.
    """
    install, program = plan.session.install, engines.ENGINES[plan.session.engine.name]
    arms = prospects.drafting_arms(plan.blocks)
    known = [arm for arm in arms if prospects.can_forecast(arm, program, install.build_number)]
    drafters = [*dict.fromkeys(arm.drafter for arm in known if arm.drafter is not None)]
    with engines.make("inprocess", install, timeout_s=plan.max_time_s) as made:
        engine = cast("InprocessEngine", made)
        try:
            yield Stage(about="loading", done=0, total=1)
            begun = time.monotonic()
            first = replace(_spec(plan, known), prompt=plan.session.suite.prompts[0])
            token_s, load_s = _speed(engine, first)
            allowed = budget.allow(
                time_s=plan.max_time_s,
                token_s=token_s,
                run_s=_SHORT_RUN_S if plan.session.engine.load_key(first) is not None else load_s,
                prompts=len(plan.session.suite.prompts),
                n_predict=first.n_predict,
            )
            texts = yield from _texts(engine, plan, first, drafters, allowed)
            traced = time.monotonic()
            curves, reused = yield from pricing.curves(
                engine, plan, first, known, texts, token_s=token_s, time_s=allowed.costs_s
            )
        except ending.Failure as failure:
            raise ending.error(failure.status, f"the look ahead failed: {failure.reason}") from failure
    spent = Spent(traces_s=traced - begun, costs_s=time.monotonic() - traced)
    found = prospects.prospects(
        known,
        texts,
        drafters,
        curves,
        engine=plan.session.engine.name,
        n_predict=allowed.n_predict,
        build=install.build_number,
    )
    return Outlook(
        prospects=found,
        unknown=tuple(arm for arm in arms if arm not in known and prospects.has_own_size(arm)),
        prompts=tuple(each.prompt for each in texts),
        n_predict=allowed.n_predict,
        finalists=allowed.finalists,
        spent=spent,
        notes=(*_shortened(plan, first, allowed), *reused),
    )


def outlook(plan: Plan) -> Outlook:
    """Look to the end, for callers that show no progress; raises what ``look`` does."""
    looking = look(plan)
    while True:
        try:
            next(looking)
        except StopIteration as end:
            found: Outlook = end.value
            return found


def _spec(plan: Plan, known: Sequence[RunSpec]) -> RunSpec:
    """Return the target's own run, placed as in the first configuration that a drafter shares with it."""
    offload = next((arm.offload for arm in known if arm.drafter is not None), plan.alone.offload)
    return replace(plan.alone, offload=offload)


def _speed(engine: InprocessEngine, spec: RunSpec) -> tuple[float, float]:
    """Return the target's seconds per token, and those that loading it takes."""
    begun = time.monotonic()
    timings = engine.curve(spec, (), batches=(1,), depths=(1,), repeats=3).timings
    token_s = min(each.seconds for each in timings)
    return token_s, max(0.0, time.monotonic() - begun - sum(each.seconds for each in timings))


def _texts(
    engine: InprocessEngine, plan: Plan, first: RunSpec, drafters: Sequence[ModelFile], allowed: Budget
) -> Generator[Stage, None, list[Texts]]:
    """Trace the prompts; each later turn of a conversation is one of its own, after the target's answers."""
    program = engines.ENGINES[plan.session.engine.name]
    largest = max(
        (arm.drafting.n_max for block in plan.blocks for arm in block.arms if arm.drafting), default=1
    )
    spec = replace(first, n_predict=trace.needed(allowed.n_predict, largest, program))
    found: list[Texts] = []
    (beginning,) = profiles.traces(engine, replace(spec, n_predict=_BEGINNING), [first.prompt], drafters)
    writing = _quickest(beginning)
    chosen = budget.spread(plan.session.suite.prompts, allowed.prompts)
    for number, prompt in enumerate(chosen):
        yield Stage(about=f"reading ahead · {prompt.id}", done=number, total=len(chosen))
        turn = replace(prompt, followups=())
        messages: list[Message] = []
        (one,) = profiles.traces(engine, spec, [turn], drafters, writing=writing)
        found.append(one)
        for later, followup in enumerate(prompt.followups, start=2):
            messages += [Message("user", turn.message or turn.text), Message("assistant", one.text)]
            text = _continued(plan.session.render, turn, one.text, followup, messages)
            turn = Prompt(id=f"{prompt.id}#{later}", text=text, category=prompt.category, message=followup)
            (one,) = profiles.traces(engine, spec, [turn], drafters, writing=writing)
            found.append(one)
    return found


def _quickest(seen: Texts) -> tuple[int, int] | None:
    """Return the drafter that surely makes writing faster, and its draft size; None where none does.

    Surely: by the theorem, which takes a verified batch to cost as little as one token, at least twice.
    """
    size = len(seen.own.tokens)
    gains: dict[tuple[int, int], float] = {}
    for place, (look, look_s) in enumerate(zip(seen.by_drafter, seen.look_s, strict=True)):
        alpha, cost = sum(look.match) / size, look_s / seen.written_s
        gains |= {(place, n_max): forecast.closed_form(alpha, n_max, cost) for n_max in _HELPING}
    best = max(gains, key=lambda each: gains[each], default=None)
    return best if best is not None and gains[best] >= _SURELY else None


def _continued(
    render: Render | None, turn: Prompt, answer: str, followup: str, messages: Sequence[Message]
) -> str:
    if render is None:
        return f"{turn.text}{answer}\n\n{followup}\n\n"
    return render([*messages, Message("user", followup)])


def _shortened(plan: Plan, first: RunSpec, allowed: Budget) -> list[str]:
    suite = plan.session.suite
    if allowed.prompts == len(suite.prompts) and allowed.n_predict == first.n_predict:
        return []
    of = units.counted(len(suite.prompts), "prompt")
    taken = f"{allowed.prompts} of {of} with {units.counted(allowed.n_predict, 'token')} each"
    return [f"time: {taken}; a longer --max-time takes more"]
