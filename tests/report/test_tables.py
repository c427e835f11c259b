"""Tables on a terminal, the columns that people see, and where rows come from."""

from __future__ import annotations

import io
import json
import re
from dataclasses import replace
from importlib import metadata
from types import SimpleNamespace

import pytest
from rich.cells import cell_len

from ggufspec import results, units
from ggufspec.domain import Build, Estimate, Role, Round, RunResult, Status
from ggufspec.llama.install import releases
from ggufspec.report import frames
from ggufspec.report.columns import MOST, Row, TableLayout, column, shown
from ggufspec.report.text import overview, tables
from tests.support import shell, values

HEADINGS = (
    *("", "model", "GPU layers", "γ", "tokens/s", "accepted", "tokens/round", "speed-up", "verdict"),
    "text unchanged",
)
TARGET, DRAFTER = "Meta-Llama-3-70B-Instruct-Q3_K_S.gguf", "[bold]漢字-3.2-1B.gguf"
ROWS = (
    ("target", TARGET, "45/81", "", "227.1 [214.1, 240.9]", *[""] * 5),
    ("drafter", DRAFTER, "17/17", "", "10,680 [8,471, 14,389]", *[""] * 5),
    (
        *("drafting", f"{TARGET} + {DRAFTER}", "45/81 + 17/17", "3", "292.6 [259.9, 329.5]", "96.8 %"),
        *("3.90", "1.29× [1.10×, 1.51×]", "faster", "4 of 4"),
    ),
)
NUMBERS = (
    *("227.1", "[214.1, 240.9]", "10,680", "[8,471, 14,389]", "96.8 %", "3.90", "1.29×", "[1.10×, 1.51×]"),
    "4 of 4",
)


def _terminal(monkeypatch: pytest.MonkeyPatch, width: int) -> str:
    monkeypatch.setenv("COLUMNS", str(width))
    return tables.grid(HEADINGS, ROWS, "table", labels=("", "γ"))


def test_every_part_of_a_table_tells_its_rows_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    headings = ("", "model", "γ", "tokens/s", "text unchanged")
    rows = [
        ("drafting", name, "3", "50.00 [49.00, 51.00]", "no divergence in 8 texts")
        for name in ("small.gguf", "head.gguf")
    ]
    text = tables.grid(headings, rows, tables.TERMINAL, labels=("", "γ"))
    assert text.count("small.gguf") == text.count("head.gguf") == text.count(" γ ") > 1
    alike = [(row[0], "one.gguf", gamma, *row[3:]) for row, gamma in zip(rows, "38", strict=True)]
    assert tables.grid(headings, alike, tables.TERMINAL, labels=("", "γ")).count("one.gguf") == 2


@pytest.mark.parametrize("width", [60, 80, 120, 200])
def test_a_table_fits_the_terminal_and_breaks_no_number(monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    text = _terminal(monkeypatch, width)
    assert max(map(cell_len, text.splitlines())) <= width
    assert not [number for number in NUMBERS if number not in text]
    assert "…" not in text


def test_terminals_are_wide_or_narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    head, rule, *rows = _terminal(monkeypatch, 200).splitlines()
    assert set(rule) == {"─"}
    assert head.split()[-2:] == ["text", "unchanged"]
    assert [row.split()[0] for row in rows] == ["target", "drafter", "drafting"]
    assert head.index("tokens/s") + len("tokens/s") == rows[0].index("240.9]") + len("240.9]")
    monkeypatch.setenv("COLUMNS", "30")
    pairs = [["llama-3.3-70b", "12.5"], ["qwen3-32b", "31.0"]]
    *heads, first, last = tables.grid(["pair", "estimated tokens/s"], pairs, "table").splitlines()
    assert len(heads) > 2  # the rule, and more than one line of headings
    assert [first.split(), last.split()] == pairs


class Terminal(io.StringIO):
    """Standard output that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def test_sentences_fit_the_terminal_and_commands_stay_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    sentence = "Stored as 2026: `ggufspec show 2026` prints this again, raw logs are beside it."
    command = "    llama-server -m a-model-with-a-long-name.gguf --port 8080"
    *lines, last = tables.fit_terminal(f"{sentence}\n{command}", Terminal()).splitlines()
    assert lines == ["Stored as 2026: `ggufspec show 2026`", "prints this again, raw logs are beside", "it."]
    assert last == command
    assert tables.wrap_words("The text was audited, none below 95 % differed.", 35).splitlines()[1] == (
        "95 % differed."
    )
    assert tables.fit_terminal(sentence, io.StringIO()) == tables.fit_terminal(sentence, None) == sentence


def test_names_of_strangers_are_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    text = tables.grid(["name"], [["[red]a[/red]\x1b[31m\nb"]], "table")
    assert text.splitlines()[-1] == "[red]a[/red]\N{REPLACEMENT CHARACTER}[31m b"


def test_a_terminal_of_ascii_gets_ascii_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    assert tables.grid(["name", "n"], [["a", "10,680"]], "table") == (
        "name       n\n------------\na     10,680"
    )


@pytest.mark.parametrize("command", ["pairs", "cache"])
def test_commands_that_list_fit_the_terminal(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    head, *rows = shell.here(command).stdout.splitlines()  # elsewhere each row has one line
    monkeypatch.setattr("io.StringIO", Terminal)
    lines = shell.here(command).stdout.splitlines()
    assert lines[0].split()[0] == head.split()[0]
    assert all(cell_len(line) <= 80 for line in lines)
    assert set(lines[1]) < {"─", "-"}
    assert not set(rows[0]) < {"─", "-"}
    assert {row.split()[0] for row in rows} <= set(" ".join(lines).split())


def test_the_verdict_comes_first_on_a_terminal_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    bench = values.whole_bench()
    text = overview.overview(bench, "table")
    assert text.startswith("Drafting with drafter.gguf at γ = 3 is faster: ")
    assert "\n\nEngine: binary" in text
    assert overview.overview(bench).startswith("Engine: binary")


def test_the_least_important_columns_are_left_out_first() -> None:
    names = tuple(f"setting_{number}" for number in range(11))
    row = type("ManyRow", (Row,), {"__annotations__": dict.fromkeys(names, "str")})
    layout = TableLayout(row=row, names=names, first_left_out=("setting_9", "setting_3"))
    filled = layout.fill([dict.fromkeys(names, "x")])
    assert [column.name for column in filled.columns] == [name for name in names if name != "setting_9"]
    assert filled.n_left_out == 1
    assert len(layout.without("setting_0").fill([dict.fromkeys(names, "x")]).columns) == 10


@pytest.mark.parametrize("per", ["prompt", "run"])
def test_people_see_ten_columns_and_how_to_see_all(per: str) -> None:
    bench = values.whole_bench().meta.id
    few = shell.here("show", bench, "--per", per).stdout
    names = few.splitlines()[2].strip("|").split("|")
    assert len(names) == len({*names}) <= MOST
    hint = re.search(r"(\d+) columns are hidden: `ggufspec (show .* --columns all)` shows all", few)
    assert hint
    every = shell.here(*hint[2].split()).stdout
    assert "hidden" not in every
    assert len(every.splitlines()[2].strip("|").split("|")) == len(names) + int(hint[1])


def test_people_see_runs_in_the_order_of_arms_and_programs_in_that_of_time() -> None:
    bench = values.whole_bench()
    runs = frames.runs(bench)
    ordered = frames.sort_by_arm(runs, bench)
    assert list(dict.fromkeys(ordered["role"])) == ["target", "drafter", "drafting"]
    assert sorted(ordered["log"]) == sorted(runs["log"])
    rows = shell.here("show", "--runs").stdout.splitlines()[4:-2]
    assert [row.split()[1] for row in rows] == list(ordered["role"])
    told = json.loads(shell.here("show", "--runs", "-o", "json").stdout)
    assert [row["role"] for row in told] == list(runs["role"]) != list(ordered["role"])


def test_rows_for_programs_say_where_they_come_from() -> None:
    bench = values.bench(values.run(), values.run(Role.DRAFTING, draft=3))
    origin = frames.origin(bench.meta)
    assert origin == {
        "bench": bench.meta.id,
        "date": bench.meta.started_at,
        "processor": "A Processor",
        "gpus": [],
        "ggufspec_version": metadata.version("ggufspec"),
        "llama_version": "b11312",
        "llama_commit": "0c1e570",
        "llama_cpp_python": "0.3.36",
    }
    for per in ("arm", "prompt", "run"):
        rows = json.loads(shell.here("show", "--per", per, "-o", "json").stdout)
        assert all(origin.items() <= row.items() for row in rows)
    assert "processor" not in shell.here("show", "-o", "csv").stdout


VERSIONS = [
    ("b9102", "e1a2b3c4d5e6", "b9102 (e1a2b3c4d)"),
    ("0.3.23", "e1a2b3c4d5e6", "b9102 (e1a2b3c4d; llama-cpp-python 0.3.23)"),
    ("0.3.36", None, "b11312 (llama-cpp-python 0.3.36)"),
    ("0.3.99", "0c1e57098bba", "0c1e57098 (llama-cpp-python 0.3.99)"),
    ("0.3.99", None, "of unknown version (llama-cpp-python 0.3.99)"),
    ("e1a2b3c", "e1a2b3c4d5e6", "e1a2b3c4d"),
    (None, None, "of unknown version"),
]


@pytest.mark.parametrize(("version", "commit", "text"), VERSIONS)
def test_a_version_has_the_package_beside_it(version: str | None, commit: str | None, text: str) -> None:
    build = Build(version=version, commit=commit, backend="cpu", path="/opt/llama.cpp")
    assert str(releases.identify(build)) == text


# Tables that have nothing to show say why, and which command would record it


def _bench(*runs: RunResult, engine: str = "binary") -> None:
    stored = results.create(replace(values.META, engine=engine, command=("test",)), "b")
    for run in runs:
        stored = results.append(stored, run)
    results.close(stored)


ROUNDS = {"position": "draft positions", "round": "rounds"}
RECORDS_THEM = {"binary": "server", "binary-simple": "server", "server": "inprocess", "inprocess": None}


@pytest.mark.parametrize(("engine", "other"), RECORDS_THEM.items())
def test_what_an_engine_hides_names_one_that_tells(engine: str, other: str | None) -> None:
    _bench(values.run(), values.run(Role.DRAFTING, draft=3), engine=engine)
    for per, what in ROUNDS.items():
        done = shell.done("show", "--per", per)
        assert done.stdout == ""
        how = f": `ggufspec bench --engine {other}` records them" if other else ""
        assert done.stderr == f"b has no {what}, because the engine {engine} did not report them{how}\n"


def test_what_was_recorded_is_shown_without_a_word() -> None:
    run = values.run(Role.DRAFTING, draft=3, drafted=4, accepted=3)
    counts = replace(run.sample, rounds=(Round(2, 2), Round(2, 1)), n_rounds=2, accepted_at=(2, 1))
    _bench(values.run(), replace(run, sample=counts), engine="server")
    for per in ROUNDS:
        done = shell.done("show", "--per", per)
        assert done.stderr == ""
        *table, empty, note = done.stdout.splitlines()
        assert (len(table), empty) == (2 + 2 + 2, "")
        assert note.endswith(f": `ggufspec show b --per {per} --columns all` shows all of them.")


NOTHING = {
    "position": "no arm of b drafts, so it has no draft positions: give a drafter with -md FILE",
    "round": "no arm of b drafts, so it has no rounds: give a drafter with -md FILE",
    "category": "no prompt of b has a category: the prompts of `ggufspec bench --suite domains`",
    "turn": "no prompt of b is a conversation: some of `ggufspec bench --suite domains` are",
    "segment": "b has no segments, because it was not recorded in which round each token was sent",
}


@pytest.mark.parametrize("output", ["md", "csv", "json", "jsonl"])
def test_a_target_alone_on_one_prompt_has_no_detail(output: str) -> None:
    _bench(values.run(), values.run(repeat=1))
    for per, said in NOTHING.items():
        done = shell.done("show", "--per", per, "-o", output)
        assert done.stderr.startswith(said)
        if output == "md":
            assert done.stdout == ""
        if output == "json":
            assert len(json.loads(done.stdout)) == (1 if per == "category" else 0)


@pytest.mark.parametrize(
    ("runs", "said"),
    [
        (
            [values.run(status=Status.CRASHED)],
            "no run of b succeeded: `ggufspec show b --runs` shows how each",
        ),
        ([], "b has no runs: `ggufspec bench` measures some"),
    ],
)
def test_benches_without_good_runs_are_named(runs: list[RunResult], said: str) -> None:
    _bench(*runs)
    for per in ("prompt", *NOTHING):
        done = shell.done("show", "--per", per)
        assert done.stdout == ""
        assert done.stderr.startswith(said)
    assert ("crashed" in shell.here("show", "b", "--runs").stdout) is bool(runs)
    assert (shell.here("show").stdout == "Nothing was measured.\n") is not bool(runs)


def test_no_stored_costs_say_what_measures_them() -> None:
    done = shell.done("whatif", "--profile", "list")
    assert done.stdout == ""
    assert done.stderr == "no profile of a pair is stored yet; `ggufspec tune` measures one\n"
    last = shell.here("whatif", "--profile", "last", "--accept", "0.7")
    assert last.returncode == 2
    assert "`ggufspec tune` measures one" in last.stderr


# A declared field is a column of frames, of JSON and of tables for people


class SizeRow(Row):
    """How large a file is."""

    size: int | None = column("bytes", of="size_bytes", help="Of the file.")
    name: str = shown("file", of=lambda file: file.path.upper())


class SpeedOfFileRow(Row):
    """How fast a file is read."""

    file: SizeRow
    rate: Estimate | None = column("tokens/s", units.format_rate, of="speed.rate")
    note: str | None
    others: list[SizeRow]


FAST = SimpleNamespace(
    file=SimpleNamespace(size_bytes=3, path="a"),
    speed=SimpleNamespace(rate=Estimate(value=74.0, lo=73.1, hi=74.9)),
    note="ok",
    others=(SimpleNamespace(size_bytes=4, path="b"),),
)
ABSENT = {"file": None, "speed": None, "note": "slow", "others": ()}


def test_values_become_columns_and_objects() -> None:
    assert SpeedOfFileRow.names() == ("size", "rate", "rate_lo", "rate_hi", "note", "others")
    values = SpeedOfFileRow.record(FAST)
    assert [values[name] for name in ("size", "rate", "rate_lo", "rate_hi")] == [3, 74.0, 73.1, 74.9]
    assert SpeedOfFileRow.description == "How fast a file is read.\n\nHow large a file is."
    values = SpeedOfFileRow.record(ABSENT)
    assert [values[name] for name in ("size", "rate", "rate_lo", "rate_hi")] == [None] * 4
    assert SpeedOfFileRow.columns["name"].text(ABSENT) == ""
    assert SpeedOfFileRow.to_json(FAST) == {
        "size": 3,
        "rate": {"value": 74.0, "lo": 73.1, "hi": 74.9, "assumed_spread": None},
        "note": "ok",
        "others": [{"size": 4}],
    }


def test_a_table_has_the_named_columns_that_tell_something() -> None:
    layout = TableLayout(row=SpeedOfFileRow, names=("name", "rate", "note", "size"), if_varied=("size",))
    filled = layout.fill([FAST, ABSENT])
    assert [shown.head for shown in filled.columns] == ["file", "tokens/s", "note"]
    assert [cell.text for cell in filled.rows[0]] == ["A", "74.00 [73.10, 74.90]", "ok"]
    assert [cell.key for cell in filled.rows[1]] == [None, None, "slow"]
    assert tables.render(filled, "md").splitlines()[2] == "| A      | 74.00 [73.10, 74.90] | ok     |"
    same = layout.fill([FAST, FAST])
    assert [shown.head for shown in same.columns] == ["file", "tokens/s"]  # ok alone says nothing


def test_a_setting_without_a_text_is_its_default_which_differs_from_a_text_in_rows_of_one_kind() -> None:
    layout = TableLayout(
        row=SpeedOfFileRow,
        names=("name", "note"),
        if_varied=("note",),
        blank_is_default=("note",),
        kind="name",
    )
    (other,) = FAST.others
    blank, elsewhere = (
        SimpleNamespace(file=file, speed=FAST.speed, note="", others=()) for file in (FAST.file, other)
    )
    for items, heads in (((FAST, blank), ["file", "note"]), ((FAST, elsewhere), ["file"])):
        slow = [SimpleNamespace(**{**vars(item), "note": item.note and "slow"}) for item in items]
        assert [column.head for column in layout.fill(slow).columns] == heads
