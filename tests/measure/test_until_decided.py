"""`bench --until decided`: looks after complete repeats, intervals that allow for them, and where it ends."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ggufspec import results, stats
from ggufspec.analysis import Arm, arms, judge_ratio
from ggufspec.domain import (
    Prompt,
    Role,
    RunSpec,
    Sample,
    SpeedVerdict,
    Status,
    StoppingRule,
    schedule_looks,
)
from ggufspec.errors import GgufspecError, ResultsError
from ggufspec.measure import api, prepare_session
from ggufspec.measure.runplan import RunPlan
from ggufspec.options import BenchOptions
from ggufspec.report.text import details, overview
from ggufspec.results import ResultSet
from ggufspec.tuning.bisect.decisions import VersionDifference
from tests.support import fakes, scripted, shell, values
from tests.support.scripted import Scripted

PROMPTS = tuple(Prompt(id=f"p{number}", text="A") for number in range(4))
RULE = StoppingRule(least_repeats=3, most_repeats=9, comparisons=1)
LOOKS = (4, 6, 9)


def _answer(gain: float, noise: float, seed: int = 1) -> Callable[[RunSpec], Sample]:
    """Draft so many times as fast as the target; each run differs by the noise."""
    chance = np.random.default_rng(seed)

    def answer(spec: RunSpec) -> Sample:
        speed = 50.0 * (gain if spec.role is Role.DRAFTING else 1.0)
        return scripted.sample(spec, tps=float(speed * np.exp(chance.normal(0, noise))))

    return answer


def _suite(rule: StoppingRule = RULE, **settings: Any) -> RunPlan:
    plan: dict[str, Any] = {"blocks": scripted.sweep().blocks(), "prompts": PROMPTS, "stopping": rule}
    return RunPlan(repeats=rule.looks[0], **plan | settings)


def _store(rule: StoppingRule = RULE, name: str = "mine") -> ResultSet:
    return results.create(replace(values.META, planned_runs=_suite(rule).n_runs, stopping=rule), name)


def _record(answer: Callable[[RunSpec], Sample], name: str = "mine") -> ResultSet:
    *_, last = scripted.record(_suite(), Scripted(answer=answer), _store(name=name))
    return last


def _drafting(bench: ResultSet) -> Arm:
    (arm,) = (arm for arm in arms.group(bench) if arm.role is Role.DRAFTING)
    return arm


def _repeats(bench: ResultSet) -> int:
    return len(set(bench.current.column("repeat")))


def test_looks_grow_by_half_from_four_repeats() -> None:
    assert RULE.looks == LOOKS
    assert schedule_looks(20) == (4, 6, 9, 14, 20)
    assert (schedule_looks(4), schedule_looks(2)) == ((4,), (2,))
    assert schedule_looks(20, least_repeats=10) == (10, 15, 20)
    assert [RULE.last_look(repeats) for repeats in (3, 4, 5, 6, 9, 12)] == [None, 4, 4, 6, 9, 9]
    assert replace(RULE, comparisons=4).tests == 12


def _tables(gain: float, noise: float, repeats: int, seed: int = 0) -> tuple[stats.Rates, stats.Rates]:
    chance = np.random.default_rng(seed)
    alone, arm = (np.exp(chance.normal(3, noise, (4, repeats))) for _ in range(2))
    prompts = [prompt.id for prompt in PROMPTS]
    return stats.Rates(prompts, range(repeats), gain * arm), stats.Rates(prompts, range(repeats), alone)


def test_the_interval_is_the_one_of_a_bisection_with_the_same_error() -> None:
    arm, alone = _tables(1.3, 0.02, 6)
    effect = stats.fixed_effect(arm, alone, tests=RULE.tests)
    means = (np.log(arm.table) - np.log(alone.table)).mean(axis=0).tolist()
    same = VersionDifference.of(0, 1, means, stats.ERROR / len(LOOKS) / 2)
    assert (effect.ratio.value, effect.ratio.lo, effect.ratio.hi) == pytest.approx(
        tuple(map(math.exp, (same.value, same.lo, same.hi)))
    )
    once = stats.fixed_effect(arm, alone, tests=1)
    assert effect.ratio.lo < once.ratio.lo  # one look spends the whole error


@pytest.mark.parametrize("seed", range(20))
def test_the_interval_excludes_one_exactly_where_p_is_small(seed: int) -> None:
    effect = stats.fixed_effect(*_tables(1.01, 0.02, 6, seed), tests=RULE.tests)
    excluded = effect.ratio.lo > 1 or effect.ratio.hi < 1
    assert excluded is (effect.p_value < 0.05)
    assert (judge_ratio(effect.ratio) in {SpeedVerdict.FASTER, SpeedVerdict.SLOWER}) <= excluded


def test_a_missing_cell_is_no_difference_between_repeats() -> None:
    prompts = np.array([0.0, 0.1, 0.2, 0.3])
    arm, alone = _tables(1.0, 1e-6, 6)
    table = arm.table * np.exp(prompts)[:, None] * 1.2
    table[3, 2] = np.nan
    effect = stats.fixed_effect(replace(arm, table=table), alone, tests=RULE.tests)
    assert effect.ratio.value == pytest.approx(1.2 * np.exp(0.15), rel=1e-4)
    assert effect.ratio.relative_half_width < 1e-4
    table[1:, 2] = np.nan  # too little of a repeat does not count
    smaller = stats.fixed_effect(replace(arm, table=table), alone, tests=RULE.tests)
    assert smaller.degrees == 4


def test_without_two_repeats_or_without_noise_there_is_no_interval() -> None:
    single = stats.fixed_effect(*_tables(1.5, 0.01, 1), tests=RULE.tests)
    equal = stats.fixed_effect(*_tables(1.5, 0.0, 4), tests=RULE.tests)
    for effect, gap in ((single, stats.Gap.SINGLE), (equal, stats.Gap.EQUAL)):
        assert (effect.ratio.lo, effect.p_value, effect.gap) == (None, None, gap)
        assert judge_ratio(effect.ratio) is SpeedVerdict.UNDECIDED


def test_a_clear_result_ends_the_bench_at_the_first_look() -> None:
    bench = _record(_answer(1.5, 0.01))
    assert (_repeats(bench), _drafting(bench).look) == (4, 4)
    assert _drafting(bench).gain is not None
    assert _drafting(bench).is_decided
    assert bench.is_complete
    assert bench.meta.planned_runs == len(bench.current) == 3 * 4 * 4


def test_an_unclear_result_ends_at_the_most_repeats_and_only_at_a_look() -> None:
    bench = _record(_answer(1.0, 0.2))
    assert (_repeats(bench), _drafting(bench).look, _drafting(bench).is_decided) == (9, 9, False)
    assert "1 of 1 speed-up not decided after 9 of at most 9 repeats" in overview.overview(bench)
    small = _record(_answer(1.05, 0.03, seed=5), name="second")
    assert _repeats(small) in LOOKS


def test_an_arm_that_always_fails_does_not_keep_a_bench_going() -> None:
    def answer(spec: RunSpec) -> Sample:
        return Sample(status=Status.CRASHED) if spec.role is Role.DRAFTING else scripted.sample(spec)

    assert _repeats(_record(answer)) == 4


def test_what_was_measured_after_the_last_look_does_not_count() -> None:
    store, rule = _store(), RULE
    engine = Scripted(answer=_answer(1.02, 0.2))
    for latest in scripted.record(_suite(rule), engine, store):
        if len(latest.current) >= 3 * 4 * 5 + 2:  # in the sixth repeat
            break
    results.close(latest)
    cut = results.load("mine")
    assert _drafting(cut).look == 4
    assert {repeat for _, repeat in _drafting(cut).rates} == set(range(4))
    assert cut.is_complete is False
    before_any = cut.current.select(range(20))
    early = next(arm for arm in arms.group(cut, before_any) if arm.role is Role.DRAFTING)
    assert (early.look, early.gain.gap, early.gain.ratio.lo) == (None, stats.Gap.NO_LOOK, None)
    assert not early.is_decided
    *_, whole = scripted.record(_suite(rule), engine, results.reopen("mine"))
    assert _drafting(whole).look in LOOKS[1:]


def test_a_stored_bench_gives_the_same_table_and_resuming_it_adds_nothing() -> None:
    bench = _record(_answer(1.5, 0.01))
    printed = overview.overview(bench)
    assert "every speed-up is decided after 4 of at most 9 repeats" in printed
    assert "3 looks, 1 comparison" in printed
    stored = results.load("mine")
    assert stored.meta.stopping == RULE
    assert overview.overview(stored) == printed
    assert details.checks(stored)
    assert details.variance(stored)
    *_, again = scripted.record(_suite(), Scripted(), results.reopen("mine"))
    assert len(again.runs) == len(stored.runs)
    results.close(again)
    assert overview.overview(results.load("mine")) == printed


BENCH = ("bench", "--pair", "demo", "-p", "Once upon a time", "-n", "32", "-t", "1", "--warmup", "0")


def test_the_command_stores_its_looks_and_resumes_by_the_same_options(llama: Path) -> None:
    words = (*BENCH, "--until", "decided", "--max-repeats", "4")
    done = shell.done(*words, "--name", "mine")
    assert "until: every speed-up is decided; complete repeats at each look: 4" in done.stderr
    stored = results.load("mine")
    assert stored.meta.stopping == StoppingRule(least_repeats=1, most_repeats=4, comparisons=1)
    assert _repeats(stored) == 4  # the fake llama.cpp gives equal values, which decide nothing
    shown = shell.here("show", "mine")
    line = next(line for line in done.stdout.splitlines() if line.startswith("Measured until decided"))
    assert line in shown.stdout
    resumed = shell.here(*words, "--resume", "mine")
    assert (resumed.returncode, len(results.load("mine").runs)) == (0, len(stored.runs))
    for others in (BENCH, (*words[:-1], "9")):
        refused = shell.here(*others, "--resume", "mine")
        assert refused.returncode != 0
        assert "was begun with --until decided" in refused.stderr
    rows = json.loads(shell.here("show", "mine", "-o", "json").stdout)
    assert {row["verdict"] for row in rows if row["role"] == "drafting"} == {"undecided"}


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"until": "done"}, "--until is 'decided', not 'done'"),
        ({"max_repeats": 9}, "--max-repeats is for --until decided"),
        ({"until": "decided", "precision": 0.02}, "both say when to stop"),
        ({"until": "decided", "repeats": 8, "max_repeats": 6}, "--max-repeats is 6, less than the 8"),
        ({"until": "decided", "engine": "server", "parallel": 2}, "one request after another"),
    ],
)
def test_a_contradiction_in_a_request_is_refused(llama: Path, fields: dict[str, Any], problem: str) -> None:
    with pytest.raises(GgufspecError, match=problem):
        prepare_session(BenchOptions(pair="demo", prompt=("A cat",), threads=1, **fields))


def test_llama_cpps_and_a_target_alone_have_no_verdict_to_wait_for(llama: Path, tmp_path: Path) -> None:
    other = fakes.install(tmp_path / "other", **fakes.AT_ONCE)
    two = BenchOptions(pair="demo", prompt=("A cat",), threads=1, until="decided", llama=(llama, other))
    with pytest.raises(GgufspecError, match="--until decided measures one llama"):
        prepare_session(two)
    target = Path(results.__file__).parents[2] / "models" / "demo" / "target.gguf"
    with pytest.raises(GgufspecError, match="nothing drafts"):
        prepare_session(BenchOptions(target=str(target), prompt=("A cat",), threads=1, until="decided"))


def test_servers_that_run_already_are_not_measured_until_decided() -> None:
    with pytest.raises(GgufspecError, match="--until decided measures one request after another"):
        api.prepare(BenchOptions(url="http://127.0.0.1:9", until="decided"))


def test_a_bench_without_looks_cannot_be_resumed_with_them(llama: Path) -> None:
    assert shell.here(*BENCH, "-r", "1", "--name", "plain").returncode == 0
    from ggufspec.measure import identify

    session = identify(
        prepare_session(
            BenchOptions(pair="demo", prompt=("Once upon a time",), n_predict=32, threads=1, until="decided")
        )
    )
    with pytest.raises(ResultsError, match="was begun without --until"):
        api.begin(session, command=(), resume="plain")
