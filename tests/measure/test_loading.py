from __future__ import annotations

from dataclasses import replace

import pytest

from ggufspec.domain import ModelFile, Prompt
from ggufspec.errors import GgufspecError
from ggufspec.measure import runplan
from ggufspec.measure.loading import plan_loads, plan_repeats
from ggufspec.measure.runplan import Experience, RunPlan
from ggufspec.measure.sweep import Sweep
from tests.support import values

NOT_INTERLEAVED = (
    "loads: with fewer than 3 loads of each arm, differences between loads and between arms cannot be told "
    "apart, so speed-ups are estimates, not verdicts (not-interleaved)"
)


SWEEP = Sweep(name="tiny", targets=(ModelFile(filename="t.gguf"),), drafters=(), n_predict=32, context=512)


def _suite(
    sweep: Sweep = SWEEP, *, prompts: int = 4, repeats: int = 5, max_time_s: float | None = None
) -> RunPlan:
    return RunPlan(
        blocks=sweep.blocks(),
        prompts=tuple(Prompt(id=f"p{number}", text="A") for number in range(prompts)),
        repeats=repeats,
        warmups=0,
        max_time_s=max_time_s,
    )


@pytest.mark.parametrize("engine", ["server", "inprocess"])
def test_every_repeat_has_loads_of_its_own(engine: str) -> None:
    suite, notes = plan_loads(_suite(), None, engine=engine)
    assert (suite.loads, notes) == (5, ())


@pytest.mark.parametrize("engine", ["binary", "binary-simple"])
def test_programs_load_for_every_run(engine: str) -> None:
    suite = _suite()
    assert plan_loads(suite, None, engine=engine) == (suite, ())
    with pytest.raises(GgufspecError, match="loads the models for each run, so --loads has no effect"):
        plan_loads(_suite(), 3, engine=engine)


def test_fewer_loads_are_announced_and_so_is_what_they_cost() -> None:
    suite, notes = plan_loads(_suite(), 3, engine="server")
    assert (suite.loads, notes) == (3, ("loads: 3 loads of each arm for 5 repeats",))
    suite, notes = plan_loads(_suite(), 1, engine="server")
    assert (suite.loads, notes) == (1, ("loads: 1 load of each arm for 5 repeats", NOT_INTERLEAVED))
    suite, notes = plan_loads(_suite(repeats=2), None, engine="server")
    assert (suite.loads, notes) == (2, (NOT_INTERLEAVED,))


def test_three_repeats_are_planned_where_five_take_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runplan, "experience", lambda: Experience(bytes_per_s=1.0))
    monkeypatch.setattr(Experience, "expect", lambda *_: 2.0)
    monkeypatch.setattr(Experience, "expect_load", lambda *_: 1.0)
    plenty = _suite(max_time_s=1000.0)
    assert plan_repeats(plenty, engine="server", is_given=False) == (plenty, ())
    short, notes = plan_repeats(_suite(max_time_s=44.0), engine="server", is_given=False)
    assert short.repeats == 3
    assert notes[0].startswith(
        "repeats: 3 of each prompt, because 5 would take about 45.0 s (--max-time 44.0 s)"
    )
    given = _suite(max_time_s=44.0)
    assert plan_repeats(given, engine="server", is_given=True) == (given, ())
    assert plan_repeats(_suite(), engine="server", is_given=False)[0].repeats == 5  # small models


def test_three_repeats_are_planned_where_a_load_takes_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runplan, "experience", lambda: Experience(bytes_per_s=1e9))
    large = replace(SWEEP, targets=(ModelFile(filename="t.gguf", size_bytes=60_000_000_000),))
    suite, notes = plan_repeats(_suite(large), engine="server", is_given=False)
    assert suite.repeats == 3
    assert "because a load takes about 1 min" in notes[0]
    assert "--repeats 5 finds smaller differences" in notes[0]


def test_loads_that_make_one_run_each_are_as_good_as_processes() -> None:
    suite, notes = plan_loads(_suite(prompts=1, repeats=2), None, engine="server")
    assert (suite.loads, notes) == (2, ())


def test_more_loads_than_repeats_are_refused() -> None:
    with pytest.raises(GgufspecError, match="6 loads of each arm need at least 6 repeats, not 5") as refused:
        plan_loads(_suite(), 6, engine="server")
    assert "raise --repeats to 6" in (refused.value.hint or "")


@pytest.mark.parametrize(
    ("max_time_s", "loads"),
    [(1000.0, 5), (140.0, 5), (139.0, 4), (100.0, 3), (60.0, 1), (59.0, 5), (1.0, 5)],
)
def test_a_time_limit_leaves_time_for_fewer_loads(
    max_time_s: float, loads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """20 runs of 2 s, and loads of 20 s."""
    monkeypatch.setattr(runplan, "experience", lambda: Experience(bytes_per_s=1.0))
    monkeypatch.setattr(Experience, "expect", lambda *_: 2.0)
    monkeypatch.setattr(Experience, "expect_load", lambda *_: 20.0)
    suite, notes = plan_loads(_suite(max_time_s=max_time_s), None, engine="server")
    assert suite.loads == loads
    reason = "because 5 would take about 2 min 20 s (--max-time"
    assert any(reason in note for note in notes) == (loads < 5)
    assert (NOT_INTERLEAVED in notes) == (loads < 3)
    asked, _ = plan_loads(_suite(max_time_s=max_time_s), 4, engine="server")
    assert asked.loads == 4  # what is asked for holds


def test_a_limit_that_loads_do_not_reach_changes_nothing() -> None:
    values.bench(values.run())
    sweep = replace(SWEEP, targets=(values.spec().pair.target,), threads=(2,))
    suite = _suite(sweep, max_time_s=1.0)
    assert plan_loads(suite, None, engine="server")[0].loads == 5  # loads were never seen to take time
