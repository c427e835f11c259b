"""Rules for the draft size, replayed over texts in which it is known what the drafter has right."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from ggufspec.cli.forecasts import _print_rules
from ggufspec.domain import (
    Estimate,
    RequestOutcome,
    Role,
    Round,
    RunResult,
    Traffic,
    TrafficSample,
    UserRequest,
)
from ggufspec.errors import GgufspecError
from ggufspec.forecast import RoundsRun
from ggufspec.forecast.policies import (
    RULES,
    DraftSchedule,
    PolicyComparison,
    PolicyGain,
    best_sizes,
    compare_cells,
    compare_rules,
    compare_schedule,
    fixed,
    from_rounds,
    read_rules,
    replay,
    replay_p_min,
)
from tests.support import shell, values

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


def _run(number: int, rounds: Sequence[Round], category: str | None = None, size: int = LARGEST) -> RoundsRun:
    seconds = sum(_seconds(entry.drafted) for entry in rounds)
    return RoundsRun(
        prompt_id=f"{number}", rounds=tuple(rounds), seconds=seconds, category=category, size=size
    )


def _measure(size: int) -> Iterator[RoundsRun]:
    """Runs at a size over texts that are easy in one category, and hard in the other."""
    draw = random.Random(7)
    for number in range(8):
        text = [draw.random() < (0.95, 0.2)[number % 2] for _ in range(80)]
        rounds = replay(text, fixed(size), _seconds, LARGEST)
        yield _run(number, rounds, category=("easy", "hard")[number % 2], size=size)


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
    assert {gain.rule for gain in compared.rules} == {*RULES, "γ by category"}
    assert all((gain.over_fixed.lo or 0) < 1 for gain in compared.rules)
    assert all((gain.of_oracle.hi or 0) <= 1 for gain in compared.gains)  # a share of what is possible
    assert [check.rule for check in compared.checks] == [f"γ {LARGEST}"]
    assert compared.checks[0].ratio == pytest.approx(1, abs=0.05)  # errors of times are drawn
    assert {gain.category for gain in compared.gains} == {None, "even", "odd"}
    best = next(gain for gain in compared.gains if gain.rule == f"γ {compared.best_fixed}")
    assert (best.over_fixed.value, best.over_fixed.lo, best.over_fixed.hi) == (1.0, 1.0, 1.0)


def test_a_size_for_each_category_is_chosen_by_its_other_prompts() -> None:
    measured = [run for size in range(1, LARGEST + 1) for run in _measure(size)]
    compared = compare_rules({0.0: measured}, {0: 1.0} | {n: _seconds(n) for n in range(1, LARGEST + 1)}, {})
    (gain,) = compared.rules
    assert gain.rule == "γ by category"
    assert (gain.over_fixed.lo or 0) > 1
    assert compared.checks[-1].rule == gain.rule
    assert compared.checks[-1].ratio == pytest.approx(1, abs=0.05)


SIZES = (2, LARGEST)


def _timed() -> Iterator[RunResult]:
    """Runs with more users and behind other text, where rounds take longer."""
    for users, depth in ((1, 0), (1, 256), (16, 0)):
        for size in (0, *SIZES):
            round_s = (1.0 + depth / 256) * (1.0 + (0.2 if users == 1 else 3.0) * size)
            token_s = [
                round_s * len(run.rounds) / sum(entry.accepted + 1 for entry in run.rounds)
                if size
                else round_s
                for run in _measure(size or 1)
            ]
            yield _run_of_users(users, size, 1.0, 0, depth=depth, token_s=token_s)


def test_rules_are_compared_by_what_rounds_take_with_more_users_and_depth() -> None:
    measured = [run for size in SIZES for run in _measure(size)]
    timed = [*_timed()]
    cells = [*compare_cells(measured, timed, RULES)]
    assert [(cell.users, cell.depth) for cell in cells] == [(1, 0), (1, 256), (16, 0)]
    alone, deep, many = cells
    assert alone.best_fixed > many.best_fixed == 1
    assert [gain.rule for gain in deep.gains] == [gain.rule for gain in alone.gains]  # twice as slow
    for cell in cells:
        assert [check.ratio for check in cell.checks] == pytest.approx([1.0, 1.0], abs=0.05)
    with pytest.raises(GgufspecError, match="has no times of the target alone"):
        [*compare_cells(measured, [run for run in timed if run.spec.drafting], RULES)]


def test_the_command_prints_a_table_for_all_and_one_for_each_number_of_users() -> None:
    stored = []
    for size in (0, *SIZES):
        for run in _measure(size or 1):
            plain = values.run(
                Role.DRAFTING if size else Role.TARGET, prompt=run.prompt_id, tps=1.0, draft=size or None
            )
            told = replace(plain.sample, rounds=run.rounds, gen_s=run.seconds) if size else plain.sample
            stored.append(replace(plain, sample=told))
    bench, timed = values.bench(*stored).meta.id, values.bench(*_timed()).meta.id
    shown = shell.done("policy", bench, "--times", timed).stdout
    assert shown.count("over best γ") == 4
    assert "Replayed over measured speed: γ 2 " in shown
    assert "\n16 users at once, 0 tokens before each prompt:\n" in shown
    assert shown.count("best fixed γ") + shown.count("a fixed γ is as good") + shown.count("Keep γ") == 4


@pytest.mark.parametrize(
    ("over_fixed", "says"),
    [
        ((1.1, 1.05, 1.15), "follow is 1.10× [1.05×, 1.15×] as fast as γ 8, the best fixed γ, on 4 prompts."),
        ((0.9, 0.85, 0.95), "No rule is faster than γ 8 on 4 prompts: a fixed γ is as good."),
        ((0.9, 0.7, 1.1), "Undecided on 4 prompts whether a rule (follow) is faster than γ 8: "),
    ],
)
def test_undecided_is_said_and_no_finding(
    over_fixed: tuple[float, ...], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    value, lo, hi = over_fixed
    ratio = Estimate(value=value, lo=lo, hi=hi)
    one = Estimate(value=1.0, lo=1.0, hi=1.0)
    gains = [
        PolicyGain(rule=rule, category=None, mean_size=8.0, gain=one, over_fixed=change, of_oracle=one)
        for rule, change in (("follow", ratio), ("oracle", Estimate(value=2.0, lo=1.9, hi=2.1)), ("γ 8", one))
    ]
    compared = PolicyComparison(bench="b1", n_max=8, best_fixed=8, gains=tuple(gains), prompts=4)
    _print_rules(compared)
    *_, concluded = capsys.readouterr().out.splitlines()
    assert concluded.startswith(says)


def test_an_interval_over_orders_of_magnitude_is_not_printed(capsys: pytest.CaptureFixture[str]) -> None:
    wide = Estimate(value=1.34, lo=0.01, hi=169.8)
    gain = PolicyGain(rule="mean", category=None, mean_size=9, gain=wide, over_fixed=wide, of_oracle=wide)
    _print_rules(PolicyComparison(bench="b1", n_max=8, best_fixed=8, gains=(gain,), prompts=2))
    shown = capsys.readouterr().out
    assert shown.count("1.34× [needs more runs]") == 3
    assert "169" not in shown


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
    gain = next(gain for gain in compared.rules if gain.rule.endswith("p-min 0.5"))
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
    over = compared.over_fixed
    assert [over.value, over.lo, over.hi] == pytest.approx([2**0.5] * 3)  # repeats are alike
    assert [part[2] for part in compared.schedule.parts] == [8, 2]
    asked = compare_schedule(runs, DraftSchedule.parse("1:8"))
    assert [gain.size for gain in asked.gains] == [8, 0]  # more users do not draft
    with pytest.raises(GgufspecError, match="no γ 4 at 16 users"):
        compare_schedule(runs, DraftSchedule.parse("1:8,16:4"))


def _run_of_users(
    users: int, size: int, rate: float, repeat: int, *, depth: int = 0, token_s: Sequence[float] = ()
) -> RunResult:
    run = values.run(Role.DRAFTING if size else Role.TARGET, repeat=repeat, draft=size or None)
    prompts = tuple(replace(run.spec.prompt, id=f"{number}") for number in range(len(token_s) or 1))
    traffic = Traffic(users=users, prompts=prompts, depth=depth)
    requests = tuple(
        UserRequest(prompt=number, outcome=RequestOutcome.OK, is_steady=True, tokens=9, token_s=seconds)
        for number, seconds in enumerate(token_s)
    )
    answered = TrafficSample(requests=requests, window_tokens=1000)
    sample = replace(run.sample, traffic=answered, gen_s=1000 / rate, sampling_s=None)
    return replace(run, spec=replace(run.spec, traffic=traffic), sample=sample)
