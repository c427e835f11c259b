"""How often a bench loads each arm: for every repeat, unless that is too much; and when it is looked at."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import replace

from ggufspec import stats, units
from ggufspec.domain import ENGINES, Program, Prompt, Role, StoppingRule
from ggufspec.engines import keeps_loads
from ggufspec.errors import GgufspecError
from ggufspec.measure import runplan, traffic
from ggufspec.measure.programs import ChosenEngine
from ggufspec.measure.runplan import RunPlan
from ggufspec.measure.sweep import Sweep
from ggufspec.measure.texts import BenchTexts
from ggufspec.options import BenchOptions

_DECIDED = "decided"
_MOST_REPEATS = 20  # unless --max-repeats says otherwise


def check_until(request: BenchOptions) -> None:
    """Refuse what contradicts measuring until verdicts are decided.

    Raises:
        GgufspecError: the request has another rule as well, or nothing that can be decided so.
    """
    if request.until is None:
        if request.max_repeats is not None:
            raise GgufspecError("--max-repeats is for --until decided", "give both, or use --repeats")
        return
    least, most, only = request.repeats or 1, _most_repeats(request), "--until decided measures one"
    for is_wrong, what, hint in (
        (request.until != _DECIDED, f"--until is {_DECIDED!r}, not {request.until!r}", "leave it out"),
        (request.precision is not None, "--until and --precision both say when to stop", "use one of them"),
        (len(request.llamas) > 1, f"{only} llama.cpp", "to compare several, use --repeats or --precision"),
        (request.users, f"{only} request after another", "with several users, use --repeats"),
        (
            most < least,
            f"--max-repeats is {most}, less than the {least} of --repeats",
            "raise --max-repeats, or lower --repeats",
        ),
    ):
        if is_wrong:
            raise GgufspecError(what, hint)


def _most_repeats(request: BenchOptions) -> int:
    return _MOST_REPEATS if request.max_repeats is None else request.max_repeats


def plan_stopping(request: BenchOptions, sweep: Sweep) -> StoppingRule | None:
    """Return when a bench is looked at, if it is measured until its verdicts are decided.

    Raises:
        GgufspecError: what is measured has no verdicts.
    """
    if request.until is None:
        return None
    comparisons = sweep.blocks().n_arms[Role.DRAFTING]
    if not comparisons:
        raise GgufspecError("nothing drafts, so no verdict can be decided", "leave --until out")
    most = _most_repeats(request)
    return StoppingRule(least_repeats=request.repeats or 1, most_repeats=most, comparisons=comparisons)


def describe_looks(stopping: StoppingRule | None) -> Iterator[str]:
    """Yield when a bench is looked at, if it is measured until its verdicts are decided."""
    if stopping is not None:
        looks = ", ".join(map(str, stopping.looks))
        yield f"until: every speed-up is decided; complete repeats at each look: {looks}"


REPEATS = 5
"""Of each prompt, where nothing else is asked for.

Each has a load of its own. Five loads find a true difference of 5 % in nearly every bench; three miss it in a
quarter of them.
"""

_LONG_LOAD_S = 20.0  # from here on, three repeats are the default
_SMALL_BYTES = 1 << 30  # of weights, which every disk reads in less


def plan_runs(
    request: BenchOptions, engine: ChosenEngine, read: BenchTexts, sweep: Sweep, rule: StoppingRule | None
) -> tuple[RunPlan, tuple[str, ...]]:
    """Return how often each arm is measured and loaded, and notes on that.

    Raises:
        GgufspecError: a number of loads is not possible.
    """
    suite = RunPlan(
        blocks=sweep.blocks(),
        prompts=read.prompts,
        warmup_prompts=read.warmups,
        repeats=(request.repeats or REPEATS) if rule is None else rule.looks[0],
        warmups=request.warmup,
        seed=request.seed,
        precision=request.precision,
        stopping=rule,
        max_time_s=request.max_time,
        warm_turns=_are_turns_warm(request, engine.name),
    )
    if sweep.traffics != (None,):
        suite = traffic.send_together(suite)
    is_given = request.repeats is not None or request.loads is not None
    suite, about_repeats = plan_repeats(suite, engine=engine.name, is_given=is_given)
    suite, about_loads = plan_loads(suite, request.loads, engine=engine.name)
    return suite, (*about_repeats, *about_loads, *describe_turns(suite.prompts, suite.warm_turns))


def _are_turns_warm(request: BenchOptions, engine: str) -> bool:
    """Whether later turns of conversations begin with the conversation so far in the cache.

    Raises:
        GgufspecError: they should, and the engine keeps nothing from one run to the next.
    """
    keeps_cache = ENGINES.get(engine) is Program.SERVER
    if request.turns == "warm" and not keeps_cache:
        raise GgufspecError(
            f"the engine {engine} keeps no cache from one run to the next, so --turns warm has no effect",
            "use --engine server, or leave --turns out",
        )
    return keeps_cache if request.turns is None else request.turns == "warm"


def describe_turns(prompts: Sequence[Prompt], is_warm: bool) -> Iterator[str]:
    """Yield how later turns begin, if there are any."""
    if any(prompt.followups for prompt in prompts):
        begin = "the conversation so far in the cache" if is_warm else "an empty cache"
        yield f"turns: later turns of conversations begin with {begin}"


def plan_repeats(suite: RunPlan, *, engine: str, is_given: bool) -> tuple[RunPlan, tuple[str, ...]]:
    """Return a suite with three repeats instead of five where these take too long, and a note on that.

    Args:
        suite: with ``REPEATS``.
        engine: a row of ENGINES.
        is_given: whether the number of repeats or of loads was asked for.
    """
    if is_given or suite.stopping is not None or suite.precision is not None:
        return suite, ()
    arms = [arm for block in runplan.few_blocks(suite) for arm in block.arms]
    if suite.max_time_s is None and max(map(runplan.weights, arms)) < _SMALL_BYTES:
        return suite, ()
    known = runplan.experience()
    fewer = replace(suite, repeats=stats.MIN_LOADS)
    more = f"--repeats {suite.repeats} finds smaller differences"
    load_s = max(map(known.expect_load, arms))
    if load_s > _LONG_LOAD_S:
        about = units.format_duration(load_s)
        return fewer, (
            f"repeats: {stats.MIN_LOADS} of each prompt, because a load takes about {about}; {more}",
        )
    loads = suite.repeats if keeps_loads(engine) else None
    expected_s = runplan.total(replace(suite, loads=loads), known)
    if suite.max_time_s is not None and expected_s > suite.max_time_s:
        limit, needed = map(units.format_duration, (suite.max_time_s, expected_s))
        reason = f"because {suite.repeats} would take about {needed} (--max-time {limit})"
        return fewer, (f"repeats: {stats.MIN_LOADS} of each prompt, {reason}; more time finds more",)
    return suite, ()


def plan_loads(suite: RunPlan, loads: int | None, *, engine: str) -> tuple[RunPlan, tuple[str, ...]]:
    """Return a suite that says how often each arm is loaded, and notes on that.

    Args:
        suite: what to measure.
        loads: how often to load each arm; None for every repeat, or what ``max_time_s`` leaves time for.
        engine: a row of ENGINES.

    Raises:
        GgufspecError: the engine loads the models for each run, or there are more loads than repeats.
    """
    if not keeps_loads(engine):
        if loads is not None:
            raise GgufspecError(
                f"the engine {engine} loads the models for each run, so --loads has no effect",
                "leave --loads out, or use --engine server or inprocess",
            )
        return suite, ()
    if loads is not None and suite.stopping is not None:
        raise GgufspecError(
            "--until decided loads the models for every repeat, so --loads has no effect", "leave --loads out"
        )
    if loads is not None and loads > suite.repeats:
        raise GgufspecError(
            f"{loads} loads of each arm need at least {loads} repeats, not {suite.repeats}",
            f"lower --loads, or raise --repeats to {loads}",
        )
    planned = replace(suite, loads=loads or suite.repeats)
    reason = ""
    is_free = loads is None and suite.stopping is None
    if is_free and suite.max_time_s is not None and suite.repeats > 1:
        planned, reason = _within(planned, suite.max_time_s)
    return planned, tuple(_notes(planned, reason))


def _within(suite: RunPlan, max_time_s: float) -> tuple[RunPlan, str]:
    """Return the suite with as many loads as the time allows, and why these are fewer.

    If the time is too short even with one load of each arm, the number of loads stays: the bench will be cut
    off, and has the most complete repeats with a load for each.
    """
    assert suite.loads is not None
    known = runplan.experience()

    def expect_s(loads: int) -> float:
        return runplan.total(replace(suite, loads=loads), known)

    loads = bisect_right(range(1, suite.loads + 1), max_time_s, key=expect_s)
    if loads in {0, suite.loads}:
        return suite, ""
    limit, needed = map(units.format_duration, (max_time_s, expect_s(suite.loads)))
    reason = f", because {suite.loads} would take about {needed} (--max-time {limit})"
    return replace(suite, loads=loads), reason


def _notes(suite: RunPlan, reason: str) -> list[str]:
    loads, repeats = suite.loads, units.counted(suite.repeats, "repeat")
    assert loads is not None
    shares = len(suite.prompts) > 1 or loads < suite.repeats
    notes = []
    if loads < suite.repeats:
        notes.append(f"loads: {units.counted(loads, 'load')} of each arm for {repeats}{reason}")
    if loads < stats.MIN_LOADS and shares:
        notes.append(
            f"loads: with fewer than {stats.MIN_LOADS} loads of each arm, differences between loads and "
            "between arms cannot be told apart, so speed-ups are estimates, not verdicts (not-interleaved)"
        )
    return notes
