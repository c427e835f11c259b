"""Tuned configurations as files: written in one step, read back, and refused where they cannot be trusted."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest

from ggufspec import results
from ggufspec.errors import ResultsError
from tests.support import shell, values

SCHEMAS = Path(results.__file__).parent / "schemas"


def _stored(name: str | None = "tuned") -> results.ResultSet:
    bench = values.bench(name=name)
    results.write_configuration(values.configuration(id=bench.meta.id), bench.folder)
    return bench


def test_a_configuration_is_read_back_as_it_was_written() -> None:
    bench = _stored()
    expected = values.configuration()
    assert results.read_configuration("tuned") == expected
    assert results.read_configuration("tun") == expected
    assert results.read_configuration(str(bench.folder)) == expected
    assert results.read_configuration(str(results.find_configuration("tuned"))) == expected
    assert results.has_configuration(bench.folder)


def test_the_last_configuration_is_that_of_the_newest_tuning() -> None:
    with pytest.raises(ResultsError, match="nothing is tuned yet"):
        results.read_configuration()
    _stored("first")
    _stored("second")
    values.bench(name="third")
    assert results.read_configuration().id == "second"


def test_a_bench_without_a_configuration_is_refused() -> None:
    values.bench(name="plain")
    with pytest.raises(ResultsError, match="the bench plain has no tuned configuration"):
        results.read_configuration("plain")


def test_a_stored_configuration_is_valid_by_its_schema() -> None:
    file = results.find_configuration(_stored().meta.id)
    schema = json.loads((SCHEMAS / "configuration-1.json").read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    stored = json.loads(file.read_bytes())
    validator.validate(stored)
    assert (stored["schema_name"], stored["schema_version"]) == ("ggufspec configuration", 1)
    for wrong in ({"engine": 3}, {"overall": None}, {"serving": {"slots": 1}}):
        assert not validator.is_valid({**stored, **wrong})


def test_a_tampered_configuration_is_refused_in_one_line() -> None:
    file = results.find_configuration(_stored().meta.id)
    content = file.read_bytes()
    for damaged, reason in (
        (content.replace(b'"n_max":5', b'"n_max":8'), "does not match its checksum"),
        (content[:200], "is not a tuned configuration"),
        (b"", "is not a tuned configuration"),
        (b'{"schema_version": 1}\n', "does not match its checksum"),
        (b"[]\n", "is not a tuned configuration"),
    ):
        assert damaged != content
        file.write_bytes(damaged)
        with pytest.raises(ResultsError, match=reason):
            results.read_configuration("tuned")
        done = shell.here("bench", "--tuned", "tuned")
        assert done.returncode == ResultsError.exit_code == 13
        message, hint = done.stderr.splitlines()
        assert message.startswith(f"error: {file} ")
        assert reason in message
        assert hint.startswith("hint: it was edited or damaged")


def test_a_configuration_of_a_newer_ggufspec_is_refused_in_one_line() -> None:
    bench = _stored()
    newer = replace(values.configuration(), schema_version=results.CONFIGURATION_VERSION + 1)
    file = results.write_configuration(newer, bench.folder)
    done = shell.here("bench", "--tuned", "tuned")
    assert (done.returncode, done.stdout) == (13, "")
    assert done.stderr.splitlines() == [
        f"error: {file} was written by a newer ggufspec (schema 2)",
        "hint: upgrade ggufspec to read it",
    ]
