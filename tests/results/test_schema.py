from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from ggufspec import results
from ggufspec.domain import Conditions, RunResult, Sample, Status
from tests.support import values
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


def test_meta_is_valid() -> None:
    bench = values.bench(doubts={"few-repeats": "more"})
    validator(META).validate(json.loads((bench.folder / "meta.json").read_bytes()))


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


def test_meta_without_a_build_is_invalid() -> None:
    meta = json.loads((values.bench().folder / "meta.json").read_bytes())
    del meta["build"]
    assert not validator(META).is_valid(meta)
