"""Untouched logs of real builds, each beside the values that a person read in it."""

from __future__ import annotations

import json
import re
from itertools import zip_longest
from pathlib import Path
from typing import Any

import pytest

from ggufspec.domain import LoadedModel, MethodCounts, Status
from ggufspec.llama.logs.parsing import count_by_method, diagnose, parse
from ggufspec.report.rows.runs import LogRow

LOGS = sorted((Path(__file__).parents[1] / "logs").glob("*/*.log"))
BUILDS = sorted({log.parent.name for log in LOGS})
DRAFTING = [
    log for log in LOGS if log.stem in {"tree", "simple", "tree-prefixed", "tree-jsonl", "tree-quiet"}
]
ROUNDS = ("n_rounds", "accepted_at", "draft_s", "verify_s")
FIELDS = {"draft": "n_draft", "actual_ngl": "offloaded_layers"}  # column -> field of a sample
COLUMNS = (*(FIELDS.get(column, column) for column in LogRow.names()[2:] if column not in ROUNDS), *ROUNDS)
FAILURES = {Status.LOAD_FAILED: "absent.gguf", Status.PROMPT_TOO_LONG: "prompt", Status.DRAFTER_REFUSED: ""}
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
    """What ``ggufspec parse -o json`` says of one log, without the file's name, and what rounds tell."""
    sample = parse(data)
    target, drafter = sample.target or LoadedModel(), sample.drafter or LoadedModel()
    placed = {
        "offloaded_layers": target.offloaded_layers,
        "total_layers": target.total_layers,
        "gpu_bytes": target.gpu_bytes,
        "draft_gpu_bytes": drafter.gpu_bytes,
    }
    values = {name: placed[name] if name in placed else getattr(sample, name) for name in COLUMNS}
    values = {column: getattr(value, "value", value) for column, value in values.items()}
    return rounded({key: list(value) if isinstance(value, tuple) else value for key, value in values.items()})


def expected(log: Path) -> dict[str, Any]:
    """What a person read: what is not written there, such as ``by_method`` but for chains, is absent."""
    values = dict.fromkeys(COLUMNS) | json.loads(log.with_suffix(".json").read_text())
    counts = [MethodCounts(*of_method) for of_method in values["by_method"] or ()]
    return rounded(values | {"by_method": counts or None})


def rounded(values: dict[str, Any]) -> dict[str, Any]:
    return {
        key: float(f"{value:.6g}") if isinstance(value, float) else value for key, value in values.items()
    }


def logs_of(build: str) -> list[Path]:
    return [log for log in LOGS if log.parent.name == build]


@pytest.mark.parametrize("build", BUILDS)
def test_a_real_log_is_read_as_a_person_reads_it(build: str) -> None:
    for log in logs_of(build):
        values = expected(log)
        assert sorted(values) == sorted(COLUMNS), name(log)
        assert row(log.read_bytes()) == values, name(log)


@pytest.mark.parametrize("build", BUILDS)
def test_a_failure_is_explained_by_a_line_of_its_log(build: str) -> None:
    for log in logs_of(build):
        status = Status(expected(log)["status"])
        diagnosis = diagnose(log.read_bytes())
        if status in FAILURES:
            assert diagnosis is not None, name(log)
            assert diagnosis.status is status, name(log)
            assert FAILURES[status] in diagnosis.line, name(log)
        else:
            assert diagnosis is None, name(log)


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


def has_parts(log: Path) -> bool:
    values = expected(log)
    return not values["draft_s"] is values["verify_s"] is None


def bare(log: Path) -> str:
    return re.sub(r"\x1b\[[0-9;]*m", "", log.read_text(errors="replace"))


def evaluated(block: str) -> tuple[int, float]:
    """Tokens and milliseconds of a block of timings; nothing evaluated prints as 0.00 ms and 1."""
    found = re.findall(r"(?:prompt|\w:) +eval time = +([\d.]+) ms / +(\d+) (?:tokens|runs)", block)[:2]
    return sum(int(tokens) for ms, tokens in found if ms != "0.00"), sum(float(ms) for ms, _ in found)


@pytest.mark.parametrize("log", [log for log in LOGS if expected(log)["n_rounds"] is not None], ids=name)
def test_rounds_add_up_with_what_a_plain_search_finds(log: Path) -> None:
    text, values = bare(log), expected(log)
    if values["program"] == "server":
        _, calls, _ = re.findall(r"#calls\(b,g,a\) = +(\d+) +(\d+) +(\d+)", text)[-1]
        answers = [int(count) for count in re.findall(r"(?<!prompt) eval time = .* / +(\d+) tokens", text)]
        assert values["n_rounds"] == sum(answers) - len(answers) - values["n_accepted"]
        skipped = values["n_rounds"] - int(calls)
        drafts_less = "ngram" in log.stem or "draft-" in log.stem  # no draft for a last token there
        assert 0 <= skipped <= (len(answers) if drafts_less else 0)
    else:
        tree = values["program"] == "speculative"
        tokens, _ = evaluated(text[text.rindex("target:") :])
        # a round evaluates its drafts and the token before them; only the tree evaluates all of the prompt
        rounds = tokens - (values["prompt_tokens"] - (not tree)) - values["n_drafted"]
        tested = 0 if tree or log.parent.name in {"0.3.16", "0.3.20"} else 2
        assert values["n_rounds"] == rounds - tested
        assert values["n_rounds"] + values["n_accepted"] + tree == values["gen_tokens"]


@pytest.mark.parametrize("log", [log for log in LOGS if expected(log)["accepted_at"]], ids=name)
def test_positions_make_the_printed_rates_and_the_total(log: Path) -> None:
    text, values = bare(log), expected(log)
    lines = re.findall(r"statistics +(\S+): #calls.* +(\d+), #gen drafts.*#acc rate/pos = \(([^)]*)\)", text)
    last = {method: (int(drafts), rates) for method, drafts, rates in lines}  # of a chain, one for each
    counts = [
        [round(float(rate) * drafts) for rate in filter(None, rates.split(", "))]
        for drafts, rates in last.values()
    ]
    summed = [sum(column) for column in zip_longest(*counts, fillvalue=0)]  # as far as anything was accepted
    assert values["accepted_at"] == summed + [0] * (len(values["accepted_at"]) - len(summed))
    assert sum(values["accepted_at"]) == values["n_accepted"]


@pytest.mark.parametrize("log", [log for log in LOGS if has_parts(log)], ids=name)
def test_the_parts_of_a_window_fit_into_it_and_are_printed(log: Path) -> None:
    text, values, window_s = bare(log), expected(log), parse(log.read_bytes()).gen_s
    parts = [values["draft_s"], values["verify_s"]]
    assert 0 <= sum(part or 0 for part in parts) <= window_s * 1.02
    if values["verify_s"] is not None:
        _, ms = evaluated(text[text.rindex("target:") :])
        encoded = float(re.findall(r"encoded +\d+ tokens in +([\d.]+) seconds", text)[-1])
        assert values["verify_s"] == pytest.approx(ms / 1000 - encoded, abs=0.0006)
    elif "statistics" in text:
        lines = re.findall(r"statistics +(\S+):.*dur\(b,g,a\) = [\d.]+, ([\d.]+), ", text)
        assert values["draft_s"] * 1000 == pytest.approx(sum(float(ms) for ms in dict(lines).values()), 1e-5)
    else:  # the drafter's block, wherever it is printed
        blocks = re.split(r"load time = ", text[text.rindex("n_accept") :])[1:]
        assert values["draft_s"] in [pytest.approx(evaluated(block)[1] / 1000) for block in blocks]


def test_every_era_has_its_logs() -> None:
    """Of builds that print the same in all lines that are read, only the last has its log here."""
    assert len(BUILDS) >= 8
    for build in BUILDS:
        stems = {log.stem for log in logs_of(build)}
        assert "server" in stems
        assert stems & {"tree", "simple"}
        assert any(stem.endswith(("missing-model", "stranger", "too-long")) for stem in stems)
    assert not {log for log in LOGS if b"/work" in log.read_bytes() or b"/home" in log.read_bytes()}


def test_a_servers_totals_are_told_apart_by_request() -> None:
    folder = LOGS[0].parents[1] / "0.3.36"
    log = (folder / "server-ngram-mod+draft-eagle3.log").read_bytes()
    first, second = log.split(b"task 292 | prompt eval time", 1)
    before = count_by_method(first)
    assert before == (MethodCounts("ngram-mod", 3, 48, 8), MethodCounts("draft-eagle3", 286, 1138, 1))
    assert count_by_method(second, before) == (
        MethodCounts("ngram-mod", 2, 32, 0),
        MethodCounts("draft-eagle3", 295, 1174, 1),
    )
    assert count_by_method((folder / "server-draft-eagle3.log").read_bytes()) is None
