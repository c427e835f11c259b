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
from ggufspec.prompts import Message, Render
from ggufspec.tuning import pricing, prospects
from ggufspec.tuning.values import Outlook, Plan, Spent, Stage

if TYPE_CHECKING:
    from ggufspec.engines import InprocessEngine


from dataclasses import dataclass

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
            allowed = allow(
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
    chosen = spread(plan.session.suite.prompts, allowed.prompts)
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


FINALISTS = 6  # configurations that are measured beside the target alone
_FEWEST_FINALISTS = 2
_SHORTEST = 48  # tokens; below that the ends of texts weigh too much
_FEWEST_PROMPTS = 4
_REPEATS = 2  # measured at least
_ASSUMED_SPEEDUP = 1.3  # of a finalist, before anything is known
_COSTS_SHARE = 0.15  # of the time, for the cost curve


@dataclass(frozen=True, kw_only=True)
class Budget:
    """What the time allows: prompts, tokens of each, finalists, and seconds for the cost curves."""

    prompts: int
    n_predict: int
    finalists: int
    costs_s: float


def allow(*, time_s: float | None, token_s: float, run_s: float, prompts: int, n_predict: int) -> Budget:
    """Return what fits into a time: first texts get shorter, then there are fewer, then fewer finalists.

    Every prompt is written once for its trace, and measured with the target alone and each finalist.

    Args:
        time_s: seconds for everything; None for any number.
        token_s: seconds of the target alone per token.
        run_s: seconds that a measured run takes besides, such as loading.
        prompts: how many were asked for.
        n_predict: tokens of each that were asked for.
    """
    if time_s is None:
        return Budget(prompts=prompts, n_predict=n_predict, finalists=FINALISTS, costs_s=float("inf"))
    left_s = time_s * (1 - _COSTS_SHARE)

    def seconds(prompts: int, n_predict: int, finalists: int) -> float:
        writing = 1 + _REPEATS * (1 + finalists / _ASSUMED_SPEEDUP)
        return prompts * (n_predict * token_s * writing + run_s * _REPEATS * (1 + finalists))

    shortest, fewest = min(_SHORTEST, n_predict), min(_FEWEST_PROMPTS, prompts)
    tries = [
        *((prompts, size, FINALISTS) for size in range(n_predict, shortest - 1, -1)),
        *((number, shortest, FINALISTS) for number in range(prompts - 1, fewest - 1, -1)),
        *((fewest, shortest, number) for number in range(FINALISTS - 1, _FEWEST_FINALISTS - 1, -1)),
    ]
    chosen = next((each for each in tries if seconds(*each) <= left_s), (fewest, shortest, _FEWEST_FINALISTS))
    return Budget(prompts=chosen[0], n_predict=chosen[1], finalists=chosen[2], costs_s=time_s * _COSTS_SHARE)


def spread(prompts: Sequence[Prompt], number: int) -> tuple[Prompt, ...]:
    """Return so many prompts in their order, every category in turn giving one."""
    by_category: dict[str | None, list[Prompt]] = {}
    for prompt in prompts:
        by_category.setdefault(prompt.category, []).append(prompt)
    chosen: set[str] = set()
    while len(chosen) < min(number, len(prompts)):
        for waiting in by_category.values():
            if waiting and len(chosen) < number:
                chosen.add(waiting.pop(0).id)
    return tuple(prompt for prompt in prompts if prompt.id in chosen)
