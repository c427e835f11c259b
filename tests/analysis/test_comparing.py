from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import replace

import pytest
import validate_guard

from ggufspec import results, stats
from ggufspec.analysis import Design, GuardState, arms, comparing, guarding
from ggufspec.domain import Conditions, Prompt, Role, RunResult, SpeedVerdict
from ggufspec.errors import InconclusiveError, ResultsError, SlowerError
from ggufspec.report import frames
from ggufspec.report.rows.benches import ComparisonRow
from ggufspec.report.text import comparison, formats
from ggufspec.results import ResultSet
from tests.support import shell, values

PROMPTS = [f"p{number}" for number in range(8)]


def _bench(factor: float = 1.0, change: Callable[[RunResult], RunResult] = lambda run: run) -> ResultSet:
    """Eight prompts, two repeats; drafting takes ``factor`` of its usual speed, with a little noise."""

    def tps(number: int, repeat: int) -> float:
        return (40.0 + number) * (1 + 0.001 * ((number * 7 + repeat * 3) % 5))

    runs = values.grid({None: tps, 3: lambda *cell: 1.5 * factor * tps(*cell)}, repeats=2)
    return values.bench(*map(change, runs))


def _in_turn(factor: float = 1.0, repeats: int = 6, noise: float = 0.004) -> ResultSet:
    """One bench of two llama.cpps; drafting with the second takes ``factor`` of its speed, with noise."""
    chance = random.Random(7)
    heat = [1 + 0.05 * chance.random() for _ in range(repeats)]  # of all runs of a repeat

    def tps(base: float) -> Callable[[int, int], float]:
        return lambda _, repeat: base * heat[repeat] * chance.gauss(1, noise)

    runs = [
        replace(run, spec=replace(run.spec, build=build))
        for build, speed in (("old", 1.0), ("new", factor))
        for run in values.grid({None: tps(40.0), 3: tps(60.0 * speed)}, repeats=repeats)
    ]
    builds = {"old": values.BUILD, "new": replace(values.BUILD, version="0.3.37")}
    return values.bench(*sorted(runs, key=lambda run: (run.repeat, run.spec.prompt.id)), builds=builds)


def _sessions(factor: float, speeds: tuple[float, ...]) -> list[ResultSet]:
    """Benches of one build at different times, in each of which drafting has a speed of its own."""
    return [_bench(factor * speed) for speed in speeds]


def test_two_builds_of_one_bench_are_paired_by_repeat() -> None:
    compared = comparing.compare(_in_turn(0.9))
    assert (compared.before, compared.after, compared.design) == ("old", "new", Design.INTERLEAVED)
    assert compared.differences["llama.cpp"][1].endswith("0.3.37)")
    target, drafting = compared.rows
    assert target.change.verdict is SpeedVerdict.SAME
    assert drafting.change.verdict is SpeedVerdict.SLOWER
    assert drafting.change.p_value < 0.001
    assert drafting.change.ratio.value == pytest.approx(0.9, rel=0.003)
    assert drafting.after_tps / drafting.before_tps == pytest.approx(drafting.change.ratio.value)
    assert (target.texts_equal, target.texts) == (8, 8)


def test_a_repeat_with_less_than_half_of_its_prompts_counts_for_nothing() -> None:
    whole = _in_turn(0.9)
    cut = values.bench(*whole.runs[:-20], builds=dict(whole.meta.builds))
    complete = values.bench(*whole.runs[: -4 * len(PROMPTS)], builds=dict(whole.meta.builds))
    units = []
    for bench in (whole, cut, complete):
        effect = comparing.compare(bench).rows[1].change.effect
        units.append(effect.degrees)
    assert units == [5, 4, 4]


def test_the_tables_of_a_bench_and_of_compare_answer_one_question() -> None:
    """New/old of two llama.cpps: the same ratio, interval, p and verdict, although prompts differ."""
    chance = random.Random(3)
    whole = _in_turn(0.97, repeats=5)
    gains = {prompt: chance.gauss(1, 0.1) for prompt in PROMPTS}
    runs = [
        replace(run, sample=replace(run.sample, gen_s=(run.sample.gen_s or 1) / gains[run.spec.prompt.id]))
        if run.spec.build == "new"
        else run
        for run in whole.runs
    ]
    bench = values.bench(*runs, builds=dict(whole.meta.builds))
    compared = {row.after.spec: row.change for row in comparing.compare(bench).rows}
    for arm in arms.group(bench):
        if arm.counterpart is not None:
            judged = arm.change_judgement
            change = compared[arm.spec]
            assert (judged.ratio, judged.p_value, judged.verdict) == (
                change.ratio,
                change.p_value,
                change.verdict,
            )
    assert len(compared) == 2


def test_single_sessions_give_the_ratio_and_no_verdict() -> None:
    compared = comparing.compare(_bench(), _bench(0.9))
    assert compared.design is Design.SINGLE
    drafting = compared.rows[1].change
    assert drafting.ratio.value == pytest.approx(0.9)
    assert (drafting.p_value, drafting.verdict) == (None, SpeedVerdict.ESTIMATE)
    assert drafting.ratio.assumed_spread == 0.05
    assert drafting.ratio.lo == pytest.approx(0.9 * math.exp(-1.96 * 0.05 * 2**0.5), rel=1e-3)
    text = comparison.page(compared, comparison.engines("binary", "binary")).text()
    assert "measured at different times" in text
    assert "overall" not in text


def test_three_sessions_a_side_give_a_verdict_by_how_much_they_differ() -> None:
    restless = comparing.compare(_sessions(1, (1.0, 1.08, 0.94)), _sessions(0.97, (1.0, 1.05, 0.95)))
    assert restless.design is Design.SESSIONS
    assert restless.rows[1].change.verdict is SpeedVerdict.UNDECIDED
    quiet = comparing.compare(_sessions(1, (1.0, 1.003, 0.998)), _sessions(0.9, (1.0, 1.002, 0.997)))
    assert quiet.rows[1].change.verdict is SpeedVerdict.SLOWER
    two = comparing.compare(_sessions(1, (1.0, 1.0)), _sessions(0.9, (1.0, 1.0, 1.0)))
    assert (two.design, two.rows[1].change.verdict) == (Design.SINGLE, SpeedVerdict.ESTIMATE)


def test_both_directions_mirror_each_other() -> None:
    a, b = _bench(), _bench(0.9)
    there, back = comparing.compare(a, b).rows[1].change, comparing.compare(b, a).rows[1].change
    assert there.ratio.value * back.ratio.value == pytest.approx(1.0)
    (target, _) = comparing.compare(_in_turn(0.9, repeats=1)).rows
    assert target.change.ratio.lo is None
    assert target.change.verdict is SpeedVerdict.UNDECIDED
    with pytest.raises(InconclusiveError, match="one repeat"):
        guarding.guard(comparing.compare(_in_turn(0.9, repeats=1)), 0.02)
    with pytest.raises(ResultsError, match=r"has 1 llama\.cpp, and two are compared"):
        comparing.compare(_bench())


def test_a_guard_tests_the_limit() -> None:
    fails = guarding.guard(comparing.compare(_in_turn(0.9)), 0.03)
    (tested,) = fails.rows
    assert (tested.row.before.role, tested.state) == (Role.DRAFTING, GuardState.SLOWER)
    assert tested.hi < fails.limit == 0.97
    with pytest.raises(SlowerError, match=r"1 of 1 row slower by more than 3.0 %, .* γ=3: 0\.[89]"):
        guarding.raise_if_slower(fails)
    passes = guarding.guard(comparing.compare(_in_turn(0.99)), 0.03)
    assert passes.rows[0].lo > 0.97
    guarding.raise_if_slower(passes)
    unclear = guarding.guard(comparing.compare(_in_turn(0.98, noise=0.03)), 0.03)
    assert unclear.rows[0].state is GuardState.UNDECIDED
    with pytest.raises(InconclusiveError, match="1 of 1 row undecided") as caught:
        guarding.raise_if_slower(unclear)
    assert "repeats in all would decide" in str(caught.value.hint)
    text = comparison.page(comparing.compare(_in_turn(0.9)), guard=fails).text()
    assert "slower [0." in text
    assert "0.970 is the limit" in text


def test_a_guard_of_single_sessions_is_inconclusive() -> None:
    with pytest.raises(InconclusiveError, match="single sessions") as caught:
        guarding.guard(comparing.compare(_bench(), _bench(0.5)), 0.03)
    assert "--llama OLD --llama NEW" in str(caught.value.hint)


def test_a_guard_beside_other_programs_is_inconclusive() -> None:
    """What they did to either llama.cpp is larger than the limit, whatever the runs agree on."""

    def beside(run: RunResult) -> RunResult:
        return replace(run, doubts=("busy-machine",), conditions=Conditions(others_cores=1.0))

    quiet = _in_turn(0.9)
    busy = values.bench(*map(beside, quiet.runs), builds=dict(quiet.meta.builds))
    compared = comparing.compare(busy)
    assert comparing.compare(quiet).rows[-1].change.verdict is SpeedVerdict.SLOWER
    assert {row.change.verdict for row in compared.rows} == {SpeedVerdict.UNDECIDED}
    with pytest.raises(InconclusiveError) as caught:
        guarding.raise_if_slower(guarding.guard(compared, 0.03))
    assert "quiet machine" in str(caught.value.hint)
    swapped = values.bench(
        *(replace(run, doubts=("swapping",)) for run in quiet.runs), builds=dict(quiet.meta.builds)
    )
    for compared in (comparing.compare(swapped), comparing.compare([swapped] * 3, [swapped] * 3)):
        assert {row.change.ratio.lo for row in compared.rows} == {None}
        with pytest.raises(InconclusiveError, match="swapped"):
            guarding.guard(compared, 0.03)


def test_holms_procedure_and_its_intervals_agree() -> None:
    effects = [stats.LogEffect(value=v, error=0.01, degrees=20, units=21) for v in (-0.1, -0.06, -0.031, 0.0)]
    tests = stats.judge_limits(effects, -0.02, fail_error=0.05, pass_error=0.05)
    assert [test.is_below for test in tests] == [True, True, False, False]
    assert [test.is_above for test in tests] == [False, False, False, True]
    widths = [test.hi - effect.value for test, effect in zip(tests, effects, strict=True)]
    assert widths[0] > widths[1] > widths[2] == pytest.approx(widths[3])
    assert tests[3].units == 21
    assert tests[2].units > 21
    at_the_limit = stats.LogEffect(value=-0.02, error=0.01, degrees=20, units=21)
    (never,) = stats.judge_limits([at_the_limit], -0.02, fail_error=0.05, pass_error=0.05)
    assert never.units is None


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("ab", "--fail-slower", "3%"), 33),
        (("a", "b", "--fail-slower", "3%"), 34),
        (("a", "b"), 0),
        (("a", "a", "a", "--", "b", "b", "b", "--fail-slower", "3%"), 33),
        (("a", "b", "ab"), 2),
        (("--", "ab"), 2),
    ],
)
def test_the_exit_code_says_what_the_guard_found(words: tuple[str, ...], code: int) -> None:
    results.close(_renamed(_in_turn(0.9), "ab"))
    results.close(_renamed(_bench(), "a"))
    results.close(_renamed(_bench(0.9), "b"))
    done = shell.here("compare", *words)
    assert done.returncode == code, done.stderr


def _renamed(bench: ResultSet, name: str) -> ResultSet:
    return values.bench(*bench.runs, builds=dict(bench.meta.builds), name=name)


def test_few_guards_fail_without_a_loss() -> None:
    unchanged = validate_guard.simulate(validate_guard.RECOMMENDED, 0.0, rows=18, count=60)
    assert unchanged["failed"] <= 1
    slower = validate_guard.simulate(validate_guard.RECOMMENDED, 0.05, rows=18, count=60)
    assert slower["failed"] >= 57


def test_what_differs_and_what_is_missing_is_said() -> None:
    other = _bench(change=lambda run: replace(run, spec=replace(run.spec, threads=1)))
    compared = comparing.compare(_bench(), other)
    assert compared.differences == {"threads": ("2", "1")}
    text = comparison.page(compared).text()
    assert "threads: 2 → 1" in text
    assert "overall" not in text
    more = values.bench(*_bench().runs, *(values.run(Role.DRAFTER, prompt=p, tps=900.0) for p in PROMPTS))
    compared = comparing.compare(_bench(), more)
    assert len(compared.rows) == 2
    assert compared.unmatched == ("drafter drafter.gguf  ",)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda run: replace(run, spec=replace(run.spec, n_predict=99)), "no arm in common"),
        (
            lambda run: replace(run, spec=replace(run.spec, prompt=Prompt(id="other", text="o"))),
            "share no prompt",
        ),
        (
            lambda run: replace(run, spec=replace(run.spec, prompt=replace(run.spec.prompt, text="else"))),
            "prompt p0 has another text",
        ),
    ],
)
def test_what_must_not_be_compared_is_refused(change: Callable[[RunResult], RunResult], message: str) -> None:
    with pytest.raises(ResultsError, match=message) as caught:
        comparing.compare(_bench(), _bench(change=change))
    assert caught.value.hint


def test_the_table_of_data_has_one_row_per_arm() -> None:
    table = frames.comparison(comparing.compare(_bench(), _bench(0.9)))
    assert tuple(table.columns) == ComparisonRow.names()
    target, drafting = formats.records(table)
    assert drafting["ratio"] == pytest.approx(0.9)
    assert drafting["ratio_lo"] <= 0.9 <= drafting["ratio_hi"]
    assert drafting["before_accept_rate"] == 0.75
    assert target["before_accept_rate"] is None
