"""What strangers wrote (names, prompts, ids, logs) can neither take over a terminal nor leave its place."""

from __future__ import annotations

import ast
import csv
import io
import json
import os
import shlex
import sqlite3
import subprocess
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from xml.dom import minidom

import pandas as pd
import pytest

from ggufspec import paths, results
from ggufspec.analysis import arms
from ggufspec.domain import FileIdentity, FileUse
from ggufspec.harmless import harmless, markdown, one_line, to_json
from ggufspec.publishing import derived
from ggufspec.report import frames
from ggufspec.report.html.notebook import notebook_html
from ggufspec.report.html.sections import html
from ggufspec.report.text import formats, overview
from ggufspec.results import ResultSet
from tests.support import damage, fakes, hub_client, published, shell, values
from tests.support.hub_server import Hub
from tests.support.swept import swept

PACKAGE = Path(__file__).parents[2] / "ggufspec"
ATTACKS = {
    "colour": "\x1b[31m",
    "title": "\x1b]0;owned\x07",
    "one byte": "\x9b31m",
    "direction": "\u202e",
    "isolate": "\u2066",
    "carriage return": "\r",
    "backspace": "\b",
}
EVIL = f"=cmd{''.join(ATTACKS.values())}|end\nStored as trusted"
FORBIDDEN = tuple("".join(ATTACKS.values()).replace("[31m", "").replace("]0;owned", "").replace("31m", ""))


@pytest.fixture
def bench() -> str:
    """The folder of a bench in which every name is meant to do harm, its own id included."""
    stored = swept(f"{EVIL}.gguf", "other.gguf", target=f"{EVIL}-target.gguf", tag=EVIL)
    meta, runs, name = stored.folder / "meta.json", stored.folder / "runs.jsonl", f"../../{EVIL}/escaped"
    damage.reseal_meta(meta, json.dumps(json.loads(meta.read_text()) | {"id": name}).encode())
    damage.reseal_runs(runs, runs.read_bytes(), name)
    return str(stored.folder)


def _clean(text: str) -> bool:
    return not any(letter in text for letter in FORBIDDEN)


@pytest.mark.parametrize("per", ["arm", "prompt", "category", "run", "position", "round"])
@pytest.mark.parametrize("output", ["md", "csv", "json", "jsonl", "sql"])
def test_no_table_of_a_stranger_holds_a_control_character(bench: str, per: str, output: str) -> None:
    done = shell.done("show", bench, "--per", per, "-o", output)
    assert "cmd" in done.stdout
    assert _clean(done.stdout + done.stderr)


@pytest.mark.usefixtures("llama")
@pytest.mark.parametrize(
    "words", [("compare", "BENCH", "BENCH"), ("show", "BENCH", "--plot"), ("bench", "--resume", "BENCH")]
)
def test_no_command_passes_control_characters_on(bench: str, words: tuple[str, ...]) -> None:
    extra = ("--pair", "demo", "-p", "Hi") if words[0] == "bench" else ()
    done = shell.here(*(bench if word == "BENCH" else word for word in words), *extra)
    assert done.stdout + done.stderr
    assert _clean(done.stdout + done.stderr)


def test_a_name_ends_neither_its_cell_nor_its_line(bench: str) -> None:
    lines = shell.here("show", bench).stdout.splitlines()
    rows = [line for line in lines if line.startswith("|")]
    assert len(rows) == 2 + len(frames.summary(results.load(bench)))
    assert len({line.replace("\\|", "").count("|") for line in rows}) == 1


def test_control_characters_are_not_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    name = "run\x1b]0;owned\x07\x9b1m\u202e.log"
    Path(name).write_text("no log of llama.cpp\n")
    for words in (("parse", name), ("parse", f"{name}x"), ("show", name), ("bench", "--engine", name)):
        done = shell.here(*words)
        assert done.returncode != 0
        assert "run" in done.stderr
        assert _clean(done.stdout + done.stderr)


def test_json_and_sql_keep_every_character() -> None:
    frame = pd.DataFrame({"name": [EVIL], "n": [1]})
    assert json.loads(formats.render(frame, "json"))[0]["name"] == EVIL
    assert json.loads(formats.render(frame, "jsonl"))["name"] == EVIL
    with closing(sqlite3.connect(":memory:")) as database:
        database.executescript(str(formats.render(frame, "sql", title="t")))
        assert database.execute("SELECT name FROM t").fetchall() == [(EVIL,)]
    assert json.loads(to_json({"a": ["\ud800", "\u2028"]})) == {"a": ["\ud800", "\u2028"]}


@pytest.mark.parametrize("opening", ["=", "+", "-", "@", "\t", "\r", "\n", " =", "＝", "＋", "－", "＠"])
def test_no_text_in_csv_is_a_formula(opening: str) -> None:
    frame = pd.DataFrame({"name": [f"{opening}1+1"], "list": [[f"{opening}1"]], "n": [-1], "x": [-0.5]})
    (row,) = csv.DictReader(io.StringIO(str(formats.render(frame, "csv"))))
    assert row["name"].startswith(f"'{opening[:1].replace(chr(13), chr(0xFFFD))}")
    assert row["list"].startswith("'")
    assert (row["n"], row["x"]) == ("-1", "-0.5")


def test_csv_of_a_stranger_has_no_formula_and_numbers_stay_numbers(bench: str) -> None:
    rows = list(csv.DictReader(io.StringIO(shell.here("show", bench, "-o", "csv").stdout)))
    assert all(row["target"] in {"", f"'{harmless(EVIL)}-target.gguf"} for row in rows)
    assert all(float(row["gen_tps"]) > 0 for row in rows)
    assert not [cell for row in rows for cell in row.values() if cell.startswith(("=", "+", "@", "\t"))]


@pytest.mark.parametrize(("form", "several"), [("svg", True), ("png", False)])
def test_pictures_stay_in_their_folder(bench: str, tmp_path: Path, form: str, several: bool) -> None:
    place = tmp_path / "a" / "b" / "pictures"
    before = {path for path in tmp_path.rglob("*") if paths.data_dir() not in path.parents}
    done = shell.done("report", bench, *((bench,) if several else ()), "-o", form, "--out", str(place))
    assert _clean(done.stderr)
    new = {path for path in tmp_path.rglob("*") if paths.data_dir() not in path.parents} - before
    assert {path for path in new if path.is_file()} == set(place.iterdir())
    assert len(set(place.iterdir())) == (2 if several else 1) * 6
    for drawing in place.glob("*.svg"):
        page = minidom.parseString(drawing.read_bytes())  # our own drawing
        assert not page.getElementsByTagName("script")
        assert _clean(drawing.read_text(encoding="utf-8"))


def test_pages_hold_no_control_character(bench: str) -> None:
    stored = results.load(bench)
    for page in (notebook_html(stored), html([stored, stored]).split("<script>")[0]):
        assert "cmd" in page
        assert _clean(page)


def test_a_dry_run_can_be_pasted_and_shows_no_control_character(tmp_path: Path) -> None:
    llama = fakes.install(tmp_path / "llama", plain='for word; do last=$word; done\nprintf %s "$last"\n')
    prompt = "it's \x1b[31m red \x9b \u202e \\x41 'quoted'"
    done = shell.done("bench", "--pair", "demo", "-p", prompt, "-n", "8", "--dry-run", "--llama", str(llama))
    assert _clean(done.stdout)
    line = done.stdout.splitlines()[0]
    words = line[line.index("$'") :]
    shown = subprocess.run(
        ["bash", "-c", f"printf %s {words[: words.rindex(' </dev/null')]}"], capture_output=True, check=True
    )
    assert prompt.encode() in shown.stdout


def test_what_is_harmless_stays() -> None:
    text = "γ = 3\tüber\n漢字 🙂 \u200d\u2028"
    assert harmless(text) == text
    assert one_line(text) == text.replace("\t", " ").replace("\n", " ")
    assert shlex.quote(one_line(EVIL)).isprintable()


def test_commands_print_in_one_place_only() -> None:
    """Everything else of the command line prints through ``entry/output.py``, so that nothing escapes it."""
    found = [
        f"{path.name}:{node.lineno}"
        for path in (PACKAGE / "cli").rglob("*.py")
        if path.parent.name + "/" + path.name not in {"entry/output.py", "entry/tables.py"}
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call)
        and ast.unparse(node.func) in {"click.echo", "click.secho", "print", "sys.stdout.write"}
    ]
    assert not found


# File names are bytes: a model whose path is not UTF-8 is refused in one line, before anything runs


BYTES = os.fsdecode(b"caf\xe9")
DEMO = paths.models_dir() / "demo"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder whose name is not UTF-8, with a pair in it."""
    place = tmp_path / BYTES
    try:
        place.mkdir()
    except OSError:
        pytest.skip("this file system takes no other names than Unicode")
    for name in ("target", "drafter"):
        (place / f"{name}.gguf").symlink_to(DEMO / f"{name}.gguf")
    return place


def commands(target: str, drafter: str) -> Sequence[Sequence[str]]:
    pair = ("-m", target, "-md", drafter)
    return (
        ("check", target, drafter),
        ("check", target, drafter, "-o", "json"),
        ("plan", *pair, "-o", "json"),
        ("bench", *pair),
        ("bench", *pair, "--dry-run"),
        ("sweep", *pair, "--dry-run"),
        ("tune", *pair),
        ("chat", *pair, "--once", "Hello"),
        ("whatif", *pair, "--machine", "h100", "--accept", "0.7"),
        ("suggest", target, "--offline", "-o", "json"),
        ("fetch", "--target", target, "--draft-model", drafter),
        ("fetch", target),
    )


@pytest.mark.usefixtures("llama")
def test_such_a_model_path_is_refused(folder: Path, tmp_path: Path) -> None:
    for words in commands(str(folder / "target.gguf"), str(folder / "drafter.gguf")):
        done = shell.here(*words)
        assert (done.returncode, done.stdout) == (6, "")
        assert done.stderr == (
            f"error: the path {tmp_path}/caf\\xe9/target.gguf is not valid UTF-8\n"
            "hint: rename the file or the folder, or use a symbolic link\n"
        )


def test_a_link_with_another_name_is_used(folder: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(folder)
    done = shell.ggufspec("check", str(link / "target.gguf"), str(link / "drafter.gguf"))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("accepted")


def test_a_relative_path_in_such_a_folder_is_not_stored(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    done = shell.ggufspec("bench", "-m", "target.gguf", llama=fakes.install(tmp_path / "llama"))
    assert (done.returncode, done.stdout) == (6, "")
    assert "caf\\xe9/target.gguf is not valid UTF-8" in done.stderr


def test_nothing_is_downloaded_into_such_a_folder(hub: Hub, folder: Path, home: Path) -> None:
    env = hub_client.environment(hub, home)
    for words, place in ((("--local-dir", str(folder)), {}), ((), {"HF_HOME": str(folder)})):
        done = shell.ggufspec("fetch", "me/D-GGUF", *words, env=env | place)
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 2)
        assert "caf\\xe9" in done.stderr
        assert hub.content_requests() == []


@pytest.mark.parametrize("words", [("pairs", "mine"), ("pairs", "mine", "-o", "json"), ("pairs",)])
def test_a_catalogue_in_such_a_folder_is_listed(folder: Path, words: tuple[str, ...]) -> None:
    (folder / "pairs.toml").write_text('[pairs.mine]\ntarget = { path = "target.gguf" }\n')
    done = shell.ggufspec(*words, env={"GGUFSPEC_CONFIG": str(folder)})
    assert done.returncode == 0
    if "json" in words:
        assert json.loads(done.stdout)[0]["listed_in"] == str(folder / "pairs.toml")
    assert "mine" in done.stdout


# Names of strangers in Markdown: neither HTML nor links, wherever a table or a text is written


NAMES = ("<svg onload=alert(1)>.gguf", "`<img src=x>.gguf", "[x](evil:y).gguf", "![](evil).gguf")
WRITERS: dict[str, Callable[[ResultSet], str]] = {
    "table": lambda bench: overview.arm_table(arms.group(bench), "md")[0],
    "overview": lambda bench: markdown(overview.overview(bench)),
    "frame": lambda bench: str(formats.render(frames.runs(bench), "md")),
    "methods": lambda bench: markdown(derived.methods([bench], "1.0")),
}


def _bench(name: str) -> ResultSet:
    renamed = []
    for run in values.grid({None: 50.0, 3: 50.0}, prompts=1, repeats=1):
        pair = run.spec.pair
        spec = replace(run.spec, pair=replace(pair, target=replace(pair.target, filename=name)))
        renamed.append(replace(run, spec=spec))
    bench = values.bench(*renamed)
    identity = FileIdentity(path=f"/models/{name}", use=FileUse.MODEL, sha256="a" * 64, size_bytes=1)
    return replace(bench, meta=replace(bench.meta, files=(identity,)))


@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize("name", NAMES)
def test_a_name_is_neither_html_nor_a_link(name: str, writer: str) -> None:
    text = WRITERS[writer](_bench(name))
    assert "gguf" in text
    for part in ("<svg", "<img", "x](evil", "![](evil"):
        assert part not in text
    assert markdown(text) == text


def test_the_files_of_a_bundle_are_escaped(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = _bench(NAMES[0])
    monkeypatch.setattr("ggufspec.report.plot.drawn", lambda bench: {})
    monkeypatch.setattr("ggufspec.report.html.sections.html", lambda *_, **__: "")
    files = derived.derive_files([bench], published.facts(bench.meta.id, with_charts=True))
    for name, content in files.items():
        if name.endswith(".md"):
            assert b"<svg" not in content, name
    assert files["README.md"].startswith(b"---\ntags: [")


@pytest.mark.parametrize("text", ["< 0.1 %", "1.2× [1.1, 1.3]: faster", "a < b", "x [1] (2)", "a <- b", "|"])
def test_what_is_no_markdown_stays(text: str) -> None:
    assert markdown(text) == text
