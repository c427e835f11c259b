from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from ggufspec import results
from ggufspec.domain import Conditions, RunResult, Sample, Status
from ggufspec.errors import ResultsError
from tests.support import shell, values
from tests.support.values import filled

SCHEMAS = Path(results.__file__).parent / "schemas"
RUN, META = f"run-{results.SCHEMA_VERSION}.json", f"meta-{results.SCHEMA_VERSION}.json"
OTHERS = ("configuration-1.json", "crossover-1.json")
CURRENT = {name: json.loads((SCHEMAS / name).read_text()) for name in (RUN, META, *OTHERS)}


def validator(name: str) -> jsonschema.Draft202012Validator:
    jsonschema.Draft202012Validator.check_schema(CURRENT[name])
    return jsonschema.Draft202012Validator(CURRENT[name])


def stored_lines() -> list[dict[str, Any]]:
    run = filled(RunResult)
    stored = values.bench(
        run, replace(run, sample=Sample(status=Status.CRASHED), conditions=Conditions(), log="other")
    )
    stored = results.judge(stored, replace(run, text_identical=False))
    return [json.loads(line) for line in (stored.folder / "runs.jsonl").read_bytes().splitlines()]


def test_the_schemas_in_the_package_are_those_of_what_is_stored() -> None:
    assert results.stored_schemas() == CURRENT, (
        "write them with scripts/write_schemas.py; once a version was released, and where a field and not "
        "only its description has changed, raise SCHEMA_VERSION first"
    )


def test_every_kind_of_line_is_valid_with_all_its_fields_and_without() -> None:
    lines = stored_lines()
    assert {line["kind"] for line in lines} == {"spec", "call", "text", "output", "run", "judged"}
    for line in lines:
        validator(RUN).validate(line)
    first_run = next(line for line in lines if line["kind"] == "run")
    known = CURRENT[RUN]["$defs"]["RunRecord"]["properties"]
    assert first_run.keys() == known.keys()


def test_meta_is_valid_with_its_build_alone() -> None:
    bench = values.bench(doubts={"few-repeats": "more"})
    meta = json.loads((bench.folder / "meta.json").read_bytes())
    validator(META).validate(meta)
    del meta["build"]
    assert not validator(META).is_valid(meta)


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        ("run", {"spec": None}),
        ("run", {"output": -1}),
        ("run", {"repeat": "first"}),
        ("run", {"conditions": {"cpu_mhz": "fast"}}),
        ("run", {"kind": "walk"}),
        ("output", {"status": "fine"}),
        ("output", {"rounds": [[3]]}),
        ("spec", {"spec": {}}),
        ("judged", {"difference": {"at_token": 3}}),
        ("run", {"crc32": ["1a2b3c4d"]}),
    ],
)
def test_a_damaged_line_is_invalid(kind: str, change: dict[str, Any]) -> None:
    line = next(line for line in stored_lines() if line["kind"] == kind)
    assert validator(RUN).is_valid(line)
    assert not validator(RUN).is_valid({**line, **change})


# Tuned configurations as files: written in one step, read back, and refused where they cannot be trusted


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


def test_a_configuration_is_that_of_the_newest_tuning() -> None:
    with pytest.raises(ResultsError, match="nothing is tuned yet"):
        results.read_configuration()
    _stored("first")
    _stored("second")
    values.bench(name="third")
    assert results.read_configuration().id == "second"
    values.bench(name="plain")
    with pytest.raises(ResultsError, match="the bench plain has no tuned configuration"):
        results.read_configuration("plain")


def test_a_stored_configuration_is_valid_by_its_schema() -> None:
    stored = json.loads(results.find_configuration(_stored().meta.id).read_bytes())
    schema = validator("configuration-1.json")
    schema.validate(stored)
    assert (stored["schema_name"], stored["schema_version"]) == ("ggufspec configuration", 1)
    for wrong in ({"engine": 3}, {"overall": None}, {"serving": {"slots": 1}}):
        assert not schema.is_valid({**stored, **wrong})


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
