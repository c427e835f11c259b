from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from ggufspec.analysis import comparing
from ggufspec.domain import Prompt, Role, RunResult
from ggufspec.errors import ResultsError, SlowerError
from ggufspec.report import frames
from ggufspec.report.text import formats
from ggufspec.report.text.comparison import comparison
from ggufspec.results import ResultSet
from ggufspec.stats import SpeedVerdict
from tests.support import values

PROMPTS = [f"p{number}" for number in range(8)]


def _bench(factor: float = 1.0, change: Callable[[RunResult], RunResult] = lambda run: run) -> ResultSet:
    """Eight prompts, two repeats; drafting takes ``factor`` of its usual speed, with a little noise."""
    runs = []
    for repeat in range(2):
        for number, prompt in enumerate(PROMPTS):
            noise = 1 + 0.001 * ((number * 7 + repeat * 3 + round(100 * factor) % 7 * (number + 1)) % 5)
            base = 40.0 + number
            runs.append(values.run(Role.TARGET, prompt=prompt, repeat=repeat, tps=base * noise))
            runs.append(
                values.run(
                    Role.DRAFTING, prompt=prompt, repeat=repeat, tps=1.5 * base * factor * noise, draft=3
                )
            )
    return values.bench(*map(change, runs))


def test_arms_are_joined_and_paired_by_prompt() -> None:
    compared = comparing.compare(_bench(), _bench(0.9))
    target, drafting = compared.rows
    assert target.change.ratio.value == pytest.approx(1.0, rel=0.005)
    assert target.change.verdict is SpeedVerdict.SAME
    assert drafting.change.ratio.value == pytest.approx(0.9, rel=0.005)
    assert drafting.change.verdict is SpeedVerdict.SLOWER
    assert (drafting.change.p_value or 1) < 0.01
    assert compared.overall.ratio.value == pytest.approx(0.9**0.5, rel=0.005)
    assert (target.texts_equal, target.texts) == (8, 8)


def test_both_directions_mirror_each_other() -> None:
    a, b = _bench(), _bench(0.9)
    there, back = comparing.compare(a, b).rows[1].change, comparing.compare(b, a).rows[1].change
    assert there.ratio.value * back.ratio.value == pytest.approx(1.0)
    assert (there.verdict, back.verdict) == (SpeedVerdict.SLOWER, SpeedVerdict.FASTER)


def test_a_guard_fails_only_beyond_its_share() -> None:
    comparing.raise_if_slower(comparing.compare(_bench(), _bench(0.98), threshold=0.03), 0.03)
    with pytest.raises(SlowerError, match=r"1 of 2 rows .* drafting .* γ=3: 0\.9"):
        comparing.raise_if_slower(comparing.compare(_bench(), _bench(0.9), threshold=0.03), 0.03)


def test_what_differs_is_said() -> None:
    other = _bench(change=lambda run: replace(run, spec=replace(run.spec, threads=1)))
    compared = comparing.compare(_bench(), other)
    assert compared.differences == {"threads": ("2", "1")}
    text = comparison(compared, _bench().meta, other.meta)
    assert "threads: 2 → 1" in text
    assert "overall: 1.000" in text


def test_arms_that_one_bench_lacks_are_named() -> None:
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
    assert tuple(table.columns) == frames.COMPARISON_COLUMNS
    target, drafting = formats.records(table)
    assert drafting["ratio"] == pytest.approx(0.9, rel=0.005)
    assert drafting["ratio_lo"] <= drafting["ratio"] <= drafting["ratio_hi"]
    assert drafting["before_accept_rate"] == 0.75
    assert target["before_accept_rate"] is None
