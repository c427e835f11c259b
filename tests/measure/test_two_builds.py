"""Two llama.cpps in one bench: measured in turn, stored apart, compared arm by arm."""

from __future__ import annotations

import json
import re
from itertools import pairwise
from pathlib import Path

import pytest

from ggufspec import results
from ggufspec.analysis import arms
from ggufspec.domain import Role
from ggufspec.errors import GgufspecError
from ggufspec.measure import prepare_session
from ggufspec.options import BenchOptions
from ggufspec.report import frames
from tests.support import fakes, shell

QUICK = ("bench", "--pair", "demo", "-n", "32", "-t", "1", "--warmup", "0", "-p", "One", "-p", "Two")


@pytest.fixture
def builds(tmp_path: Path) -> tuple[Path, Path]:
    """An old llama.cpp, and a new one whose target decodes half as fast and whose drafting is as fast."""
    old = fakes.install(tmp_path / "old", **fakes.AT_ONCE)
    new = fakes.install(
        tmp_path / "new", plain=fakes.answer(fakes.plain_log(38.0)), drafting=fakes.AT_ONCE["drafting"]
    )
    return old, new


@pytest.fixture
def both(builds: tuple[Path, Path]) -> tuple[str, ...]:
    old, new = builds
    return ("--llama", str(old), "--llama", str(new))


def test_both_builds_are_arms_of_one_bench(both: tuple[str, ...], builds: tuple[Path, Path]) -> None:
    shell.done(*QUICK, *both, "--name", "ab")
    bench = results.load("ab")
    assert [build.path for build in bench.meta.builds.values()] == list(map(str, builds))
    groups = arms.group(bench)
    assert [(arm.role, arm.spec.build) for arm in groups] == [
        (role, build) for build in bench.meta.builds for role in Role
    ]
    for old, new in zip(groups[:3], groups[3:], strict=True):
        assert (old.counterpart, old.change, new.counterpart) == (None, None, old)
        expected = 1.0 if new.role is Role.DRAFTING else 0.5
        assert new.change.ratio.value == pytest.approx(expected, rel=0.03)
        assert new.baseline is (groups[3] if new.role is Role.DRAFTING else None)


def test_builds_take_turns(both: tuple[str, ...]) -> None:
    shell.here(*QUICK, *both, "-r", "4", "--name", "ab")
    measured = results.load("ab").current
    for one, other in pairwise(range(0, len(measured) + 1, 6)):  # three arms with each of two builds
        assert {run.spec.prompt.id for run in measured[one:other]} in ({"p1"}, {"p2"})
        assert len({(run.spec.role, run.spec.build) for run in measured[one:other]}) == 6
    firsts = [run.spec.build for run in measured[::6]]
    assert len(set(firsts)) == 2, "not always the same build first"


def test_tables_name_the_build_where_there_are_two(both: tuple[str, ...]) -> None:
    done = shell.here(*QUICK, *both, "--name", "ab", "-o", "md")
    heading, _, first, *_ = [line for line in done.stdout.splitlines() if line.startswith("|")]
    assert "| llama.cpp" in heading
    assert "new/old" in heading
    old, new = results.load("ab").meta.builds
    assert old in first
    assert (
        f"New/old: tokens/s over the same arm's with {old}; the runs of both are interleaved; "
        "[95 % interval over loads, on these prompts]" in done.stdout
    )
    rows = json.loads(shell.here("show", "ab", "-o", "json").stdout)
    assert [row["llama_build"] for row in rows] == [old] * 3 + [new] * 3
    assert [row["new_over_old"] is None for row in rows] == [True] * 3 + [False] * 3
    assert {row["llama_build"] for row in frames.runs(results.load("ab")).to_dict("records")} == {old, new}


def test_one_build_is_stored_and_shown_as_ever(builds: tuple[Path, Path]) -> None:
    done = shell.here(*QUICK, "--llama", str(builds[0]), "--name", "one", "-o", "md")
    assert "llama.cpp  " not in done.stdout
    assert "new/old" not in done.stdout
    bench = results.load("one")
    assert not bench.meta.builds
    assert {spec.build for spec in bench.runs.specs} == {None}


def test_a_bench_of_two_builds_goes_on_with_both(both: tuple[str, ...], builds: tuple[Path, Path]) -> None:
    shell.here(*QUICK, *both, "-r", "1", "--name", "ab")
    refused = shell.here(*QUICK, "--llama", str(builds[0]), "-r", "2", "--resume", "ab")
    assert refused.returncode == 13
    assert "resume it with the same --llama options" in refused.stderr
    shell.done(*QUICK, *both, "-r", "2", "--resume", "ab")
    assert len(results.load("ab").current) == 2 * 2 * 6


def test_equal_builds_are_arms_of_their_own_and_named(builds: tuple[Path, Path]) -> None:
    session = prepare_session(BenchOptions(pair="demo", llama=(builds[0], builds[0]), prompt=("Hi",)))
    first, second = session.builds
    assert second == f"{first}-2"
    assert (
        f"llama.cpp: {first} and {second} hold the same programs; any difference is chance" in session.notes
    )


def test_what_one_of_two_builds_lacks_is_refused_by_name(builds: tuple[Path, Path]) -> None:
    old, new = builds
    for name in ("llama-speculative", "llama-completion"):
        program = old / name
        text = re.sub(r"cat '?(\S+)\.txt'?", r"grep -v -e --spec-draft-p-min \1.txt", program.read_text())
        program.write_text(text)
    with pytest.raises(GgufspecError, match=r"speculative has no --spec-draft-p-min") as refused:
        prepare_session(BenchOptions(pair="demo", llama=(old, new), p_min=0.5, prompt=("Hi",)))
    assert str(old) in refused.value.message
    assert str(new) not in refused.value.message


def test_a_program_that_one_of_two_builds_lacks_is_refused(builds: tuple[Path, Path]) -> None:
    old, new = builds
    with pytest.raises(GgufspecError, match="has no llama-server"):
        prepare_session(BenchOptions(pair="demo", llama=(old, new), engine="server", prompt=("Hi",)))
    with pytest.raises(GgufspecError, match="inprocess measures one llama"):
        prepare_session(BenchOptions(pair="demo", llama=(old, new), engine="inprocess", prompt=("Hi",)))
