from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from ggufspec import results
from ggufspec.domain import Difference, Role, Status
from ggufspec.errors import DiskFullError, ResultsError
from tests import values


def test_what_is_stored_is_what_is_read() -> None:
    odd = replace(
        values.run(Role.DRAFTING, draft=3),
        spec=values.spec(path=Path("/models/target.gguf")),
        difference=Difference(at_char=4, at_token=None),
        sample=replace(values.run().sample, devices=("CPU", "CUDA0"), text="naïve ☃\n\u2028line"),
        doubts=("busy-machine",),
    )
    stored = values.bench(
        values.run(), odd, values.run(status=Status.CRASHED), doubts={"few-repeats": "more"}
    )
    assert results.load(stored.meta.id) == stored


def test_a_line_that_a_crash_cut_short_is_not_a_run() -> None:
    stored = values.bench(values.run(), values.run(repeat=1))
    file = stored.folder / "runs.jsonl"
    whole = file.read_bytes()
    for length in range(whole.index(b"\n") + 1, len(whole)):
        file.write_bytes(whole[:length])
        assert results.load(stored.meta.id).runs == stored.runs[:1]


def test_load_finds_last_prefix_and_folder() -> None:
    stored = values.bench(values.run())
    for name in ("last", stored.meta.id, stored.meta.id[:-2], stored.folder):
        assert results.load(name).meta.id == stored.meta.id


@pytest.mark.parametrize(
    ("name", "words"), [("nope", "there is no run 'nope'"), ("2", "beginning of 2 runs")]
)
def test_load_says_what_is_wrong(name: str, words: str) -> None:
    values.bench()
    values.bench()
    with pytest.raises(ResultsError, match=re.escape(words)) as caught:
        results.load(name)
    assert caught.value.hint


def test_load_without_any_run() -> None:
    with pytest.raises(ResultsError, match="no bench is stored yet"):
        results.load()


def test_damage_and_newer_schemas_are_named() -> None:
    stored = values.bench(values.run())
    meta = stored.folder / "meta.json"
    text = meta.read_text()
    meta.write_text(text.replace('"schema_version":1', '"schema_version":99'))
    with pytest.raises(ResultsError, match="newer ggufspec"):
        results.load(stored.meta.id)
    meta.write_text(text)
    (stored.folder / "runs.jsonl").write_text('{"spec": 1}\n')
    with pytest.raises(ResultsError, match="cannot read the run"):
        results.load(stored.meta.id)


def test_a_full_disk_has_its_own_error() -> None:
    stored = values.bench(values.run())
    (stored.folder / "runs.jsonl").unlink()
    (stored.folder / "runs.jsonl").symlink_to("/dev/full")
    with pytest.raises(DiskFullError, match="no space left"):
        results.append(stored, values.run())


def test_an_unwritable_place_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("not a folder")
    monkeypatch.setenv("GGUFSPEC_DATA", str(tmp_path / "file"))
    with pytest.raises(ResultsError, match="cannot write to"):
        values.bench()
