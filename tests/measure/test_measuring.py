"""What a bench measures, run by run; and runs that collapse, which are measured again beside all others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import islice, pairwise
from typing import Any

import numpy as np
import pytest

from ggufspec import machine, results
from ggufspec.analysis import arms, rates, review, warnings
from ggufspec.domain import (
    NO_PROMPT,
    Conditions,
    Drafting,
    Method,
    Prompt,
    Request,
    Role,
    RunResult,
    RunSpec,
    Sample,
    Status,
)
from ggufspec.measure.deadline import Deadline
from ggufspec.measure.runplan import RunPlan
from ggufspec.prompts.chat import Message
from ggufspec.results import ResultSet
from tests.support import scripted, values
from tests.support.scripted import Scripted

PROMPTS = (Prompt(id="a", text="A"), Prompt(id="b/c d", text="B"))


def _suite(**settings: Any) -> RunPlan:
    return RunPlan(**{"blocks": scripted.sweep().blocks(), "prompts": PROMPTS, "repeats": 2, **settings})


def _record(engine: Scripted, suite: RunPlan | None = None, store: ResultSet | None = None) -> ResultSet:
    *_, last = scripted.record(suite or _suite(), engine, store or values.bench())
    return last


def test_every_run_is_on_disk_before_the_next_one_starts() -> None:
    engine, started = Scripted(), 0
    for so_far in scripted.record(_suite(repeats=1), engine, values.bench()):
        assert len(so_far.runs) == len(engine.seen)
        assert results.load(so_far.meta.id).runs == so_far.runs
        started += 1
    assert started == 1 + 3 + 1 + 6 + 1  # the empty one, warm-ups, an anchor, runs, the judged one
    assert engine.closed


def test_a_bench_that_was_cut_off_goes_on_where_it_stopped() -> None:
    engine, suite = Scripted(), _suite()
    store = values.bench()
    half = list(islice(scripted.record(suite, engine, store), 9))[-1]
    assert len(half.runs) == 8
    results.close(half)
    again = Scripted()
    whole = _record(again, suite, results.reopen(half.meta.id))
    assert len(again.seen) == len(_record(Scripted()).runs) - 8
    cells = [(run.spec.key, run.repeat, run.warmup, run.anchor) for run in whole.runs]
    assert len(set(cells)) == len(cells)


@pytest.mark.parametrize("capacity", [None, 2, 1])
def test_every_arm_is_loaded_anew_for_each_repeat(capacity: int | None) -> None:
    engine = Scripted(keeps_loads=True, capacity=capacity)
    bench = _record(engine, _suite(repeats=3, loads=3))
    made = {(replace(run.spec, prompt=NO_PROMPT), run.repeat, run.load) for run in bench.current}
    assert len(made) == len({load for _, _, load in made}) == 3 * 3  # several prompts share a load
    assert any(run.anchor for run in bench.runs)
    first = {run.load: run for run in reversed(bench.runs)}
    assert all(first[load].warmup for _, _, load in made)
    assert not engine.held


def test_fewer_loads_make_several_repeats() -> None:
    for capacity in (None, 1):
        bench = _record(Scripted(keeps_loads=True, capacity=capacity), _suite(repeats=4, loads=2))
        made = {(run.spec.role, run.repeat // 2, run.load) for run in bench.current}
        assert len(made) == len({load for _, _, load in made}) == 3 * 2


def test_a_run_with_a_load_of_its_own_has_a_number_of_its_own() -> None:
    bench = _record(Scripted())
    assert [run.load for run in bench.runs] == list(range(len(bench.runs)))


@pytest.mark.parametrize("keeps_loads", [True, False])
@pytest.mark.parametrize("stop", [2, 9, 12])
def test_numbers_of_loads_go_on_where_a_bench_was_cut_off(keeps_loads: bool, stop: int) -> None:
    suite = _suite(loads=2)
    engine = Scripted(keeps_loads=keeps_loads)
    half = list(islice(scripted.record(suite, engine, values.bench()), stop))[-1]
    results.close(half)
    n_before = 1 + max(run.load for run in half.runs if run.load is not None)
    bench = _record(Scripted(keeps_loads=keeps_loads), suite, results.reopen(half.meta.id))
    after = bench.runs[len(half.runs) :]
    assert len(bench.current) == 12
    assert min(run.load for run in after if run.load is not None) == n_before
    first = {run.load: run for run in reversed(after)}
    assert all(run.warmup for run in first.values()) == keeps_loads  # new loads are warmed up


def test_a_conversation_is_prepared_with_one_load() -> None:
    talk = Prompt(id="talk", text="<Hello>", message="Hello", followups=("More", "Bye"))
    engine = Scripted(keeps_loads=True)
    suite = _suite(prompts=(talk,), repeats=1, loads=1)
    *_, bench = scripted.record(suite, engine, values.bench(), render=lambda messages: str(len(messages)))
    assert [run.load for run in bench.runs[:2]] == [0, 0]  # nothing follows the third turn
    assert len(engine.loaded) == 1 + 3


def test_a_suite_that_grew_measures_only_what_is_new() -> None:
    first = _record(Scripted(), _suite(repeats=1))
    engine = Scripted()
    grown = _suite(repeats=1, prompts=(*PROMPTS, Prompt(id="new", text="N")))
    _record(engine, grown, results.reopen(first.meta.id))
    assert {spec.prompt.id for spec in engine.seen} == {"new"}


def test_lost_summaries_are_retried_and_said() -> None:
    lost = iter([Status.SUMMARY_LOST, Status.SUMMARY_LOST])

    def answer(spec: RunSpec) -> Sample:
        return replace(scripted.sample(spec), status=next(lost, Status.OK))

    bench = _record(Scripted(answer=answer))
    first = bench.runs[0]
    assert (first.sample.status, first.attempts) == (Status.OK, 3)
    assert "summary-retried" in first.doubts
    for number in (1, 2):
        assert (bench.folder / "logs" / f"{first.log}.lost{number}.err").exists()


def test_summaries_that_never_come_are_a_status() -> None:
    bench = _record(Scripted(answer=lambda spec: Sample(status=Status.SUMMARY_LOST)), _suite(repeats=1))
    assert {(run.sample.status, run.attempts) for run in bench.runs} == {(Status.SUMMARY_LOST, 6)}


def test_a_drafting_run_is_compared_even_where_the_targets_comes_later() -> None:
    def answer(spec: RunSpec) -> Sample:
        differs = spec.role is Role.DRAFTING and spec.prompt.id == "a"
        return scripted.sample(spec, text="the target's odd words" if differs else scripted.TEXT)

    bench = _record(Scripted(answer=answer), _suite(warmups=0))
    stored = results.load(bench.meta.id)
    for runs in (bench.current, stored.current):
        compared = {
            (run.spec.prompt.id, run.text_identical) for run in runs if run.spec.role is Role.DRAFTING
        }
        assert compared == {("a", False), ("b/c d", True)}
    (drafting,) = (arm for arm in arms.group(stored) if arm.role is Role.DRAFTING)
    assert drafting.compared == {"a": False, "b/c d": True}
    assert "a from character 14" in review.warnings(stored)["texts-not-judged"]


def test_the_target_is_compared_with_its_own_first_text() -> None:
    texts = iter(["first", "first", "second"])

    def answer(spec: RunSpec) -> Sample:
        varies = spec.role is Role.TARGET and spec.prompt.id == "b/c d"
        return scripted.sample(spec, text=next(texts) if varies else "first")

    bench = _record(Scripted(answer=answer), _suite(repeats=3, warmups=0))
    own = [run for run in bench.current if run.spec.role is Role.TARGET and run.spec.prompt.id == "b/c d"]
    assert [run.text_identical for run in own] == [None, True, False]
    assert "target-varies" in review.warnings(results.load(bench.meta.id))
    assert all(warnings.outcome(run) is Status.OK for run in own)
    drafting = [run for run in bench.current if run.spec.role is Role.DRAFTING]
    assert all(run.text_identical for run in drafting)


def test_disturbed_runs_are_kept_and_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    busy = iter([0.0] * 5 + [1.5, 0.0])
    monkeypatch.setattr(machine.Watch, "conditions", lambda self: Conditions(others_cores=next(busy, 0.0)))
    bench = _record(Scripted(), _suite(repeats=1))
    (again,) = (run for run in bench.runs if run.rerun)
    twice = [run for run in bench.runs if run.spec == again.spec and not (run.warmup or run.anchor)]
    assert [run.doubts for run in twice] == [("busy-machine",), ()]
    assert len(bench.current) == 6
    assert again in bench.current
    assert "busy-machine" not in review.warnings(bench)


def test_a_machine_that_is_never_quiet_ends_the_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine.Watch, "conditions", lambda self: Conditions(others_cores=1.5))
    bench = _record(Scripted(), _suite(repeats=4))
    assert len(bench.current) == 24
    assert 6 <= sum(run.rerun > 0 for run in bench.runs) <= 8
    assert "(24 of 24 runs)" in review.warnings(bench)["busy-machine"]


def test_measuring_again_leaves_time_for_a_run_of_each_arm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine.Watch, "conditions", lambda self: Conditions(others_cores=1.5))
    now = 0.0
    monkeypatch.setattr("time.perf_counter", lambda: now)

    def answer(spec: RunSpec) -> Sample:
        nonlocal now
        now += 10.0
        return scripted.sample(spec)

    deadline = Deadline.start(60.0, clock=lambda: now)
    suite = _suite(repeats=1, warmups=0, has_anchors=False, prompts=PROMPTS[:1])
    *_, bench = scripted.record(suite, Scripted(answer=answer), values.bench(), deadline=deadline)
    assert len(bench.current) == 3  # with all its reruns, the first arm would take half of the time
    assert sum(run.rerun > 0 for run in bench.runs) == 2


def test_precision_repeats_until_it_is_reached() -> None:
    noise = np.random.default_rng(3)

    def answer(spec: RunSpec) -> Sample:
        return scripted.sample(spec, tps=float(50.0 * np.exp(noise.normal(0, 0.02))))

    prompts = tuple(Prompt(id=f"p{number}", text="A") for number in range(8))
    rough = _record(Scripted(answer=answer), _suite(prompts=prompts))
    precise = _record(Scripted(answer=answer), _suite(prompts=prompts, precision=0.01))
    assert max(run.repeat for run in precise.current) > max(run.repeat for run in rough.current)
    (gain,) = (arm.gain for arm in arms.group(precise) if arm.gain)
    assert gain.ratio.relative_half_width <= 0.01


def test_the_time_limit_ends_a_bench() -> None:
    engine = Scripted()
    bench = _record(engine, _suite(repeats=3, max_time_s=-1.0))
    assert not bench.runs


def test_recorded_answers_need_no_run() -> None:
    said = [{"role": "assistant", "content": "Yes."}, {"role": "user", "content": "Why?"}]
    first = Request("{}").replace(messages=[{"role": "user", "content": "Is it?"}])
    later = (Request("{}").replace(messages=said), "And then?")
    talk = Prompt(id="talk", text="Is it?", request=first, followups=later)
    *_, bench = scripted.record(_suite(prompts=(talk,), repeats=1, warmups=0), Scripted(), values.bench())
    assert [run.spec.prompt.id for run in bench.runs if run.warmup] == ["talk#2"]  # its answer is not known
    assert {run.spec.prompt.id for run in bench.current} == {"talk", "talk#2", "talk#3"}


def test_warm_turns_follow_one_another_in_each_arm() -> None:
    talks = tuple(Prompt(id=name, text=name, followups=("More", "Bye")) for name in "ab")
    engine = Scripted(keeps_loads=True)
    suite = _suite(prompts=(*talks, Prompt(id="c", text="C")), repeats=2, loads=2, warm_turns=True)
    *_, bench = scripted.record(suite, engine, values.bench())
    specs = [run.spec for run in bench.runs if not run.anchor and not run.warmup]
    assert len(specs) == 3 * 7 * 2
    for before, after in pairwise(specs):
        if after.prompt.turn > 1:
            assert before == replace(after, prompt=before.prompt)
            assert before.prompt.id == after.prompt.turn_before


def test_turns_of_a_conversation_stand_on_the_targets_own_answers() -> None:
    talk = Prompt(id="talk", text="<Hello>", message="Hello", followups=("More", "Bye"))

    def render(messages: Sequence[Message]) -> str:
        return "|".join(f"{message.role[0]}:{message.content}" for message in messages)

    *_, bench = scripted.record(_suite(prompts=(talk,), repeats=1), Scripted(), values.bench(), render=render)
    texts = {run.spec.prompt.id: run.spec.prompt.text for run in bench.current}
    answer = scripted.TEXT
    assert texts == {
        "talk": "<Hello>",
        "talk#2": f"u:Hello|a:{answer}|u:More",
        "talk#3": f"u:Hello|a:{answer}|u:More|a:{answer}|u:Bye",
    }
    assert len(bench.current) == 9


# Runs that collapse

FOUR = tuple(Prompt(id=name, text=name) for name in "abcd")


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


def _four(**settings: Any) -> RunPlan:
    return _suite(**{"prompts": FOUR, "repeats": 3, "warmups": 0, **settings})


def _collapsing(*numbers: int, factor: float = 20.0) -> Callable[[RunSpec], Sample]:
    """Answer as usual, but by a factor slower when the target is asked on prompt b for those times."""
    asked = Counter[str]()

    def answer(spec: RunSpec) -> Sample:
        asked[spec.key] += 1
        hit = (spec.role, spec.prompt.id) == (Role.TARGET, "b") and asked[spec.key] - 1 in numbers
        return scripted.sample(spec, tps=1000.0 / factor if hit else 1000.0)

    return answer


@pytest.fixture
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine.Watch, "conditions", lambda self: Conditions())


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("factor", [20.0, 0.05])
@pytest.mark.parametrize(("keeps_loads", "capacity"), [(False, None), (True, None), (True, 1)])
def test_a_collapsed_run_repeats_all_arms(factor: float, keeps_loads: bool, capacity: int | None) -> None:
    engine = Scripted(answer=_collapsing(1, factor=factor), keeps_loads=keeps_loads, capacity=capacity)
    bench = results.load(_record(engine, _four()).meta.id)
    again = [run for run in bench.runs if run.remeasured]
    (collapsed,) = (run for run in bench.first_measured if run.sample.decode_tps != pytest.approx(1000))
    assert {(run.spec.prompt.id, run.repeat) for run in again} == {("b", collapsed.repeat)}
    assert sorted(run.spec.role for run in again) == [Role.DRAFTER, Role.DRAFTING, Role.TARGET]
    assert all(run.rerun > 0 for run in again)
    assert len(bench.first_measured) == len(bench.current) == 3 * 4 * 3
    assert [run.sample.decode_tps for run in bench.current] == pytest.approx([1000] * 36)
    assert not {run.load for run in again} & {run.load for run in bench.first_measured}
    assert len({run.load for run in again}) == 3


@pytest.mark.usefixtures("quiet")
def test_what_collapses_again_is_kept() -> None:
    engine = Scripted(answer=_collapsing(1, *range(3, 99)))
    bench = _record(engine, _four())
    assert len([run for run in bench.runs if run.remeasured]) == 3
    assert sum(run.sample.decode_tps < 100 for run in bench.current if run.sample.decode_tps) == 1


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("stop", range(37, 44))
def test_a_bench_that_was_cut_off_goes_on_with_what_it_measured_again(stop: int) -> None:
    suite = _four()
    engine = Scripted(answer=_collapsing(1))
    begun = list(islice(scripted.record(suite, engine, values.bench()), stop))[-1]
    results.close(begun)
    bench = _record(Scripted(answer=_collapsing()), suite, results.reopen(begun.meta.id))
    again = [run for run in bench.runs if run.remeasured]
    assert len({run.spec.prompt.id for run in again}) == len({run.repeat for run in again}) == 1
    assert sorted(run.spec.role for run in again) == [Role.DRAFTER, Role.DRAFTING, Role.TARGET]


@pytest.mark.usefixtures("quiet")
def test_a_drafter_alone_that_another_block_measured_again_is_no_reason_to_measure_more() -> None:
    asked = Counter[str]()

    def answer(spec: RunSpec) -> Sample:
        asked[spec.key] += 1
        hit = (spec.role, spec.prompt.id, asked[spec.key]) == (Role.DRAFTER, "b", 2)
        return scripted.sample(spec, tps=50.0 if hit else 1000.0)

    sweep = _four().blocks.sweep  # type: ignore[attr-defined]
    bench = _record(Scripted(answer=answer), _four(blocks=replace(sweep, target_layers=(0, 20)).blocks()))
    again = [run for run in bench.runs if run.remeasured]
    assert Counter(run.spec.role for run in again) == {Role.TARGET: 1, Role.DRAFTER: 1, Role.DRAFTING: 1}
