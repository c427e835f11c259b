# ruff: noqa: E501  # tables are as they are printed
from __future__ import annotations

import io
import re
import sys
from collections.abc import Callable

import pandas as pd
import pytest

from ggufspec.domain import Program, Role, Sample, Status
from ggufspec.errors import GgufspecError
from ggufspec.llama.logs import LoggedRun
from ggufspec.options import ShowOptions
from ggufspec.options.kinds import Word
from ggufspec.report import frames
from ggufspec.report.rows.runs import LogRow
from ggufspec.report.text import formats
from ggufspec.report.text.overview import overview
from ggufspec.results import ResultSet
from tests.support import values

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
    "json": """\
[
  {
    "name": "a|b",
    "n": 1,
    "rate": 0.5,
    "ok": true,
    "warnings": [
      {
        "name": "busy-machine",
        "advice": "stop it"
      }
    ]
  },
  {
    "name": "it's",
    "n": null,
    "rate": null,
    "ok": null,
    "warnings": []
  }
]
""",
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


@pytest.mark.parametrize("name", [name for name in formats.FORMATS if name != "parquet"])
def test_every_text_format_has_its_exact_text(name: str) -> None:
    assert formats.render(FRAME, name, title="t") == EXACT[name]


def test_parquet_keeps_values_types_and_structure() -> None:
    content = formats.render(FRAME, "parquet")
    assert isinstance(content, bytes)
    read = pd.read_parquet(io.BytesIO(content))
    assert [str(kind) for kind in read.dtypes[["n", "rate"]]] == ["Int64", "float64"]
    rows = formats.records(read.drop(columns="warnings"))
    assert rows == formats.records(FRAME.drop(columns="warnings"))
    assert [list(cell) for cell in read["warnings"]] == list(FRAME["warnings"])


@pytest.mark.parametrize("table", [frames.summary, frames.runs])
def test_parquet_takes_every_table_of_a_bench(table: Callable[[ResultSet], pd.DataFrame]) -> None:
    for bench in (values.whole_bench(), values.bench()):
        frame = table(bench)
        content = formats.render(frame, "parquet")
        assert isinstance(content, bytes)
        read = pd.read_parquet(io.BytesIO(content))
        assert list(read.columns) == list(frame.columns)
        assert len(read) == len(frame)


def test_parquet_without_its_library_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(GgufspecError, match="pyarrow, which is not installed") as caught:
        formats.render(FRAME, "parquet")
    assert caught.value.hint == "pip install pyarrow"


def test_tables_leave_out_what_nobody_says_and_print_rates_in_per_cent() -> None:
    frame = pd.DataFrame({"file": ["a", "b"], "accept_rate": [0.7078, None], "build": [None, None]})
    assert (
        formats.render(frame, "md")
        == """\
| file   |   accept_rate |
|--------|--------------:|
| a      |        70.8 % |
| b      |               |
"""
    )


def test_no_table_for_people_has_scientific_notation() -> None:
    small = [0.000023, 0.5, 1e-9]
    frame = pd.DataFrame({"gen_tps": [10680.4, 1068.4, 0.5], "margin_nats": small, "p_value": small})
    rows = [line.split("|")[1:4] for line in formats.render(frame, "md").splitlines()[2:]]
    assert [[cell.strip() for cell in row] for row in rows] == [
        ["10,680", "0.000023", "< 0.001"],
        ["1068", "0.5", "0.500"],
        ["0.500", "0.000000001", "< 0.001"],
    ]
    assert "e-09" in formats.render(frame, "csv")  # programs read either


def test_the_command_line_offers_exactly_these_formats() -> None:
    kind = ShowOptions.options["output"].kind
    assert isinstance(kind, Word)
    assert tuple(formats.FORMATS) == tuple(kind.words)


def test_overview_of_a_whole_bench() -> None:
    bench = values.whole_bench()
    text = overview(bench).replace(str(bench.folder), "FOLDER").replace(bench.meta.id, "ID")
    assert (
        text
        == """\
Engine: binary (llama.cpp's own programs, `speculative` to draft; a new process for every run).

|          | model                      | GPU layers   |   γ |                tokens/s |   accepted |             speed-up | verdict   |   text unchanged |
|----------|----------------------------|--------------|----:|------------------------:|-----------:|---------------------:|-----------|-----------------:|
| target   | target.gguf                | 0            |     | 49.23 [needs more runs] |            |                      |           |                  |
| drafter  | drafter.gguf               | 0            |     |                   900.0 |            |                      |           |                  |
| drafting | target.gguf + drafter.gguf | 0 + 0        |   3 | 73.85 [needs more runs] |     75.0 % | 1.50× [1.50×, 1.50×] | faster    |           2 of 2 |

2 prompts × 2 repeats, 32 tokens each, 2 threads, greedy; llama.cpp b11312 (0c1e570; llama-cpp-python 0.3.36), cpu; A Processor.
Tokens/s: geometric mean over the cells (prompt, repeat) that all arms have, of tokens decoded after the prompt per second; [95 % interval over prompts and loads].
Stored as ID: `ggufspec show ID` prints this again, raw logs are in FOLDER/logs
"""
    )


def test_overview_shows_failures_and_warnings_and_hides_empty_columns() -> None:
    text = overview(
        values.bench(
            values.run(), values.run(repeat=1, status=Status.CRASHED), doubts={"few-repeats": "more"}
        )
    )
    header, _, row = text.splitlines()[2:5]
    assert "accepted" not in header
    assert "partial" in row
    assert re.search(r"^warning few-repeats: more$", text, re.MULTILINE)
    assert re.search(r"^warning runs-failed: .*\(1 of 2 runs\)$", text, re.MULTILINE)


def test_overview_of_nothing() -> None:
    assert overview(values.bench()) == "Nothing was measured.\n"


def test_logs_table_has_the_documented_keys() -> None:
    sample = Sample(status=Status.OK, program=Program.TREE, gen_tokens=254, n_drafted=243, n_accepted=172)
    (row,) = formats.records(frames.logs([LoggedRun("old.log", sample)]))
    assert (row["file"], row["program"], row["status"], row["load_ms"]) == (
        "old.log",
        "speculative",
        "ok",
        None,
    )
    assert row["accept_rate"] == pytest.approx(172 / 243)
    assert tuple(row) == LogRow.names()
    assert values.run(Role.DRAFTER).sample.accept_rate is None
