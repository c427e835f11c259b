# ruff: noqa: E501  # tables are as they are printed
from __future__ import annotations

import io
import json
import re
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from ggufspec import doctor, results
from ggufspec.analysis import MeasurementWarning, review, texts
from ggufspec.doctor import finding
from ggufspec.domain import Program, Role, RunResult, Runtime, Sample, Sampling, Status, TextAudit
from ggufspec.errors import GgufspecError
from ggufspec.llama.logs import LoggedRun
from ggufspec.options import ShowOptions
from ggufspec.options.kinds import Word
from ggufspec.report import frames, schemas
from ggufspec.report.rows.runs import LogRow
from ggufspec.report.schemas import outputs
from ggufspec.report.text import formats, overview
from ggufspec.report.text.verdict import audit_line, format_bound
from tests.support import shell, swept, values
from tests.support.schemas import PACKAGE, validate, validator

FRAME = pd.DataFrame(
    {
        "name": ["a|b", "it's"],
        "n": pd.array([1, None], dtype="Int64"),
        "rate": [0.5, None],
        "ok": [True, None],
        "warnings": [[{"name": "busy-machine", "advice": "stop it"}], []],
    }
)

EXACT = {
    "table": """\
name  n  rate  ok   warnings
────────────────────────────────
a|b   1   0.5  yes  busy-machine
it's
""",
    "md": """\
| name   |   n |   rate | ok   | warnings     |
|--------|----:|-------:|------|--------------|
| a\\|b   |   1 |    0.5 | yes  | busy-machine |
| it's   |     |        |      |              |
""",
    "csv": "name,n,rate,ok,warnings\na|b,1,0.5,True,busy-machine\nit's,,,,\n",
    "jsonl": """\
{"name": "a|b", "n": 1, "rate": 0.5, "ok": true, "warnings": [{"name": "busy-machine", "advice": "stop it"}]}
{"name": "it's", "n": null, "rate": null, "ok": null, "warnings": []}
""",
    "sql": """\
CREATE TABLE IF NOT EXISTS "t" ("name" TEXT, "n" INTEGER, "rate" REAL, "ok" INTEGER, "warnings" TEXT);
INSERT INTO "t" ("name", "n", "rate", "ok", "warnings") VALUES ('a|b', 1, 0.5, 1, 'busy-machine');
INSERT INTO "t" ("name", "n", "rate", "ok", "warnings") VALUES ('it''s', NULL, NULL, NULL, '');
""",
}


EXACT["json"] = json.dumps([json.loads(line) for line in EXACT["jsonl"].splitlines()], indent=2) + "\n"


@pytest.mark.parametrize("name", [name for name in formats.FORMATS if name != "parquet"])
def test_every_text_format_has_its_exact_text(name: str) -> None:
    assert formats.render(FRAME, name, title="t") == EXACT[name]
    kind = ShowOptions.options["output"].kind
    assert isinstance(kind, Word)
    assert tuple(formats.FORMATS) == tuple(kind.words)  # as the command line offers them


def _through_parquet(frame: pd.DataFrame) -> pd.DataFrame:
    return pd.read_parquet(io.BytesIO(bytes(formats.render(frame, "parquet"))))  # type: ignore[arg-type]


def test_parquet_keeps_values_types_and_structure() -> None:
    read = _through_parquet(FRAME)
    assert [str(kind) for kind in read.dtypes[["n", "rate"]]] == ["Int64", "float64"]
    plain = [formats.records(table.drop(columns="warnings")) for table in (read, FRAME)]
    assert plain[0] == plain[1]
    assert [list(cell) for cell in read["warnings"]] == list(FRAME["warnings"])
    for bench in (values.whole_bench(), values.bench()):
        for frame in (frames.summary(bench), frames.runs(bench)):
            read = _through_parquet(frame)
            assert (list(read.columns), len(read)) == (list(frame.columns), len(frame))


def test_parquet_without_its_library_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(GgufspecError, match="pyarrow, which is not installed") as caught:
        formats.render(FRAME, "parquet")
    assert caught.value.hint == "pip install pyarrow"


def test_tables_leave_out_what_nobody_says_and_print_columns_alike() -> None:
    frame = pd.DataFrame({"file": ["a", "b"], "accept_rate": [0.7078, None], "empty": [None, None]})
    assert str(formats.render(frame, "md")).splitlines() == [
        "| file   |   accept_rate |",
        "|--------|--------------:|",
        "| a      |        70.8 % |",
        "| b      |               |",
    ]
    frame = pd.DataFrame({"build": [10454], "gen_tokens": [10680], "speedup": [1.6666], "ttft_s": [0.25]})
    cells = str(formats.render(frame, "md")).splitlines()[-1].split("|")[1:-1]
    assert [cell.strip() for cell in cells] == ["10454", "10,680", "1.67×", "0.25"]


def test_no_table_for_people_has_scientific_notation() -> None:
    small = [0.000023, 0.5, 1e-9]
    frame = pd.DataFrame({"gen_tps": [10680.4, 1068.4, 0.5], "margin_nats": small, "p_value": small})
    rows = [line.split("|")[1:4] for line in str(formats.render(frame, "md")).splitlines()[2:]]
    assert [[cell.strip() for cell in row] for row in rows] == [
        ["10,680", "0.000023", "< 0.001"],
        ["1068", "0.5", "0.500"],
        ["0.500", "0.000000001", "< 0.001"],
    ]
    assert "e-09" in formats.render(frame, "csv")  # programs read either


def test_overview_of_a_whole_bench() -> None:
    bench = values.whole_bench()
    text = overview.overview(bench).replace(str(bench.folder), "FOLDER").replace(bench.meta.id, "ID")
    assert (
        text
        == """\
Engine: binary (llama.cpp's own programs, `speculative` to draft; a new process for every run).

|          | model                      | GPU layers   |   γ |                tokens/s |   accepted |             speed-up | verdict   |   text unchanged |
|----------|----------------------------|--------------|----:|------------------------:|-----------:|---------------------:|-----------|-----------------:|
| target   | target.gguf                | 0            |     | 49.23 [needs more runs] |            |                      |           |                  |
| drafter  | drafter.gguf               | 0            |     |                   900.0 |            |                      |           |                  |
| drafting | target.gguf + drafter.gguf | 0 + 0        |   3 | 73.85 [needs more runs] |     75.0 % | 1.50× [1.50×, 1.50×] | faster    |           2 of 2 |

Drafting with drafter.gguf at γ = 3 is faster: 73.85 [needs more runs] tokens/s, 1.50× [1.50×, 1.50×] the speed of target.gguf alone. Its text equals the target's on all 2 prompts.

2 prompts × 2 repeats, 32 tokens each, 2 threads, greedy; llama.cpp b11312 (0c1e570; llama-cpp-python 0.3.36), cpu; A Processor.
Tokens/s: geometric mean over the cells (prompt, repeat) that all arms have, of tokens decoded after the prompt per second; [95 % interval over prompts and loads].
Stored as ID: `ggufspec show ID` prints this again, raw logs are in FOLDER/logs
"""
    )


def test_overview_shows_failures_and_warnings_and_hides_empty_columns() -> None:
    text = overview.overview(
        values.bench(
            values.run(), values.run(repeat=1, status=Status.CRASHED), doubts={"few-repeats": "more"}
        )
    )
    header, _, row = text.splitlines()[2:5]
    assert "accepted" not in header
    assert "partial" in row
    assert re.search(r"^warning few-repeats: more$", text, re.MULTILINE)
    assert re.search(r"^warning runs-failed: .*\(1 of 2 runs\)$", text, re.MULTILINE)


def test_settings_name_files_without_their_folders() -> None:
    run = values.run()
    runtime = Runtime(chat_template_file=Path("/x/y/own.jinja"), override_tensor="a/b=CPU")
    other = replace(run, spec=replace(run.spec, runtime=runtime))
    assert "| -ot a/b=CPU --chat-template-file own.jinja |" in overview.overview(values.bench(run, other))


def test_logs_table_has_the_documented_keys() -> None:
    sample = Sample(status=Status.OK, program=Program.TREE, gen_tokens=254, n_drafted=243, n_accepted=172)
    (row,) = formats.records(frames.logs([LoggedRun("old.log", sample)]))
    keys = ("file", "program", "status", "load_ms")
    assert tuple(row[key] for key in keys) == ("old.log", "speculative", "ok", None)
    assert row["accept_rate"] == pytest.approx(172 / 243)
    assert tuple(row) == LogRow.names()


# What is stored and printed is read back, shown, and valid by its schema


STORED = Path(__file__).parents[1] / "stores" / "bench"


def test_a_stored_bench_is_read_and_shown(home: Path, tmp_path: Path) -> None:
    shutil.copytree(STORED, home / "data" / "runs" / "old")
    bench = results.load("old")
    assert bench.meta.schema_version == results.SCHEMA_VERSION
    assert (bench.damage, len(bench.runs) > 2) == ((), True)
    for words in (
        *(("show", "old"), ("show", "old", "--all", "--variance"), ("show", "old", "--runs", "-o", "csv")),
        ("report", "old", "--out", str(tmp_path / "report.html")),
    ):
        shell.done(*words)
    validate("summary", _printed("show", "old"))


def _printed(*words: str) -> Any:
    return json.loads(shell.done(*words, "-o", "json").stdout)


def test_stored_values_are_valid_by_their_schemas() -> None:
    meta = validator("results", f"meta-{results.SCHEMA_VERSION}")
    meta.validate(json.loads((STORED / "meta.json").read_bytes()))
    run = validator("results", f"run-{results.SCHEMA_VERSION}")
    for line in (STORED / "runs.jsonl").read_bytes().splitlines():
        run.validate(json.loads(line))
    file = STORED / "configuration.json"
    content = json.loads(file.read_bytes())
    validator("results", f"configuration-{results.CONFIGURATION_VERSION}").validate(content)
    assert results.read_configuration(str(file)).schema_version == results.CONFIGURATION_VERSION
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
        rows = _printed("show", bench.meta.id)
        validate("summary", rows)
        lines = shell.here("show", bench.meta.id, "-o", "jsonl").stdout.splitlines()
        assert [json.loads(line) for line in lines] == rows
        assert "schema" not in _printed("show", bench.meta.id, "--columns", "role")[0]
    validate("comparison", _printed("compare", first.meta.id, first.meta.id))
    for words in ((), ("--vram", "2G")):
        validate("plan", _printed("plan", "--pair", "demo", *words))
    checkup = doctor.Checkup(findings=(finding.ok("a", "b"), finding.missing("c", "d", "e")), can_run=True)
    validate("doctor", json.loads(finding.render(checkup, "json")))


def test_another_shape_is_invalid() -> None:
    bench = values.whole_bench()
    results.close(bench)
    rows = _printed("show", bench.meta.id)
    schema = validator("report", schemas.schema_name("summary"))
    assert schema.is_valid(rows)
    for change in ({"new": 1}, {"role": "judge"}, {"warnings": ["drift"]}, {"schema": "summary-0"}):
        assert not schema.is_valid([{**rows[0], **change}])
    assert not schema.is_valid([{name: value for name, value in rows[0].items() if name != "status"}])


# What audits of complete texts say together, and the line that people read


EVEN, UNEVEN = (100,) * 10, (180, *(90,) * 8, 100)


def _run(role: Role, audit: TextAudit | None, *, prompt: str = "p1", repeat: int = 0) -> RunResult:
    run = values.run(role, prompt=prompt, repeat=repeat, draft=3 if role is Role.DRAFTING else None)
    return replace(run, audit=audit, sample=replace(run.sample, text=f"words of {prompt}"))


def _greedy(tokens: int, *, near_ties: int = 0, divergent: int = 0) -> TextAudit:
    return TextAudit(tokens=tokens, near_ties=near_ties, divergent=divergent)


def test_equal_texts_count_once_and_the_control_is_shown() -> None:
    own = [_run(Role.TARGET, _greedy(900)), _run(Role.TARGET, _greedy(900), repeat=1)]
    own[1] = replace(own[1], text_identical=True)
    drafting = [
        _run(Role.DRAFTING, _greedy(1000, near_ties=1)),
        _run(Role.DRAFTING, _greedy(1000, near_ties=1), repeat=1),
        _run(Role.DRAFTING, _greedy(2000, near_ties=2), prompt="p2"),
    ]
    bench = values.bench(*own, *drafting)
    summary = texts.summarize_by_role(bench.runs)[Role.DRAFTING]
    assert (summary.texts, summary.tokens, summary.near_ties, summary.divergent) == (2, 3000, 3, 0)
    assert audit_line(bench) == (
        "Text audit: drafting 3000 tokens of 2 texts, no divergence (at 95 %: below 78 % of texts; below "
        "0.100 % of tokens if they differ independently), 3 near-ties; "
        "the target alone (control) 900 tokens of 1 text, no divergence (at 95 %: below 95 % of texts; below "
        "0.34 % of tokens if they differ independently); "
        "1 of 1 repeat of the target alone wrote its first text again."
    )
    assert (audit_line(bench) or "none") in overview.overview(bench)
    rows = frames.summary(bench).set_index("role")
    assert rows.loc["drafting", "audited_tokens"] == 3000
    assert rows.loc["drafting", "divergent_texts_bound"] == pytest.approx(1 - 0.05 ** (1 / 2))
    assert rows.loc["drafting", "divergent_tokens_bound"] == pytest.approx(1 - 0.05 ** (1 / 3000))
    assert rows.loc["target", "text_identical"]
    assert frames.runs(bench)["near_tie_tokens"].tolist() == [0, 0, 1, 1, 2]


def test_divergent_tokens_and_reasons_are_shown() -> None:
    bench = values.bench(
        _run(Role.DRAFTING, _greedy(100, divergent=2)),
        _run(Role.DRAFTING, TextAudit(tokens=0, unjudged="no library"), prompt="p2"),
    )
    assert audit_line(bench) == (
        "Text audit: drafting 100 tokens of 1 text, 2 divergent (at 95 %: below 100 % of texts; below 6.2 % "
        "of tokens if they differ independently); "
        "complete texts were not judged: no library."
    )
    assert audit_line(values.bench(values.run())) is None  # an older bench


def _sampled(role: Role, places: tuple[int, ...]) -> RunResult:
    run = _run(role, TextAudit(tokens=sum(places) + 1, places=places, impossible=1))
    return replace(run, spec=replace(run.spec, sampling=Sampling(temperature=1.0, top_k=0)))


def test_sampled_texts_are_tested_together() -> None:
    bench = values.bench(_sampled(Role.DRAFTING, EVEN), _sampled(Role.TARGET, (1,) * 10))
    assert audit_line(bench) == (
        "Text audit: drafting 1001 tokens of 1 text, which follow the target's distribution (p = 1.000, "
        "1 impossible); the target alone (control) 11 tokens of 1 text, too few to test their distribution."
    )
    name = MeasurementWarning.SAMPLED_OTHERWISE.value
    assert name not in review.warnings(bench)
    other = values.bench(_sampled(Role.DRAFTING, UNEVEN))
    assert "do not follow the target's distribution (p < 0.001, 1 impossible)" in (audit_line(other) or "")
    assert "(1001 tokens)" in review.warnings(other)[name]


def test_a_bound_is_rounded_up() -> None:
    shares = [format_bound(share) for share in (0.000249, 0.00025, 0.0101, 0.123, 1.0)]
    assert shares == ["0.025 %", "0.025 %", "1.1 %", "13 %", "100 %"]
