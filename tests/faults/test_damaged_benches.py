"""Benches that another program changed: no wrong figure without a warning, no run lost unseen."""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from ggufspec import results
from ggufspec.domain import Difference, Drafting, Role, RunResult, Status, TextVerdict
from ggufspec.errors import ResultsError
from ggufspec.forecast import Forecast, profiles
from ggufspec.report.html.sections import html
from ggufspec.results import ResultSet
from tests.support import damage, shell, values
from tests.support.values import filled


def _bench(name: str = "mine", count: int = 4) -> ResultSet:
    """Return a bench with runs that share some records and have others of their own; closed."""
    stored = values.bench(*_runs(count), name=name)
    results.close(stored)
    return stored


def _runs(count: int) -> list[RunResult]:
    plain = values.grid({None: lambda number, _: 50.0 + number}, prompts=count, repeats=1)
    return [
        replace(run, log=f"{number:04d}", sample=replace(run.sample, text=f"text {number}" * 40))
        for number, run in enumerate(plain)
    ]


def _unjudged(bench: ResultSet) -> list[RunResult]:
    """Return the runs without what was found out later."""
    return [replace(run, text_identical=None, difference=None) for run in bench.runs]


def _file(stored: ResultSet) -> Path:
    return stored.folder / "runs.jsonl"


def _ends_of_appends(content: bytes) -> list[int]:
    """Return where each append ends: all of these end with a run."""
    places = [place + 1 for place, byte in enumerate(content) if byte == ord("\n")]
    return [
        end for start, end in zip([0, *places], places, strict=False) if b'"kind":"run"' in content[start:end]
    ]


def test_every_bit_of_a_bench_counts() -> None:
    first, drafting = replace(*_runs(1), warmup=True), values.run(Role.DRAFTING, draft=3)
    failed = values.run(repeat=1, status=Status.CRASHED)
    stored = values.bench(first, replace(drafting, text_identical=None), failed, name="mine")
    difference = Difference(at_char=4, at_token=2, margin=0.5, verdict=TextVerdict.NEAR_TIE)
    stored = results.judge(stored, replace(drafting, text_identical=False, difference=difference))
    results.close(stored)
    for name in ("meta.json", "runs.jsonl"):
        file = stored.folder / name
        content = file.read_bytes()
        for byte in range(0, len(content), 7):
            file.write_bytes(damage.flip(content, byte * 8 + byte % 8))
            left = results.load("mine", salvage=True)
            assert left.damage
            assert all(run in _unjudged(stored) for run in _unjudged(left))
            try:
                loaded = results.load("mine")
            except ResultsError:
                continue
            assert loaded.damage
            assert _unjudged(loaded) == _unjudged(stored)[: len(loaded.runs)]
        file.write_bytes(content)
    assert results.load("mine") == stored


def test_an_append_that_a_power_cut_left_torn_zeroed_or_reordered_was_never_made() -> None:
    stored = _bench()
    content = _file(stored).read_bytes()
    *_, before, end = _ends_of_appends(content)
    assert end == len(content)
    middle = (before + end) // 2
    remains = {
        "torn": content[:middle],
        "zeroed": content[:before] + bytes(end - before),
        "first half zeroed": content[:before] + bytes(middle - before) + content[middle:],
        "second half zeroed": content[:middle] + bytes(end - middle),
        "length without data": content[:before] + b"\n" * (end - before - 1) + b"\0",
    }
    for name, left in remains.items():
        _file(stored).write_bytes(left)
        loaded = results.load("mine")
        assert loaded.runs == list(stored.runs)[:3], name
        assert "at the end of runs.jsonl" in loaded.damage[0], name
        again = results.reopen("mine")
        assert again.damage == loaded.damage, name
        again = results.append(again, stored.runs[3])
        results.close(again)
        assert (results.load("mine"), results.load("mine").damage) == (stored, ()), name


def test_damage_before_the_last_append_is_not_taken_for_a_power_cut() -> None:
    stored = _bench()
    content = _file(stored).read_bytes()
    *_, third, _ = _ends_of_appends(content)
    for length in (2, 40):
        _file(stored).write_bytes(content[: third - length] + bytes(length - 1) + content[third - 1 :])
        with pytest.raises(ResultsError, match="damaged"):
            results.load("mine")
        assert results.load("mine", salvage=True).runs == [stored.runs[place] for place in (0, 1, 3)]


def test_damage_between_the_last_two_appends_costs_both_with_a_warning() -> None:
    stored = _bench()
    content = _file(stored).read_bytes()
    *_, third, _ = _ends_of_appends(content)
    _file(stored).write_bytes(damage.flip(content, (third - 1) * 8))  # joins the lines on both sides
    loaded = results.load("mine")
    assert loaded.runs == list(stored.runs)[:2]
    assert loaded.damage


@pytest.mark.parametrize(
    "change",
    [
        lambda lines: lines[:4] + lines[5:],  # a run is missing
        lambda lines: lines[:5] + lines[4:],  # a run is there twice
        lambda lines: [*lines[:-5], lines[-1], *lines[-5:-1]],
        lambda lines: lines[1:],
    ],
)
def test_missing_doubled_or_moved_lines_are_noticed(change: Callable[[list[bytes]], list[bytes]]) -> None:
    stored = _bench()
    lines = _file(stored).read_bytes().splitlines(keepends=True)
    _file(stored).write_bytes(b"".join(change(lines)))
    with pytest.raises(ResultsError, match="lines are missing or moved"):
        results.load("mine")
    left = results.load("mine", salvage=True)
    assert left.damage
    assert all(run in stored.runs for run in left.runs)
    assert len({run.log for run in left.runs}) == len(left.runs)


def test_runs_of_another_bench_are_noticed() -> None:
    mine, other = _bench("mine"), _bench("other")
    shutil.copy(_file(other), _file(mine))
    with pytest.raises(ResultsError, match=r"before line 1 of runs.jsonl"):
        results.load("mine")


def test_what_is_salvaged_keeps_its_references_and_judgements() -> None:
    stored = results.reopen(_bench().meta.id)
    for run in values.run(Role.DRAFTING, draft=3), values.run(Role.DRAFTING, draft=5):
        stored = results.append(
            stored, replace(run, log=f"drafting {run.spec.drafting}", text_identical=None)
        )
    difference = Difference(at_char=4, at_token=2, margin=0.5, verdict=TextVerdict.NEAR_TIE)
    for run in stored.runs[-2:]:
        judged = replace(run, text_identical=False, difference=difference)
        stored = results.judge(stored, judged)
    results.close(stored)
    content = _file(stored).read_bytes()
    _file(stored).write_bytes(
        content.replace(b'"log":"0000"', b'"log":"0009"').replace(b"text 1t", b"text 9t")
    )
    left = results.load("mine", salvage=True)
    assert left.runs == [stored.runs[place] for place in (2, 3, 4, 5)]
    assert [run.spec.drafting for run in left.runs[-2:]] == [Drafting(n_max=3), Drafting(n_max=5)]
    assert any("refer to a damaged line" in sentence for sentence in left.damage)
    assert left.writer is None


def test_a_damaged_meta_is_named_and_its_runs_are_salvaged() -> None:
    stored = _bench()
    meta = stored.folder / "meta.json"
    content = meta.read_bytes()
    for left, words in (
        (content.replace(b"A Processor", b"B Processor"), "does not match its checksum"),
        (content.replace(b'"schema_version":', b'"schema_version":9'), "does not match its checksum"),
        (content.replace(b'"crc32"', b'"crc33"'), "does not match its checksum"),
        (content[: len(content) // 2], "cannot read the bench"),
        (b"", "cannot read the bench"),
    ):
        meta.write_bytes(left)
        with pytest.raises(ResultsError, match=words):
            results.load("mine")
        salvaged = results.load("mine", salvage=True)
        assert salvaged.runs == stored.runs
        assert salvaged.damage[0].startswith("meta.json")


def test_a_bench_without_its_runs_is_not_an_empty_one() -> None:
    stored = _bench()
    _file(stored).unlink()
    for is_pipe in (False, True):  # which would be waited for
        if is_pipe:
            os.mkfifo(_file(stored))
        for salvage in (False, True):
            with pytest.raises(ResultsError, match=r"runs.jsonl is missing"):
                results.load("mine", salvage=salvage)


@pytest.mark.parametrize(
    "change",
    [
        lambda file: file.write_bytes(file.read_bytes()[:-10]),
        lambda file: file.write_bytes(b""),
        lambda file: file.write_bytes(file.read_bytes() + b'{"kind":"run"}\n'),
        lambda file: Path(shutil.copy(file, file.with_name("copy"))).replace(file),
        Path.unlink,
    ],
)
def test_a_file_that_was_changed_while_it_was_written_is_refused(change: Callable[[Path], object]) -> None:
    stored = values.bench(values.run(), name="mine")
    change(_file(stored))
    left = _file(stored).read_bytes() if _file(stored).exists() else None
    with pytest.raises(ResultsError, match="while the bench was written") as caught:
        results.append(stored, values.run(repeat=1))
    assert caught.value.hint
    with pytest.raises(ResultsError, match="while the bench was written"):
        results.confirm(stored)
    assert (_file(stored).read_bytes() if _file(stored).exists() else None) == left


def test_a_bench_that_was_removed_while_it_was_written_is_noticed() -> None:
    stored = values.bench(values.run(), name="mine")
    results.confirm(stored)
    shutil.rmtree(stored.folder)
    with pytest.raises(ResultsError, match="removed"):
        results.append(stored, values.run())
    with pytest.raises(ResultsError, match="removed"):
        results.confirm(stored)
    assert not stored.folder.exists()


def test_a_second_writer_never_erases_an_acknowledged_run() -> None:
    """Whoever removes the lock can have two writers; only one of them can append from then on."""
    first = values.bench(values.run(), name="mine")
    (first.folder / "lock").unlink()
    second = results.reopen("mine")
    with pytest.raises(ResultsError, match="lock of the bench mine was removed"):
        results.append(first, values.run(repeat=1))
    second = results.append(second, values.run(repeat=2))
    with pytest.raises(ResultsError, match="lock of the bench mine was removed"):
        results.confirm(first)
    with pytest.raises(ResultsError, match="lock of the bench mine was removed"):
        results.amend(first, planned_runs=7)
    assert results.load("mine") == second
    assert [run.repeat for run in second.runs] == [0, 2]


def test_two_writers_that_both_believe_to_have_the_lock_lose_nothing() -> None:
    """Between a writer's look at its lock and its write, another one may have opened the bench."""
    first = values.bench(values.run(), name="mine")
    lock, aside = first.folder / "lock", first.folder / "aside"
    lock.rename(aside)
    second = results.reopen("mine")
    of_second = lock.rename(first.folder / "of second")
    aside.rename(lock)
    first = results.append(first, values.run(repeat=1))
    of_second.replace(lock)
    with pytest.raises(ResultsError, match="grew"):
        results.append(second, values.run(repeat=2))
    assert results.load("mine") == first


def test_random_damage_never_passes_for_data() -> None:
    stored = _bench()
    content = _file(stored).read_bytes()
    chance = random.Random(8)
    for _ in range(200):
        start = chance.randrange(len(content))
        length = chance.choice((1, 4, 16, 512))
        noise = chance.randbytes(min(length, len(content) - start))
        left = content[:start] + noise + content[start + len(noise) :]
        if left == content:
            continue
        _file(stored).write_bytes(left)
        try:
            loaded = results.load("mine")
        except ResultsError:
            continue
        assert loaded.damage
        assert loaded.runs == list(stored.runs)[: len(loaded.runs)]


def test_cut_at_any_byte_the_whole_runs_before_it_load_and_the_rest_can_be_appended() -> None:
    runs = [values.run(), values.run(Role.DRAFTING, draft=3), values.run(repeat=1)]
    stored = values.bench(*runs)
    results.close(stored)
    file = stored.folder / "runs.jsonl"
    whole = file.read_bytes()
    for length in range(len(whole)):
        file.write_bytes(whole[:length])
        lines = whole[:length].split(b"\n")[:-1]
        n_whole = sum(line.startswith(b'{"kind":"run"') for line in lines)
        assert results.load(stored.meta.id).runs == runs[:n_whole]
        if length % 97 == 0:
            resumed = results.reopen(stored.meta.id)
            for run in runs[n_whole:]:
                resumed = results.append(resumed, run)
            results.close(resumed)
            assert results.load(stored.meta.id).runs == resumed.runs == runs


def test_a_write_that_failed_half_way_leaves_nothing_behind() -> None:
    stored = values.bench(values.run())
    with (stored.folder / "runs.jsonl").open("ab") as file:
        file.write(b'{"kind":"run","spec":0,')
    stored = results.append(stored, values.run(repeat=1))
    assert results.load(stored.meta.id).runs == stored.runs == [values.run(), values.run(repeat=1)]


def test_wrong_records_and_newer_schemas_are_named() -> None:
    stored = values.bench(values.run())
    meta = stored.folder / "meta.json"
    text = meta.read_bytes()
    damage.reseal_meta(meta, text.replace(b'"schema_version":', b'"schema_version":9'))
    with pytest.raises(ResultsError, match="newer ggufspec"):
        results.load(stored.meta.id)
    meta.write_bytes(text)
    file = stored.folder / "runs.jsonl"
    intact = file.read_bytes()
    for content, words in (
        (intact + b'{"spec": 1}\n', "line 6: .*kind"),
        (intact.replace(b'"repeat":0', b'"repeat":"no"'), "line 5: Expected `int`, got `str`"),
        (intact.replace(b'"spec":0', b'"spec":7'), "run 0 refers to a missing record"),
        (intact.replace(b'"call","id":0', b'"call","id":1'), "CallRecord 1 is number 0"),
        (intact[intact.index(b"\n") + 1 :], "refers to a missing text"),
        (intact + b'{"kind":"judged","run":5}\n', "run 5 was judged but does not exist"),
    ):
        damage.reseal_runs(file, content)
        with pytest.raises(ResultsError, match=f"cannot read the bench in .*{words}"):
            results.load(stored.meta.id)


def test_a_removed_meta_is_written_again_by_the_bench_that_runs() -> None:
    stored = values.bench(values.run(), name="mine")
    meta = stored.folder / "meta.json"
    content = meta.read_bytes()
    meta.unlink()
    stored = results.append(stored, values.run(repeat=1))
    assert meta.read_bytes() == content
    meta.unlink()
    results.confirm(stored)
    results.close(stored)
    assert results.load("mine") == stored


def test_without_its_meta_a_bench_is_named_and_can_be_salvaged() -> None:
    other = values.bench()
    stored = values.bench(values.run(), name="mine")
    results.close(stored)
    (stored.folder / "meta.json").unlink()
    for name in ("mine", str(stored.folder)):
        with pytest.raises(ResultsError, match=r"meta\.json is missing") as caught:
            results.load(name)
        assert "show mine --salvage" in (caught.value.hint or "")
        saved = results.load(name, salvage=True)
        assert saved.runs == stored.runs
        assert saved.damage == ("meta.json is missing: build, machine and engine are unknown",)
    assert results.ids() == (other.meta.id,)
    done = shell.done("show", "mine", "--salvage")
    assert "meta.json is missing" in done.stdout + done.stderr


def test_forecasts_that_are_damaged_are_not_drawn(tmp_path: Path) -> None:
    folder = values.drafting_bench().folder
    profiles.keep([filled(Forecast)], folder)
    file = folder / "forecasts.json"
    content = file.read_bytes()
    assert profiles.kept(folder) == (filled(Forecast),)
    refused = 0
    for bit in range(0, len(content) * 8, 7):
        file.write_bytes(damage.flip(content, bit))
        try:
            assert profiles.kept(folder) in ((), (filled(Forecast),))
        except ResultsError:
            refused += 1
    assert refused > len(content) // 2
    written = shell.done("report", "mine", "--out", str(tmp_path / "report.html"))
    assert "does not match its checksum; the forecasts are left out" in written.stderr


@pytest.mark.parametrize("words", [("show",), ("show", "-o", "csv"), ("show", "--runs", "-o", "json")])
def test_every_table_of_a_bench_with_a_damaged_end_has_a_warning(words: tuple[str, ...]) -> None:
    damage.cut_end(values.drafting_bench().folder)
    done = shell.done(*words)
    assert done.stderr.startswith("warning: mine: left out: 1 line at the end of runs.jsonl")
    if words == ("show",):
        assert "warning damaged: " in done.stdout
        assert "at the end of runs.jsonl" in html(results.load("mine"))


def test_a_flipped_digit_is_not_believed_and_the_rest_is_salvaged_on_demand() -> None:
    damage.falsify_first_run(values.drafting_bench().folder)
    refused = shell.here("show")
    assert (refused.returncode, refused.stdout) == (13, "")
    assert "line 5 of runs.jsonl: damaged" in refused.stderr
    assert "`ggufspec show mine --salvage`" in refused.stderr
    with pytest.raises(ResultsError, match=r"line 5 of runs.jsonl: damaged"):
        results.reopen("mine")
    salvaged = shell.done("show", "mine", "--salvage", "--runs", "-o", "json")
    assert salvaged.stderr == "warning: mine: left out: line 5 of runs.jsonl: damaged\n"
    assert [row["draft"] for row in json.loads(salvaged.stdout)] == [3, 5]
