from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from ggufspec.analysis import review
from ggufspec.domain import Difference, Role, RunResult, Status, TextAudit, TextVerdict
from ggufspec.results import ResultSet
from tests.support import values

START = datetime.fromisoformat("2026-01-02T03:04:05+00:00")


def _at(run: RunResult, minute: int) -> RunResult:
    return replace(run, started_at=(START + timedelta(minutes=minute)).isoformat())


def _bench(change_per_minute: float = 0.0) -> ResultSet:
    """One prompt's baseline and its anchors, a minute apart."""
    runs = []
    for minute in range(12):
        wobble = 1 + 0.001 * (minute * 5 % 3)
        run = _at(
            values.run(tps=50.0 * (1 + change_per_minute) ** minute * wobble, repeat=minute // 2), minute
        )
        runs.append(replace(run, anchor=minute % 2 == 0))
    return values.bench(*runs)


def test_a_steady_machine_does_not_drift() -> None:
    bench = _bench()
    moved = review.drift(bench)
    assert abs(moved.value) < 0.005
    assert "drift" not in review.warnings(bench)


@pytest.mark.parametrize("change", [-0.01, 0.01])
def test_a_machine_that_heats_up_is_noticed(change: float) -> None:
    bench = _bench(change)
    moved = review.drift(bench)
    assert moved.value == pytest.approx((1 + change) ** 11 - 1, abs=0.01)
    assert "from start to end" in review.warnings(bench)["drift"]


def test_without_anchors_nobody_knows() -> None:
    assert review.drift(values.whole_bench()) is None


def test_failures_and_texts_are_counted() -> None:
    near = Difference(at_char=9, at_token=2, verdict=TextVerdict.NEAR_TIE)
    apart = Difference(at_char=5, at_token=None, verdict=TextVerdict.DIVERGENCE)
    drafting = values.run(Role.DRAFTING, draft=3)
    bench = values.bench(
        values.run(),
        values.run(repeat=1, status=Status.CRASHED),
        replace(drafting, text_identical=False, difference=apart),
        replace(drafting, repeat=1, text_identical=False, difference=near),
    )
    found = review.warnings(bench)
    assert found["runs-failed"].endswith("(1 of 4 runs)")
    assert found["text-differs"].endswith("(1 of 4 runs; p1 from character 5)")
    assert found["near-ties"].endswith("(1 of 4 runs; p1 from token 2)")


@pytest.mark.parametrize(
    ("difference", "audit", "cause"),
    [
        (
            Difference(at_char=5, at_token=1, unjudged="it was killed"),
            None,
            "it was killed",
        ),
        (Difference(at_char=5, at_token=1), TextAudit(tokens=0, unjudged="no library"), "no library"),
        (Difference(at_char=5, at_token=1), None, "the bench ended before texts were audited"),
        (Difference(at_char=5, at_token=1), TextAudit(tokens=9), "did not find its own text again"),
    ],
)
def test_texts_that_nobody_judged_name_the_cause(
    difference: Difference, audit: TextAudit | None, cause: str
) -> None:
    drafting = values.run(Role.DRAFTING, draft=3)
    unjudged = replace(drafting, text_identical=False, difference=difference, audit=audit)
    found = review.warnings(values.bench(values.run(), unjudged))
    assert cause in found["texts-not-judged"]
    assert "text-differs" not in found


def test_restless_and_outlying_runs_are_named() -> None:
    restless = [
        values.run(prompt=f"p{i}", repeat=r, tps=50 + 15 * ((i + r) % 2)) for i in range(4) for r in range(6)
    ]
    assert "(target)" in review.warnings(values.bench(*restless))["unstable"]
    steady = [
        values.run(prompt=f"p{i}", repeat=r, tps=50 + 0.1 * ((i + r) % 3) - 20 * (i == r == 2))
        for i in range(4)
        for r in range(6)
    ]
    found = review.warnings(values.bench(*steady))
    assert found["clipped"].endswith("(1 of 24 runs)")
    assert not {"unstable", "outliers"} & found.keys()


def test_far_runs_of_one_arm_alone_are_how_it_behaves_and_count() -> None:
    runs = [
        run
        for i in range(8)
        for r in range(6)
        for run in (
            values.run(prompt=f"p{i}", repeat=r, tps=50 + 0.1 * ((i + r) % 3)),
            values.run(
                Role.DRAFTING,
                prompt=f"p{i}",
                repeat=r,
                draft=3,
                tps=80 + 0.1 * ((2 * i + r) % 3) - 30 * (i == r + 1),
            ),
        )
    ]
    found = review.warnings(values.bench(*runs))
    assert found["outliers"].endswith("(6 of 96 runs)")
    assert "clipped" not in found


@pytest.mark.parametrize(("gains", "said"), [((1.2, 1.4, 1.6), True), ((1.2, 1.6, 1.5), False)])
def test_the_best_draft_size_at_the_edge_of_a_search_is_named(gains: tuple[float, ...], said: bool) -> None:
    runs = [
        run
        for repeat in range(3)
        for run in (
            values.run(Role.TARGET, repeat=repeat),
            *(
                values.run(Role.DRAFTING, repeat=repeat, draft=size, tps=50 * gain)
                for size, gain in zip((4, 8, 16), gains, strict=True)
            ),
        )
    ]
    found = review.warnings(values.bench(*runs))
    assert ("best-at-edge" in found) is said
    if said:
        assert "drafting γ=16, next: --draft 16-32" in found["best-at-edge"]


def test_two_draft_sizes_are_no_search() -> None:
    runs = [values.run(Role.DRAFTING, draft=size, tps=50 + size) for size in (4, 8)]
    assert "best-at-edge" not in review.warnings(values.bench(values.run(Role.TARGET), *runs))


@pytest.mark.parametrize(("repeats", "said"), [(1, True), (3, False)])
def test_a_bench_that_went_on_has_more_than_one_repeat(repeats: int, said: bool) -> None:
    runs = [
        values.run(role, repeat=repeat, draft=draft)
        for repeat in range(repeats)
        for role, draft in ((Role.TARGET, None), (Role.DRAFTING, 3))
    ]
    bench = values.bench(*runs, doubts={"few-repeats": "one repeat shows little"})
    assert ("few-repeats" in review.warnings(bench)) == said
