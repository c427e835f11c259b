"""How often a bench loads each arm: for every repeat, unless that is too much."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import replace

from ggufspec import units
from ggufspec.engines import keeps_loads
from ggufspec.errors import GgufspecError
from ggufspec.measure import duration
from ggufspec.measure.runplan import RunPlan

_LEAST_LOADS = 3  # of an arm; with fewer, loads and arms cannot be told apart


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
    known = duration.experience()

    def expect_s(loads: int) -> float:
        return duration.total(replace(suite, loads=loads), known)

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
    if loads < _LEAST_LOADS and shares:
        notes.append(
            f"loads: with fewer than {_LEAST_LOADS} loads of each arm, differences between loads and between "
            "arms cannot be told apart, so no intervals are stated (not-interleaved)"
        )
    return notes
