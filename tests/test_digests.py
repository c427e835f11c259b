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


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def test_a_file_is_known_after_it_was_read_once(tmp_path: Path) -> None:
    file = tmp_path / "model.gguf"
    file.write_bytes(b"one")
    assert digests.remembered(file) is None
    digest = digests.of_file(file)
    assert digest == digests.FileDigest(size_bytes=3, sha256=_sha256(b"one"))
    assert digests.remembered(file) == digest


def test_a_file_that_was_overwritten_in_place_is_read_again(tmp_path: Path) -> None:
    file = tmp_path / "model.gguf"
    file.write_bytes(b"one")
    digests.of_file(file)
    file.write_bytes(b"two")
    assert digests.of_file(file).sha256 == _sha256(b"two")


def test_an_overwritten_file_whose_time_was_set_back_is_read_again(tmp_path: Path) -> None:
    file = tmp_path / "model.gguf"
    file.write_bytes(b"one")
    os.utime(file, ns=(_LONG_AGO_NS, _LONG_AGO_NS))
    digests.of_file(file)
    file.write_bytes(b"two")
    os.utime(file, ns=(_LONG_AGO_NS, _LONG_AGO_NS))
    assert digests.of_file(file).sha256 == _sha256(b"two")


def test_a_file_modified_just_now_is_not_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(digests, "_SETTLED_NS", 3_600_000_000_000)
    file = tmp_path / "model.gguf"
    file.write_bytes(b"one")
    digests.of_file(file)
    assert digests.remembered(file) is None


def test_a_digest_that_was_computed_elsewhere_can_be_stored(tmp_path: Path) -> None:
    file = tmp_path / "model.gguf"
    file.write_bytes(b"one")
    digests.remember(file, _sha256(b"one"))
    assert digests.remembered(file) == digests.FileDigest(size_bytes=3, sha256=_sha256(b"one"))


@pytest.mark.parametrize("content", [b"not a database", b""])
def test_a_damaged_database_costs_time_and_nothing_else(tmp_path: Path, content: bytes) -> None:
    paths.cache_dir().mkdir(parents=True)
    (paths.cache_dir() / "digests.sqlite").write_bytes(content)
    file = tmp_path / "model.gguf"
    file.write_bytes(b"one")
    assert digests.of_file(file).sha256 == _sha256(b"one")


def test_an_unwritable_cache_costs_time_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "occupied").write_text("a file where the folder should be")
    monkeypatch.setenv("GGUFSPEC_CACHE", str(tmp_path / "occupied" / "cache"))
    file = tmp_path / "model.gguf"
    file.write_bytes(b"one")
    assert digests.of_file(file).sha256 == _sha256(b"one")


def test_a_missing_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        digests.of_file(tmp_path / "absent.gguf")
