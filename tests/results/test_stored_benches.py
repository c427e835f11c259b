"""The list of stored benches, deleting one, their order, and whether they are complete."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from unittest import mock

import pytest

from ggufspec import results
from ggufspec.analysis import listing
from ggufspec.domain import ModelFile, Prompt
from ggufspec.errors import ResultsError
from ggufspec.forecast import profiles
from ggufspec.measure.runplan import RunPlan
from ggufspec.report.rows.listing import ranges
from ggufspec.report.text.overview import bench_list
from tests.support import damage, scripted, shell, values
from tests.support.scripted import Scripted


def test_the_list_says_what_was_measured_how_fast_it_was_and_whether_it_is_complete() -> None:
    results.close(values.bench(name="empty", planned_runs=4))
    values.drafting_bench("done")
    values.drafting_bench("short", planned=9)
    values.drafting_bench("old", planned=None)
    damage.cut_end(values.drafting_bench("torn").folder)
    damage.falsify_first_run(values.drafting_bench("broken").folder)
    listed = {bench.name: bench for bench in listing.stored_benches()}
    assert list(listed) == ["empty", "done", "short", "old", "torn", "broken"]
    done = listed["done"]
    assert (done.models, done.draft_sizes) == (("target.gguf", "drafter.gguf"), (3, 5))
    assert done.speedup == pytest.approx(1.5)
    assert done.draft_size == 3
    assert [bench.is_complete for bench in listed.values()] == [False, True, False, None, False, None]
    rows = [line.split("|")[1:-1] for line in bench_list(listed.values()).splitlines()[2:]]
    assert [row[5].strip() for row in rows] == [
        "0 of 4 runs",
        *("yes", "3 of 9 runs", "not recorded", "2 of 3 runs, damaged", "damaged"),
    ]
    assert [cell.strip() for cell in rows[1][2:5]] == [
        "target.gguf + drafter.gguf",
        "3, 5",
        "1.50× at γ 3, undecided",
    ]


def test_the_list_has_every_format(home: Path) -> None:
    assert shell.here("show", "--list").stdout == "No bench is stored yet.\n"
    assert json.loads(shell.here("show", "--list", "-o", "json").stdout) == []
    values.drafting_bench()
    (row,) = json.loads(shell.here("show", "--list", "-o", "json").stdout)
    assert row["name"] == "mine"
    assert (row["draft"], row["runs"], row["planned_runs"], row["complete"]) == ([3, 5], 3, 3, True)
    assert shell.here("show", "--list", "-o", "csv").stdout.startswith("name,started_at,models,draft,")


@pytest.mark.parametrize(
    ("numbers", "text"), [((), ""), ((3,), "3"), ((1, 2, 3, 4, 8), "1-4, 8"), ((1, 3, 4), "1, 3-4")]
)
def test_neighbouring_draft_sizes_are_joined(numbers: tuple[int, ...], text: str) -> None:
    assert ranges(numbers) == text


def test_a_damaged_bench_can_be_deleted_and_one_that_is_written_cannot() -> None:
    live = values.bench(name="live")
    damaged = values.drafting_bench("damaged")
    (damaged.folder / "meta.json").write_bytes(b"\xff")
    results.delete("damaged")
    with pytest.raises(ResultsError, match="is already being written"):
        results.delete("live")
    assert results.ids() == ("live",)
    results.append(live, values.run())


def test_only_benches_of_the_store_are_deleted(tmp_path: Path) -> None:
    stored = values.drafting_bench()
    copy, link = tmp_path / "copy", stored.folder.with_name("link")
    shutil.copytree(stored.folder, copy)
    link.symlink_to(copy)
    for name in (str(copy), "link"):
        with pytest.raises(ResultsError, match="is not in the store"):
            results.delete(name)
    assert (copy / "meta.json").exists()
    results.delete(str(stored.folder))
    assert results.ids() == ("link",)


@pytest.mark.parametrize(
    "name",
    ["x" * 300, "x" * 5000, "a\0b", "\0", "a/b", "../mine/nothing", "/", "~", "é" * 200, "a\nb", "\udcff"],
)
def test_a_text_that_cannot_be_a_name_is_a_run_that_is_not_there(name: str) -> None:
    values.drafting_bench()
    for call in (results.load, results.reopen, results.delete):
        with pytest.raises(ResultsError, match="there is no bench") as caught:
            call(name)
        assert len(caught.value.message) < 200
    assert shell.here("show", name).returncode == 13
    assert shell.here("compare", "mine", name).returncode == 13


def test_a_store_that_cannot_be_read_is_one_clear_error(home: Path) -> None:
    (home / "data").mkdir()
    (home / "data" / "runs").write_text("a file")
    with pytest.raises(ResultsError, match="Not a directory"):
        results.load()
    with mock.patch.object(Path, "iterdir", side_effect=PermissionError(13, "Permission denied")):
        (home / "data" / "runs").unlink()
        (home / "data" / "runs").mkdir()
        with pytest.raises(ResultsError, match="Permission denied"):
            results.load()


class _Clock(datetime):
    ahead = timedelta(0)

    @classmethod
    def now(cls, tz: object = None) -> datetime:  # type: ignore[override]
        return datetime.now(UTC) + cls.ahead


def test_a_clock_that_was_once_ahead_does_not_keep_the_last_bench(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ggufspec.results.store.datetime", _Clock)
    values.bench(name="first")
    _Clock.ahead = timedelta(days=4000)
    values.bench(name="from-the-future")
    assert results.load("last").meta.id == "from-the-future"
    _Clock.ahead = timedelta(days=-4000)
    values.bench(name="now")
    _Clock.ahead = timedelta(0)
    assert results.ids() == ("first", "from-the-future", "now")
    assert results.load("last").meta.id == "now"
    results.close(results.load("now"))


def test_the_profile_that_was_measured_last_is_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    from ggufspec.forecast.costs import CostCurve, MeasuredOn, Point
    from ggufspec.stats import Estimate

    monkeypatch.setattr("ggufspec.forecast.profiles.store.datetime", _Clock)
    for name, ahead in (("one", 0), ("ahead", 4000), ("now", 0)):
        _Clock.ahead = timedelta(days=ahead)
        point = Point(tokens=1, depth=0, seconds=Estimate(value=0.5, lo=None, hi=None))
        measured_on = MeasuredOn(target=ModelFile(filename=f"{name}.gguf"))
        profiles.save(profiles.MeasuredCurve(curve=CostCurve(verify=(point,), measured_on=measured_on)))
    _Clock.ahead = timedelta(0)
    known = [curve.curve.measured_on for curve in profiles.known()]
    assert [on.target.filename for on in known if on] == ["one.gguf", "ahead.gguf", "now.gguf"]


def _suite(sizes: tuple[int, ...] = (3,), prompts: str = "ab", repeats: int = 2) -> RunPlan:
    asked = tuple(Prompt(id=name, text=name) for name in prompts)
    return RunPlan(
        blocks=scripted.sweep(draft_sizes=sizes).blocks(), prompts=asked, repeats=repeats, warmups=0
    )


@pytest.mark.parametrize("stop", [1, 3, 11])
def test_a_bench_knows_whether_it_is_complete(stop: int) -> None:
    suite = _suite()
    store = values.bench(name="mine", planned_runs=suite.n_runs)
    measured = scripted.record(suite, Scripted(), store)
    latest = next(bench for bench in measured if len(bench.current) >= stop)
    results.close(latest)
    assert (results.load("mine").is_complete, results.load("mine").meta.planned_runs) == (False, 12)
    *_, latest = scripted.record(suite, Scripted(), results.reopen("mine"))
    assert (latest.is_complete, len(latest.current)) == (True, 12)
    assert results.load("mine").is_complete


def test_repeats_beyond_the_plan_are_part_of_a_complete_bench() -> None:
    suite = replace(_suite(), precision=1e-9)
    store = values.bench(name="mine", planned_runs=suite.n_runs)
    *_, latest = scripted.record(replace(suite, precision=0.5), Scripted(), store)
    assert latest.meta.planned_runs == len(latest.current) >= suite.n_runs
    assert results.load("mine").is_complete
