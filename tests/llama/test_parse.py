from __future__ import annotations

import csv
import io
import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner

from ggufspec.cli import cli
from ggufspec.report.rows.runs import LogRow
from tests.support import shell

LOGS = Path(__file__).parents[1] / "logs"
TREE, PLAIN = LOGS / "0.2.63" / "tree.log", LOGS / "0.2.63" / "plain.log"


def parse(*words: str | Path) -> str:
    """Run ``ggufspec parse`` and return its standard output."""
    return shell.done("parse", *map(str, words)).stdout


def test_json_has_the_documented_keys_and_absent_is_null() -> None:
    drafting, plain = json.loads(parse(TREE, PLAIN, "-o", "json"))
    assert list(drafting) == list(LogRow.names())
    assert drafting["file"] == str(TREE)
    assert 0 <= drafting["accept_rate"] <= 1
    assert plain["accept_rate"] is None


def test_jsonl_and_csv_and_sql_say_the_same() -> None:
    [wanted] = json.loads(parse(TREE, "-o", "json"))
    assert json.loads(parse(TREE, "-o", "jsonl")) == wanted
    [row] = csv.DictReader(io.StringIO(parse(TREE, "-o", "csv")))
    assert row == {key: "" if value is None else str(value) for key, value in wanted.items()}
    with closing(sqlite3.connect(":memory:")) as base:
        base.executescript(parse(TREE, "-o", "sql"))
        assert base.execute("SELECT n_drafted, actual_ngl, status FROM logs").fetchall() == [
            (wanted["n_drafted"], None, "ok")
        ]


@pytest.mark.parametrize("program", ["simple", "server"])
def test_a_chain_shows_what_each_method_drafted(program: str) -> None:
    log = LOGS / "0.3.36" / f"{program}-ngram-mod+draft-eagle3.log"
    [row] = json.loads(parse(log, "-o", "json"))
    first, second = row["by_method"]
    assert (first["method"], second["method"]) == ("ngram-mod", "draft-eagle3")
    assert sum(counts["n_accepted"] for counts in row["by_method"]) == row["n_accepted"]
    [flat] = csv.DictReader(io.StringIO(parse(log, "-o", "csv")))
    assert flat["by_method"] == f"{first['name']}; {second['name']}"
    assert first["name"] == f"ngram-mod {first['n_accepted']}/{first['n_drafted']}"
    assert "by_method" in parse(log).splitlines()[0]
    [single] = json.loads(parse(LOGS / "0.3.36" / f"{program}-draft-eagle3.log", "-o", "json"))
    assert single["by_method"] is None


def test_standard_input_is_a_dash() -> None:
    result = CliRunner().invoke(cli, ["parse", "-", "-o", "json"], input=TREE.read_bytes())
    [row] = json.loads(result.stdout)
    assert (row["file"], row["program"]) == ("-", "speculative")


def test_foreign_files_are_named_and_do_not_hide_the_others(tmp_path: Path) -> None:
    table, foreign = tmp_path / "table.md", tmp_path / "notes.txt"
    foreign.write_text("nothing of llama.cpp\n")
    code, out, err = shell.run("parse", str(foreign), str(TREE), "--out", str(table))
    assert (code, out) == (14, "")
    assert "notes.txt" in err
    assert "| speculative" in table.read_text()
    assert shell.run("parse", "absent.log")[0] == 2


PASTES = LOGS / "pastes"


def test_every_run_of_a_paste_has_a_row_with_its_lines() -> None:
    rows = json.loads(parse(PASTES / "two-blocks.txt", TREE, "-o", "json"))
    assert [(row["lines"], row["gen_tps"]) for row in rows[:2]] == [("4-11", 2.576), ("17-24", 4.0)]
    assert rows[2]["file"] == str(TREE)


@pytest.mark.parametrize(
    ("log", "message"),
    [
        ("pastes/header-alone.txt", "header-alone"),
        ("pastes/no-figures.txt", "no-figures"),
        ("pastes/llama-bench.txt", "table of llama-bench"),
        ("pastes/thread-3649.txt", "thread-3649"),
        ("0.3.36/plain-missing-model.log", "load failed"),
    ],
)
def test_a_log_without_figures_is_code_14_and_the_others_are_printed(log: str, message: str) -> None:
    code, out, err = shell.run("parse", str(LOGS / log), str(TREE), "-o", "json")
    assert code == 14
    assert message in next(line for line in err.splitlines() if line.startswith("error: "))
    *failed, last = json.loads(out)
    assert last["file"] == str(TREE)
    assert {row["status"] for row in failed} <= {message, "summary lost"}


def test_a_note_says_from_which_lines_uncertain_figures_are() -> None:
    said = shell.done("parse", str(PASTES / "notebook.txt")).stderr
    assert "lines 43-50" in said
    assert "without figures in lines 2-18" in said


def test_columns_are_chosen() -> None:
    [row] = csv.DictReader(io.StringIO(parse(TREE, "--columns", "gen_tps, file", "-o", "csv")))
    assert list(row) == ["gen_tps", "file"]
    assert list(json.loads(parse(TREE, "--columns", "all", "-o", "json"))[0]) == list(LogRow.names())
    assert parse(TREE, "--columns", "lines").splitlines()[0].split() == ["|", "lines", "|"]
    code, _, err = shell.run("parse", str(TREE), "--columns", "speed")
    assert code == 2
    assert "gen_tps" in err
