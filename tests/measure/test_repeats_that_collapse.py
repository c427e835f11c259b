from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

import pytest

from ggufspec import machine, results
from ggufspec.analysis import rates, review
from ggufspec.domain import Conditions, Drafting, Method, Prompt, Role, RunResult, RunSpec, Sample
from ggufspec.measure.runplan import RunPlan
from ggufspec.results import ResultSet
from tests.support import scripted, values
from tests.support.scripted import Scripted

PROMPTS = tuple(Prompt(id=name, text=name) for name in "abcd")


@pytest.fixture(autouse=True)
def _quiet_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine.Watch, "conditions", lambda self: Conditions())


def _repeats(*rates: float, role: Role = Role.TARGET, prompt: str = "p1") -> list[RunResult]:
    draft = 3 if role is Role.DRAFTING else None
    return [
        values.run(role, prompt=prompt, repeat=repeat, tps=tps, draft=draft)
        for repeat, tps in enumerate(rates)
    ]


def _collapsed(runs: Sequence[RunResult]) -> list[int]:
    return list(rates.find_collapses(values.bench(*runs).current))


@pytest.mark.parametrize(
    ("rates", "collapsed"),
    [
        ((50, 50, 50), []),
        ((50, 26, 99), []),
        ((50, 24, 50), [1]),
        ((50, 101, 50), [1]),  # too fast counts like too slow
        ((2700, 90, 2000, 3800, 278, 3100, 69), [1, 4, 6]),
        ((50, 24), []),
        ((50,), []),
    ],
)
def test_repeats_that_halve_have_collapsed(rates: tuple[float, ...], collapsed: list[int]) -> None:
    assert _collapsed(_repeats(*rates)) == collapsed


def test_prompts_and_arms_are_judged_apart() -> None:
    assert not _collapsed(_repeats(50, 50, 50) + _repeats(300, 300, 300, prompt="p2"))
    assert not _collapsed(_repeats(50, 50, 50) + _repeats(900, 900, 900, role=Role.DRAFTER))
    assert _collapsed(_repeats(50, 50, 50) + _repeats(300, 50, 300, prompt="p2")) == [4]


def test_runs_that_failed_are_no_evidence() -> None:
    runs = _repeats(50, 50, 50, 10)
    runs[0] = replace(runs[0], sample=replace(runs[0].sample, gen_s=None))
    assert _collapsed(runs) == [3]


@pytest.mark.parametrize(("slow", "collapsed"), [(13.0, []), (12.0, [1]), (201.0, [1])])
def test_with_few_repeats_the_other_prompts_are_the_evidence(slow: float, collapsed: list[int]) -> None:
    runs = [values.run(prompt=f"p{number}", tps=slow if number == 1 else 50.0) for number in range(4)]
    assert _collapsed(runs) == collapsed


def _drafting(prompt: str, *, tps: float, rounds: int, drafting: Drafting) -> RunResult:
    run = values.run(Role.DRAFTING, prompt=prompt, tps=tps, draft=3)
    return replace(
        run, sample=replace(run.sample, n_rounds=rounds), spec=replace(run.spec, drafting=drafting)
    )


def test_drafting_that_was_accepted_less_has_not_collapsed() -> None:
    made = [("p1", 100.0, 25), ("p2", 100.0, 25), ("p3", 25.0, 100), ("p4", 20.0, 20)]
    for drafting, collapsed in (
        (Drafting(n_max=3), [3]),
        (Drafting(n_max=3, p_min=0.5), []),  # drafts of other lengths take other times
        (Drafting(n_max=3, method=Method.NGRAM_MOD), []),
    ):
        runs = [_drafting(prompt, tps=tps, rounds=rounds, drafting=drafting) for prompt, tps, rounds in made]
        assert _collapsed(runs) == collapsed


def test_collapses_are_common_in_an_arm_of_which_more_than_a_tenth_collapsed() -> None:
    often = [
        _repeats(900, 900, 90 if number < 2 else 900, role=Role.DRAFTER, prompt=f"p{number}")
        for number in range(6)
    ]
    once = [_repeats(50, 50, 5 if number < 1 else 50, prompt=f"p{number}") for number in range(3)]
    bench = values.bench(*(run for runs in (*often, *once) for run in runs))
    ((arm, counts),) = rates.find_common(bench.first_measured).items()
    assert (arm.role, counts) == (Role.DRAFTER, (2, 18))
    warnings = review.warnings(bench)
    assert "use fewer --threads" in warnings["collapses"]
    assert warnings["collapses"].endswith("(drafter: 2 of 18 runs)")
    assert "collapses" not in review.warnings(values.whole_bench())


def _suite(**settings: Any) -> RunPlan:
    return RunPlan(
        **{"blocks": scripted.sweep().blocks(), "prompts": PROMPTS, "repeats": 3, "warmups": 0, **settings}
    )


def _collapsing(*numbers: int, factor: float = 20.0) -> Callable[[RunSpec], Sample]:
    """Answer as usual, but by a factor slower when the target is asked on prompt b for those times."""
    asked = Counter[str]()

    def answer(spec: RunSpec) -> Sample:
        asked[spec.key] += 1
        hit = (spec.role, spec.prompt.id) == (Role.TARGET, "b") and asked[spec.key] - 1 in numbers
        return scripted.sample(spec, tps=1000.0 / factor if hit else 1000.0)

    return answer


def _record(engine: Scripted, suite: RunPlan, store: ResultSet | None = None) -> ResultSet:
    *_, last = scripted.record(suite, engine, store or values.bench())
    return last


@pytest.mark.parametrize("factor", [20.0, 0.05])
@pytest.mark.parametrize(("keeps_loads", "capacity"), [(False, None), (True, None), (True, 1)])
def test_a_collapsed_run_repeats_all_arms(factor: float, keeps_loads: bool, capacity: int | None) -> None:
    engine = Scripted(answer=_collapsing(1, factor=factor), keeps_loads=keeps_loads, capacity=capacity)
    bench = results.load(_record(engine, _suite()).meta.id)
    again = [run for run in bench.runs if run.remeasured]
    (collapsed,) = (run for run in bench.first_measured if run.sample.decode_tps != pytest.approx(1000))
    assert {(run.spec.prompt.id, run.repeat) for run in again} == {("b", collapsed.repeat)}
    assert sorted(run.spec.role for run in again) == [Role.DRAFTER, Role.DRAFTING, Role.TARGET]
    assert all(run.rerun > 0 for run in again)
    assert len(bench.first_measured) == len(bench.current) == 3 * 4 * 3
    assert [run.sample.decode_tps for run in bench.current] == pytest.approx([1000] * 36)
    assert not {run.load for run in again} & {run.load for run in bench.first_measured}
    assert len({run.load for run in again}) == 3


def test_what_collapses_again_is_kept() -> None:
    engine = Scripted(answer=_collapsing(1, *range(3, 99)))
    bench = _record(engine, _suite())
    assert len([run for run in bench.runs if run.remeasured]) == 3
    assert sum(run.sample.decode_tps < 100 for run in bench.current if run.sample.decode_tps) == 1


def test_nothing_is_measured_again_where_nothing_collapsed() -> None:
    engine = Scripted()
    _record(engine, _suite())
    assert len(engine.seen) == 3 * 4 * 3 + 3 * 1  # and an anchor in each repeat


@pytest.mark.parametrize("stop", range(37, 44))
def test_a_bench_that_was_cut_off_goes_on_with_what_it_measured_again(stop: int) -> None:
    suite = _suite()
    engine = Scripted(answer=_collapsing(1))
    begun = list(islice(scripted.record(suite, engine, values.bench()), stop))[-1]
    results.close(begun)
    bench = _record(Scripted(answer=_collapsing()), suite, results.reopen(begun.meta.id))
    again = [run for run in bench.runs if run.remeasured]
    assert len({run.spec.prompt.id for run in again}) == len({run.repeat for run in again}) == 1
    assert sorted(run.spec.role for run in again) == [Role.DRAFTER, Role.DRAFTING, Role.TARGET]


def test_a_drafter_alone_that_another_block_measured_again_is_no_reason_to_measure_more() -> None:
    asked = Counter[str]()

    def answer(spec: RunSpec) -> Sample:
        asked[spec.key] += 1
        hit = (spec.role, spec.prompt.id, asked[spec.key]) == (Role.DRAFTER, "b", 2)
        return scripted.sample(spec, tps=50.0 if hit else 1000.0)

    sweep = _suite().blocks.sweep  # type: ignore[attr-defined]
    bench = _record(Scripted(answer=answer), _suite(blocks=replace(sweep, target_layers=(0, 20)).blocks()))
    again = [run for run in bench.runs if run.remeasured]
    assert Counter(run.spec.role for run in again) == {Role.TARGET: 1, Role.DRAFTER: 1, Role.DRAFTING: 1}
