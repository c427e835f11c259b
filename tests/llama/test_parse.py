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
from ggufspec.errors import LogError
from ggufspec.report.rows.runs import LogRow

LOGS = Path(__file__).parents[1] / "logs"
TREE, PLAIN = LOGS / "0.2.63" / "tree.log", LOGS / "0.2.63" / "plain.log"


def parse(*words: str | Path, stdin: bytes | None = None) -> str:
    """Run ``ggufspec parse`` and return its standard output; errors are raised."""
    result = CliRunner().invoke(cli, ["parse", *map(str, words)], input=stdin, catch_exceptions=False)
    assert result.exit_code == 0, result.stderr
    return result.stdout


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
    [row] = json.loads(parse("-", "-o", "json", stdin=TREE.read_bytes()))
    assert (row["file"], row["program"]) == ("-", "speculative")


def test_a_table_is_written_to_a_file(tmp_path: Path) -> None:
    assert parse(TREE, "--out", tmp_path / "table.md") == ""
    assert "| speculative" in (tmp_path / "table.md").read_text()


def test_foreign_files_are_named_and_do_not_hide_the_others(tmp_path: Path) -> None:
    foreign = tmp_path / "notes.txt"
    foreign.write_text("nothing of llama.cpp\n")
    with pytest.raises(LogError, match=r"notes\.txt"):
        parse(foreign, TREE, "--out", tmp_path / "table.md")
    assert "| speculative" in (tmp_path / "table.md").read_text()


def test_a_missing_file_is_a_wrong_command_line() -> None:
    assert CliRunner().invoke(cli, ["parse", "absent.log"]).exit_code == 2


PASTES = LOGS / "pastes"


def test_every_run_of_a_paste_has_a_row_with_its_lines() -> None:
    rows = json.loads(parse(PASTES / "two-blocks.txt", TREE, "-o", "json"))
    assert [(row["lines"], row["gen_tps"]) for row in rows[:2]] == [("4-11", 2.576), ("17-24", 4.0)]
    assert rows[2]["file"] == str(TREE)


@pytest.mark.parametrize("paste", ["header-alone", "no-figures", "llama-bench", "thread-3649"])
def test_a_log_without_figures_is_code_14_and_the_others_are_printed(paste: str) -> None:
    words = ["parse", str(PASTES / f"{paste}.txt"), str(TREE), "-o", "json"]
    result = CliRunner().invoke(cli, words)
    assert isinstance(result.exception, LogError)
    assert result.exception.exit_code == 14
    assert paste in result.exception.message
    assert json.loads(result.stdout)[-1]["file"] == str(TREE)


def test_a_table_of_llama_bench_is_named() -> None:
    with pytest.raises(LogError, match="table of llama-bench"):
        parse(PASTES / "llama-bench.txt")


def test_a_failed_run_is_code_14_with_its_status() -> None:
    log = LOGS / "0.3.36" / "plain-missing-model.log"
    result = CliRunner().invoke(cli, ["parse", str(log), "-o", "json"])
    assert isinstance(result.exception, LogError)
    assert "load failed" in result.exception.message
    assert json.loads(result.stdout)[0]["status"] == "load failed"


def test_a_note_says_from_which_lines_uncertain_figures_are() -> None:
    result = CliRunner().invoke(cli, ["parse", str(PASTES / "notebook.txt")])
    assert result.exit_code == 0
    assert "lines 43-50" in result.stderr
    assert "without figures in lines 2-18" in result.stderr


def test_columns_are_chosen() -> None:
    [row] = csv.DictReader(io.StringIO(parse(TREE, "--columns", "gen_tps, file", "-o", "csv")))
    assert list(row) == ["gen_tps", "file"]
    assert list(json.loads(parse(TREE, "--columns", "all", "-o", "json"))[0]) == list(LogRow.names())
    assert parse(TREE, "--columns", "lines").splitlines()[0].split() == ["|", "lines", "|"]
    result = CliRunner().invoke(cli, ["parse", str(TREE), "--columns", "speed"])
    assert result.exit_code == 2
    assert "gen_tps" in result.stderr
