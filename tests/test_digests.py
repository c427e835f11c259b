"""Digests are remembered while a file stays as it is, and never longer."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from ggufspec import digests, paths

_LONG_AGO_NS = 1_600_000_000_000_000_000


@pytest.fixture(autouse=True)
def settled(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Use an empty cache, in which files count as settled at once."""
    monkeypatch.setenv("GGUFSPEC_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(digests, "_SETTLED_NS", 0)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A file whose content is "one"."""
    made = tmp_path / "model.gguf"
    made.write_bytes(b"one")
    return made


ONE, TWO = (
    digests.FileDigest(size_bytes=3, sha256=hashlib.sha256(text).hexdigest()) for text in (b"one", b"two")
)


def test_a_file_is_known_after_it_was_read_once_or_its_digest_was_computed_elsewhere(file: Path) -> None:
    assert digests.remembered(file) is None
    assert digests.of_file(file) == digests.remembered(file) == ONE
    digests.remember(file, TWO.sha256)
    assert digests.remembered(file) == TWO


@pytest.mark.parametrize("is_set_back", [False, True])
def test_a_file_that_was_overwritten_in_place_is_read_again(file: Path, is_set_back: bool) -> None:
    for content, digest in ((b"one", ONE), (b"two", TWO)):
        file.write_bytes(content)
        if is_set_back:
            os.utime(file, ns=(_LONG_AGO_NS, _LONG_AGO_NS))
        assert digests.of_file(file) == digest


def test_a_file_modified_just_now_is_not_remembered(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(digests, "_SETTLED_NS", 3_600_000_000_000)
    digests.of_file(file)
    assert digests.remembered(file) is None


@pytest.mark.parametrize("content", [b"not a database", b"", None])
def test_a_damaged_or_unwritable_cache_costs_time_and_nothing_else(
    file: Path, monkeypatch: pytest.MonkeyPatch, content: bytes | None
) -> None:
    if content is None:  # a file is where the folder should be
        monkeypatch.setenv("GGUFSPEC_CACHE", str(file / "cache"))
    else:
        paths.cache_dir().mkdir(parents=True)
        (paths.cache_dir() / "digests.sqlite").write_bytes(content)
    assert digests.of_file(file) == ONE


def test_a_missing_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        digests.of_file(tmp_path / "absent.gguf")
