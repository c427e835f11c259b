"""What earlier versions stored and printed: it is read, shown, and valid by the schema of its version.

A new version keeps a bench in stores/ and an output in outputs/ of its own; those of earlier versions stay as
they were written.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ggufspec import doctor, results
from ggufspec.doctor import finding
from ggufspec.errors import ResultsError
from ggufspec.report import frames, schemas
from ggufspec.report.frames import finalists
from ggufspec.report.schemas import outputs
from tests.support import shell, swept, values
from tests.support.schemas import PACKAGE, validate, validator

HERE = Path(__file__).parent
STORED = range(1, results.SCHEMA_VERSION + 1)
PRINTED = [(output, n) for output, newest in schemas.VERSIONS.items() for n in range(1, newest + 1)]


@pytest.mark.parametrize("version", STORED)
def test_a_bench_of_every_version_is_read_and_shown(version: int, home: Path, tmp_path: Path) -> None:
    shutil.copytree(HERE / "stores" / f"v{version}", home / "data" / "runs" / "old")
    bench = results.load("old")
    assert bench.meta.schema_version == version
    assert (bench.damage, len(bench.runs) > 2) == ((), True)
    for words in (
        ("show", "old"),
        ("show", "old", "--all", "--variance"),
        ("show", "old", "--runs", "-o", "csv"),
        ("report", "old", "--out", str(tmp_path / "report.html")),
    ):
        done = shell.here(*words)
        assert done.returncode == 0, done.stderr
    rows = json.loads(shell.here("show", "old", "-o", "json").stdout)
    assert rows
    validate("summary", rows)


@pytest.mark.parametrize("version", [version for version in STORED if version > 1])
def test_a_bench_of_every_version_is_valid_by_its_schema(version: int) -> None:
    folder = HERE / "stores" / f"v{version}"
    validator("results", f"meta-{version}").validate(json.loads((folder / "meta.json").read_bytes()))
    run = validator("results", f"run-{version}")
    for line in (folder / "runs.jsonl").read_bytes().splitlines():
        run.validate(json.loads(line))


def test_a_stored_configuration_is_read_and_valid() -> None:
    file = HERE / "stores" / "v5" / "configuration.json"
    content = json.loads(file.read_bytes())
    validator("results", f"configuration-{results.CONFIGURATION_VERSION}").validate(content)
    assert results.read_configuration(str(file)).schema_version == results.CONFIGURATION_VERSION


def test_a_configuration_of_an_earlier_version_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "configuration.json"
    file.write_text(json.dumps({"schema_version": results.CONFIGURATION_VERSION - 1}))
    with pytest.raises(ResultsError, match="was written by an earlier ggufspec"):
        results.read_configuration(str(file))


@pytest.mark.parametrize(("output", "version"), PRINTED)
def test_an_output_of_every_version_is_valid_by_its_schema(output: str, version: int) -> None:
    name = f"{output}-{version}"
    content = json.loads((HERE / "outputs" / f"{name}.json").read_text())
    validator("report", name).validate(content)
    for item in content if isinstance(content, list) else [content]:
        assert item["schema"] == name


def test_the_schemas_in_the_package_are_those_of_the_outputs() -> None:
    for name, content in schemas.output_schemas().items():
        assert json.loads((PACKAGE / "report" / "schemas" / name).read_text()) == content, (
            "write them with scripts/write_schemas.py; once this version was released, and where a field and "
            "not only its description has changed, raise the output's version first and keep the old files"
        )
    assert schemas.VERSIONS.keys() == outputs.TYPES.keys() == outputs.TITLES.keys()


@pytest.mark.parametrize(
    ("row", "columns"),
    [
        (outputs.PlanRow, set(frames.MEMORY_COLUMNS)),
        (outputs.ComparisonRow, set(frames.COMPARISON_COLUMNS)),
    ],
)
def test_a_row_has_the_columns_of_its_table(row: type[msgspec.Struct], columns: set[str]) -> None:
    assert {field.name for field in msgspec.structs.fields(row)} == {"schema", *columns}


@pytest.mark.parametrize(
    ("row", "columns"),
    [(outputs.SummaryRow, frames.SUMMARY_COLUMNS), (outputs.FinalistRow, finalists.FINALIST_COLUMNS)],
)
def test_a_row_of_a_bench_has_its_columns_and_its_origin(
    row: type[msgspec.Struct], columns: tuple[str, ...]
) -> None:
    names = {"schema", *columns, *frames.origin(values.whole_bench().meta)}
    assert {field.name for field in msgspec.structs.fields(row)} == names


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
