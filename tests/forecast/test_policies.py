"""Rules for the draft size, replayed over texts in which it is known what the drafter has right."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from pathlib import Path

import pytest

from ggufspec.cli.policies import _conclude
from ggufspec.domain import Estimate, Round
from ggufspec.errors import GgufspecError
from ggufspec.forecast import RoundsRun
from ggufspec.forecast.policies import (
    RULES,
    PolicyComparison,
    PolicyGain,
    best_sizes,
    compare_rules,
    fixed,
    read_rules,
    replay,
)

LARGEST = 8


def _seconds(size: int) -> float:
    return 1.0 + 0.2 * size


def _runs(*chances: float) -> list[RoundsRun]:
    """Return runs at the largest size over texts whose passages are as easy as the chances say, in turn."""
    draw = random.Random(5)
    runs = []
    for number in range(8):
        text = [draw.random() < chance for chance in chances * 2 for _ in range(40)]
        rounds = replay(text, fixed(LARGEST), _seconds, LARGEST)
        category = ("even", "odd")[number % 2]
        runs.append(RoundsRun(prompt_id=f"{number}", rounds=rounds, seconds=1.0, category=category))
    return runs


TIMES = {0: 1.0, 2: _seconds(2), LARGEST: _seconds(LARGEST)}


def test_a_replay_drafts_no_further_than_the_text_goes() -> None:
    assert replay([True] * 6, fixed(4), _seconds, LARGEST) == (Round(4, 4), Round(0, 0))
    assert replay([True, False, False], lambda *_: 99, _seconds, 2) == (Round(2, 1), Round(0, 0))


def test_no_choice_of_sizes_is_faster_than_the_oracle() -> None:
    draw = random.Random(1)
    for _ in range(20):
        text = [draw.random() < 0.6 for _ in range(5)]
        every = []
        for sizes in itertools.product(range(4), repeat=len(text)):
            rounds = replay(text, lambda rounds, *_, of=sizes: of[len(rounds)], _seconds, 3)
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


def test_the_rules_answer_to_what_was_accepted() -> None:
    text = [True] * 12 + [False] * 12
    assert _as_sizes(replay(text, RULES["follow"], _seconds, LARGEST))[:4] == [8, 8, 4, 1]
    assert _as_sizes(replay(text, RULES["mean"], _seconds, LARGEST))[:2] == [8, 8]
    assert {*_as_sizes(replay([False] * 200, RULES["epsilon-greedy"], _seconds, LARGEST))[-20:]} >= {0}
