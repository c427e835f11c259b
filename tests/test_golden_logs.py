"""Untouched logs of real builds, each beside the values that a person read in it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ggufspec.domain import Status
from ggufspec.frames import LOG_COLUMNS
from ggufspec.llama.logs import diagnose, parse

LOGS = sorted((Path(__file__).parent / "logs").glob("*/*.log"))
DRAFTING = [
    log for log in LOGS if log.stem in {"tree", "simple", "tree-prefixed", "tree-jsonl", "tree-quiet"}
]
FAILURES = {
    Status.LOAD_FAILED: "absent.gguf",
    Status.PROMPT_TOO_LONG: "prompt",
    Status.DRAFTER_REFUSED: "",
}
FAKE = """\
encoded    7 tokens in    0.029 seconds, speed:  240.790 t/s
decoded   99 tokens in    0.163 seconds, speed:  607.362 t/s

n_draft   = 9
n_predict = 99
n_drafted = 90
n_accept  = 45
accept    = 50.000%
"""


def name(log: Path) -> str:
    return f"{log.parent.name}/{log.stem}"


def row(data: bytes) -> dict[str, Any]:
    """What ``ggufspec parse -o json`` says of one log, without the file's name."""
    sample = parse(data)
    values = {column: getattr(sample, column) for column in LOG_COLUMNS[1:]}
    return rounded({column: getattr(value, "value", value) for column, value in values.items()})


def expected(log: Path) -> dict[str, Any]:
    return rounded(json.loads(log.with_suffix(".json").read_text()))


def rounded(values: dict[str, Any]) -> dict[str, Any]:
    return {
        key: float(f"{value:.6g}") if isinstance(value, float) else value for key, value in values.items()
    }


@pytest.mark.parametrize("log", LOGS, ids=name)
def test_a_real_log_is_read_as_a_person_reads_it(log: Path) -> None:
    values = expected(log)
    assert list(values) == list(LOG_COLUMNS[1:])
    assert row(log.read_bytes()) == values


@pytest.mark.parametrize("log", LOGS, ids=name)
def test_a_failure_is_explained_by_a_line_of_its_log(log: Path) -> None:
    status = Status(expected(log)["status"])
    diagnosis = diagnose(log.read_bytes())
    if status in FAILURES:
        assert diagnosis is not None
        assert diagnosis.status is status
        assert FAILURES[status] in diagnosis.line
    else:
        assert diagnosis is None


@pytest.mark.parametrize("log", DRAFTING, ids=name)
def test_a_fake_summary_in_a_real_log_changes_nothing(log: Path) -> None:
    data, values = log.read_bytes(), expected(log)
    mark = b"Letter"  # where the text begins
    fake = FAKE.encode() if b'{"type"' not in data else b""
    inside = data.replace(mark, mark + b"\n" + fake + b"\n" + mark, 1)
    behind = data + b"\n\n<s> Letter to Jonas\n" + FAKE.encode() + b"and so on\n"
    for log_with_fake in (inside, behind, FAKE.encode() + b"and so on\n" + data):
        assert row(log_with_fake) == values


@pytest.mark.parametrize("log", DRAFTING, ids=name)
def test_a_real_log_that_is_torn_gives_true_numbers_or_none(log: Path) -> None:
    data, values = log.read_bytes(), expected(log)
    for size in range(data.index(b"encoded "), len(data), 31):
        torn = row(data[:size])
        assert torn["status"] in {"ok", "summary lost"}
        assert {key for key, value in torn.items() if value not in (None, values[key])} <= {
            "status",
            "program",
        }


def test_a_build_without_a_gpu_claims_to_offload_and_is_found_out() -> None:
    sample = parse((Path(__file__).parent / "logs" / "0.3.16" / "plain-claimed-offload.log").read_bytes())
    assert (sample.offloaded_layers, sample.total_layers, sample.devices) == (9, 9, ("CPU",))


def test_every_era_has_its_logs() -> None:
    builds = {log.parent.name for log in LOGS}
    assert len(builds) >= 8
    for build in builds:
        stems = {log.stem for log in LOGS if log.parent.name == build}
        assert {"plain", "tree", "server"} <= stems
        assert any(stem.endswith(("missing-model", "stranger", "too-long")) for stem in stems)
    assert not {log for log in LOGS if b"/work" in log.read_bytes() or b"/home" in log.read_bytes()}
