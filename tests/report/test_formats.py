"""What is stored and printed is read back, shown, and valid by its schema.

``stores/`` has a bench as the first version of the formats writes it. A change after which it cannot be read
any more needs a new version.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from ggufspec import doctor, results
from ggufspec.doctor import finding
from ggufspec.report import schemas
from ggufspec.report.schemas import outputs
from tests.support import shell, swept, values
from tests.support.schemas import PACKAGE, validate, validator

STORED = Path(__file__).parents[1] / "stores" / "bench"


def test_a_stored_bench_is_read_and_shown(home: Path, tmp_path: Path) -> None:
    shutil.copytree(STORED, home / "data" / "runs" / "old")
    bench = results.load("old")
    assert bench.meta.schema_version == results.SCHEMA_VERSION
    assert (bench.damage, len(bench.runs) > 2) == ((), True)
    for words in (
        ("show", "old"),
        ("show", "old", "--all", "--variance"),
        ("show", "old", "--runs", "-o", "csv"),
        ("report", "old", "--out", str(tmp_path / "report.html")),
    ):
        shell.done(*words)
    rows = json.loads(shell.here("show", "old", "-o", "json").stdout)
    assert rows
    validate("summary", rows)


def test_a_stored_bench_is_valid_by_its_schema() -> None:
    meta = validator("results", f"meta-{results.SCHEMA_VERSION}")
    meta.validate(json.loads((STORED / "meta.json").read_bytes()))
    run = validator("results", f"run-{results.SCHEMA_VERSION}")
    for line in (STORED / "runs.jsonl").read_bytes().splitlines():
        run.validate(json.loads(line))


def test_a_stored_configuration_is_read_and_valid() -> None:
    file = STORED / "configuration.json"
    content = json.loads(file.read_bytes())
    validator("results", f"configuration-{results.CONFIGURATION_VERSION}").validate(content)
    assert results.read_configuration(str(file)).schema_version == results.CONFIGURATION_VERSION


def test_the_schemas_in_the_package_are_those_of_the_outputs() -> None:
    for name, content in outputs.output_schemas().items():
        assert json.loads((PACKAGE / "report" / "schemas" / name).read_text()) == content, (
            "write them with scripts/write_schemas.py; once a version was released, and where a field and "
            "not only its description has changed, raise the output's version first"
        )
    assert schemas.VERSIONS.keys() == outputs.OUTPUTS.keys()


def test_what_is_printed_now_is_valid() -> None:
    first, second = swept.swept(), values.whole_bench()
    for bench in (first, second):
        results.close(bench)
        rows = json.loads(shell.here("show", bench.meta.id, "-o", "json").stdout)
        validate("summary", rows)
        lines = shell.here("show", bench.meta.id, "-o", "jsonl").stdout.splitlines()
        assert [json.loads(line) for line in lines] == rows
    validate(
        "comparison", json.loads(shell.here("compare", first.meta.id, first.meta.id, "-o", "json").stdout)
    )
    for words in ((), ("--vram", "2G")):
        validate("plan", json.loads(shell.here("plan", "--pair", "demo", *words, "-o", "json").stdout))
    checkup = doctor.Checkup(findings=(finding.ok("a", "b"), finding.missing("c", "d", "e")), can_run=True)
    validate("doctor", json.loads(finding.render(checkup, "json")))


def test_some_columns_of_a_bench_follow_novalidator() -> None:
    bench = values.whole_bench()
    results.close(bench)
    (row, *_) = json.loads(shell.here("show", bench.meta.id, "--columns", "role", "-o", "json").stdout)
    assert "schema" not in row


@pytest.mark.parametrize(
    "change", [{"new": 1}, {"role": "judge"}, {"warnings": ["drift"]}, {"schema": "summary-0"}]
)
def test_another_shape_is_invalid(change: dict[str, Any]) -> None:
    bench = values.whole_bench()
    results.close(bench)
    rows = json.loads(shell.here("show", bench.meta.id, "-o", "json").stdout)
    schema = validator("report", schemas.schema_name("summary"))
    assert schema.is_valid(rows)
    assert not schema.is_valid([{**rows[0], **change}])
    assert not schema.is_valid([{name: value for name, value in rows[0].items() if name != "status"}])
