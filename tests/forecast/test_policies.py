"""Rules for the draft size, replayed over texts in which it is known what the drafter has right."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from ggufspec.cli.policies import _conclude
from ggufspec.domain import Estimate, Role, Round, RunResult, Traffic, TrafficSample
from ggufspec.errors import GgufspecError
from ggufspec.forecast import RoundsRun
from ggufspec.forecast.policies import (
    RULES,
    DraftSchedule,
    PolicyComparison,
    PolicyGain,
    best_sizes,
    compare_rules,
    compare_schedule,
    fixed,
    from_rounds,
    read_rules,
    replay,
    replay_p_min,
)
from tests.support import values

LARGEST = 8


def _seconds(size: int) -> float:
    return 1.0 + 0.2 * size


def _runs(*chances: float) -> dict[float, list[RoundsRun]]:
    """Return runs at the largest size over texts whose passages are as easy as the chances say, in turn."""
    draw = random.Random(5)
    runs = []
    for number in range(8):
        text = [draw.random() < chance for chance in chances * 2 for _ in range(40)]
        rounds = replay(text, fixed(LARGEST), _seconds, LARGEST)
        category = ("even", "odd")[number % 2]
        runs.append(_run(number, rounds, category=category))
    return {0.0: runs}


def _run(number: int, rounds: Sequence[Round], category: str | None = None) -> RoundsRun:
    seconds = sum(_seconds(entry.drafted) for entry in rounds)
    return RoundsRun(
        prompt_id=f"{number}", rounds=tuple(rounds), seconds=seconds, category=category, size=LARGEST
    )


TIMES = {0: 1.0, 2: _seconds(2), LARGEST: _seconds(LARGEST)}


def test_a_replay_drafts_no_further_than_the_text_goes() -> None:
    assert replay([True] * 6, fixed(4), _seconds, LARGEST) == (Round(4, 4), Round(0, 0))
    assert replay([True, False, False], fixed(99), _seconds, 2) == (Round(2, 1), Round(0, 0))


def test_no_choice_of_sizes_is_faster_than_the_oracle() -> None:
    draw = random.Random(1)
    for _ in range(20):
        text = [draw.random() < 0.6 for _ in range(5)]
        every = []
        for sizes in itertools.product(range(4), repeat=len(text)):
            rounds = replay(text, from_rounds(lambda rounds, *_, of=sizes: of[len(rounds)]), _seconds, 3)
            every.append(sum(_seconds(entry.drafted) for entry in rounds))
        assert sum(map(_seconds, best_sizes(text, _seconds, 3))) == pytest.approx(min(every))


def test_a_rule_that_follows_the_text_beats_every_fixed_size_where_the_text_changes() -> None:
    compared = compare_rules(_runs(0.98, 0.05), TIMES, RULES)
    assert "follow" in {gain.rule for gain in compared.rules if (gain.over_fixed.lo or 0) > 1.01}
    first, *_, last = [gain for gain in compared.gains if gain.category is None]
    assert first.rule == "oracle"
    assert last.of_oracle.value < 1


def test_a_fixed_size_is_as_good_where_all_tokens_are_as_easy() -> None:
    compared = compare_rules(_runs(0.7), TIMES, RULES)
    assert {gain.rule for gain in compared.rules} == {*RULES}
    assert all((gain.over_fixed.lo or 0) < 1 for gain in compared.rules)
    assert all((gain.of_oracle.hi or 0) <= 1 for gain in compared.gains)  # a share of what is possible
    assert [check.rule for check in compared.checks] == [f"γ {LARGEST}"]
    assert compared.checks[0].ratio == pytest.approx(1, abs=0.05)  # errors of times are drawn
    assert {gain.category for gain in compared.gains} == {None, "even", "odd"}
    best = next(gain for gain in compared.gains if gain.rule == f"γ {compared.best_fixed}")
    assert (best.over_fixed.value, best.over_fixed.lo, best.over_fixed.hi) == (1.0, 1.0, 1.0)


@pytest.mark.parametrize(
    ("over_fixed", "says"),
    [
        ((1.1, 1.05, 1.15), "follow is 1.10× [1.05×, 1.15×] as fast as γ 8, the best fixed γ, on 4 prompts."),
        ((0.9, 0.85, 0.95), "No rule is faster than γ 8 on 4 prompts: a fixed γ is as good."),
        ((0.9, 0.7, 1.1), "Undecided on 4 prompts whether a rule (follow) is faster than γ 8: "),
    ],
)
def test_undecided_is_said_and_no_finding(over_fixed: tuple[float, ...], says: str) -> None:
    value, lo, hi = over_fixed
    ratio = Estimate(value=value, lo=lo, hi=hi)
    one = Estimate(value=1.0, lo=1.0, hi=1.0)
    gains = [
        PolicyGain(rule=rule, category=None, mean_size=8.0, gain=one, over_fixed=change, of_oracle=one)
        for rule, change in (("follow", ratio), ("oracle", Estimate(value=2.0, lo=1.9, hi=2.1)), ("γ 8", one))
    ]
    compared = PolicyComparison(bench="b1", n_max=8, best_fixed=8, gains=tuple(gains), prompts=4)
    assert _conclude(compared).startswith(says)


@pytest.mark.parametrize(
    ("source", "error"),
    [
        ("x = 1", "has no function"),
        ("def", "cannot be run"),
        ("def bad(*_): return 1 / 0", "bad failed"),
    ],
)
def test_a_file_that_is_no_rule_is_refused(tmp_path: Path, source: str, error: str) -> None:
    (tmp_path / "mine.py").write_text(source)
    with pytest.raises(GgufspecError, match=error):
        compare_rules(_runs(0.7), TIMES, read_rules(tmp_path / "mine.py"))


def test_a_rule_of_the_users_is_replayed(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("import math\n\ndef two(rounds, seconds, largest):\n    return 2\n")
    rules = read_rules(tmp_path / "mine.py")
    assert [*rules] == ["two"]
    assert replay([True] * 6, rules["two"], _seconds, LARGEST) == (Round(2, 2), Round(2, 2))


def _as_sizes(rounds: Sequence[Round]) -> list[int]:
    return [entry.drafted for entry in rounds]


@pytest.mark.parametrize(
    ("rule", "text", "sizes"),
    [
        ("follow", [True] * 12 + [False] * 12, [8, 8, 4, 1]),
        ("mean", [True] * 12 + [False] * 12, [8, 8]),
        ("llama.cpp #25726", [True] * 60, [1] * 11 + [2] * 11 + [3]),
        ("llama.cpp #25726", [True] * 22 + [False] * 30, [1] * 11 + [2] * 11 + [1]),
        # whole drafts of 3 six times, of 4 five times, of 5 four times
        ("llama.cpp #27210", [True] * 120, [3] * 6 + [4] * 5 + [5] * 4 + [6] * 3 + [7]),
        # misses of 4 tokens add up to 20: one less after five of them
        ("llama.cpp #27210", [True] * 24 + [False] * 99, [3] * 6 + [4] * 5 + [3] * 3),
    ],
)
def test_the_rules_answer_to_what_was_accepted(rule: str, text: list[bool], sizes: list[int]) -> None:
    assert _as_sizes(replay(text, RULES[rule], _seconds, LARGEST))[: len(sizes)] == sizes


@pytest.mark.parametrize(("right", "usual"), [(True, LARGEST), (False, 1)])
def test_autotune_comes_to_the_fastest_size(right: bool, usual: int) -> None:
    sizes = _as_sizes(replay([right] * 4000, RULES["ik autotune"], _seconds, LARGEST))
    later = sizes[len(sizes) // 2 :]
    assert later.count(usual) > 0.7 * len(later)
    assert {*sizes[:-1]} == {*range(1, LARGEST + 1)}  # now and then any


def test_a_p_min_ends_drafts_where_the_drafter_doubts() -> None:
    right = [True, True, False, True, True, False, True, True]
    sure = [True, True, False, True, False, True, True, True]
    rounds, proposals = replay_p_min(right, sure, [1], 4, random.Random(0))
    # ends before the third token; before the fifth; a wrong sixth, and as the tail says one more
    assert rounds == (Round(2, 2), Round(1, 1), Round(2, 0), Round(1, 1))
    assert proposals == (3, 2, 2, 1)


def test_a_p_min_of_smaller_sizes_follows_from_one_run_at_the_largest() -> None:
    measured = _runs(0.98, 0.4)
    measured[0.5] = []
    for number, run in enumerate(measured[0.0]):
        right = [entry for drafted, accepted in run.rounds for entry in [True] * accepted + [False]]
        rounds, _ = replay_p_min(right, right, [0], LARGEST, random.Random(0))  # it doubts what is wrong
        measured[0.5].append(_run(number, rounds))
    compared = compare_rules(measured, TIMES, {})
    (gain,) = compared.rules
    assert gain.rule.endswith("p-min 0.5")
    assert (gain.over_fixed.lo or 0) > 1
    assert [check.rule for check in compared.checks] == ["γ 8", "γ 8, p-min 0.5"]


@pytest.mark.parametrize("text", ["4:8,16:1", "[[1, 4, 8], [5, 16, 1]]"])
def test_a_schedule_is_read_in_both_forms(text: str) -> None:
    schedule = DraftSchedule.parse(text)
    assert [schedule.size(users) for users in (1, 4, 5, 16)] == [8, 8, 1, 1]
    if schedule.beyond is None:
        with pytest.raises(GgufspecError, match="says nothing of 17 users"):
            schedule.size(17)
    else:
        assert schedule.size(17) == 0


@pytest.mark.parametrize("text", ["four", "4", "[[1, 4]]", "{}", "[1]"])
def test_what_is_no_schedule_is_refused(text: str) -> None:
    with pytest.raises(GgufspecError, match="is not a schedule"):
        DraftSchedule.parse(text)


def test_a_schedule_is_compared_with_the_best_fixed_size_by_users() -> None:
    speeds = {(1, 0): 1.0, (1, 2): 1.5, (1, 8): 3.0, (16, 0): 9.0, (16, 2): 10.0, (16, 8): 4.0}
    runs = [
        _run_of_users(users, size, rate * (1 + 0.01 * repeat), repeat)
        for (users, size), rate in speeds.items()
        for repeat in range(3)
    ]
    compared = compare_schedule(runs, None)
    assert compared.best_fixed == 2
    assert [(gain.users, gain.size) for gain in compared.gains] == [(1, 8), (16, 2)]
    assert [gain.over_fixed.value for gain in compared.gains] == pytest.approx([2.0, 1.0])
    assert compared.over_fixed == pytest.approx(2**0.5)
    assert [part[2] for part in compared.schedule.parts] == [8, 2]
    asked = compare_schedule(runs, DraftSchedule.parse("1:8"))
    assert [gain.size for gain in asked.gains] == [8, 0]  # more users do not draft
    with pytest.raises(GgufspecError, match="no γ 4 at 16 users"):
        compare_schedule(runs, DraftSchedule.parse("1:8,16:4"))


def _run_of_users(users: int, size: int, rate: float, repeat: int) -> RunResult:
    run = values.run(Role.DRAFTING if size else Role.TARGET, repeat=repeat, draft=size or None)
    traffic = Traffic(users=users, prompts=(run.spec.prompt,))
    sample = replace(
        run.sample, traffic=TrafficSample(requests=(), window_tokens=1000), gen_s=1000 / rate, sampling_s=None
    )
    return replace(run, spec=replace(run.spec, traffic=traffic), sample=sample)
