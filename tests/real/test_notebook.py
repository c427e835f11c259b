"""The notebooks of scripts/ run from a clean kernel on real builds, and show what was measured."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

from ggufspec import prompts, publishing, results
from ggufspec.domain import Role
from ggufspec.llama.install.installs import Install

SCRIPTS = Path(__file__).parents[2] / "scripts"
NOTEBOOKS = ("summary_tables.ipynb", "llama3_notebook.ipynb")
QUICK = """\
import functools
import ggufspec
from tests.support import imagined_times
imagined_times.shorten(setattr)
PROMPTS = ("Once upon a time", "The cat sat on")
ggufspec.tune = functools.partial(ggufspec.tune, prompt=PROMPTS, method="draft-model", draft=(2, 4))
"""
"""Without n-grams, of which each run starts a server, and with few draft sizes and prompts."""
SMALL = f"""\
{QUICK}
def few(bench, **asked):
    return bench(**asked if {{"suite", "prompt"}} & asked.keys() else {{"per_category": 1}} | asked)
ggufspec.bench = functools.partial(few, ggufspec.bench)
N_PREDICT, REPEATS, DRAFT, THREADS, TUNE_S = 16, 1, (4,), 1, 1800
"""
SHORT = f"{QUICK}N_PREDICT, TUNE_S = 16, 1800\n"
NAMES = ("native_and_assisted", "layers_and_gain", "drafts_kept", "comparison", "per_prompt")
TABLES = (
    f"import json\nprint(json.dumps({{name: globals()[name].to_json(orient='records') for name in {NAMES}}}))"
)


def _read(name: str, parameters: str = "") -> Any:
    """Return a notebook, with other parameters after its own."""
    with (SCRIPTS / name).open(encoding="utf-8") as file:
        book = nbformat.read(file, as_version=4)  # type: ignore[no-untyped-call]
    if parameters:
        places = (at for at, cell in enumerate(book.cells) if "parameters" in cell.metadata.get("tags", ()))
        book.cells.insert(next(places) + 1, _cell(parameters))
    return book


def _cell(source: str) -> Any:
    return nbformat.v4.new_code_cell(source)  # type: ignore[no-untyped-call]


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let kernels import what tests share."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join((str(SCRIPTS.parent), os.environ["PYTHONPATH"])))
    monkeypatch.setenv("JUPYTER_PLATFORM_DIRS", "1")  # without it, Jupyter's client warns


def _run(book: Any, folder: Path, *, timeout_s: int, allow_errors: bool = False) -> Any:
    """Execute a notebook in a folder; return it."""
    resources = {"metadata": {"path": str(folder)}}
    NotebookClient(book, timeout=timeout_s, resources=resources, allow_errors=allow_errors).execute()
    return book


def _outputs(book: Any, kind: str) -> list[str]:
    """Return what a notebook shows in a media type."""
    shown = (output.get("data", {}) for cell in book.cells for output in cell.get("outputs", ()))
    return [data[kind] for data in shown if kind in data]


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_notebook_is_kept_without_outputs(name: str) -> None:
    book = _read(name)
    nbformat.validate(book)
    code = [cell for cell in book.cells if cell.cell_type == "code"]
    assert not [cell.id for cell in code if cell.outputs or cell.execution_count is not None]


@pytest.mark.takes(40)
@pytest.mark.usefixtures("kernel")
def test_every_cell_runs_and_every_table_holds_what_was_measured(
    llama: Install, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("GGUFSPEC_LLAMA", str(llama.root))
    book = _read("summary_tables.ipynb", SMALL)
    book.cells.append(_cell(TABLES))
    ran = _run(book, tmp_path, timeout_s=300)
    *_, last = ran.cells
    tables = {name: json.loads(table) for name, table in json.loads(last.outputs[0].text).items()}
    said = [
        output.text
        for cell in ran.cells
        for output in cell.get("outputs", ())
        if output.get("name") == "stderr"
    ]
    assert not [text for text in said if "IProgress not found" not in text]  # that is about ipywidgets

    bench, tuning = (page for page in _outputs(ran, "text/html") if "tex2jax_ignore" in page)
    assert "demo" not in bench
    assert all(word in bench for word in ("drafting", "tokens/s", "Engine: inprocess", "speed-up"))
    assert any(word in tuning for word in ("Draft with", "Do not draft", "Undecided"))
    assert "forecast</th>" in tuning
    assert tuning.count("<tr>") >= 3
    assert len(_outputs(ran, "image/svg+xml")) == 3

    seven = tables["native_and_assisted"]
    assert len(seven) == len(prompts.suite("seven").prompts) == 7
    for row in seven:
        assert row["native, s"] > 0
        assert row["times as fast"] == pytest.approx(row["native, s"] / row["assisted, s"])

    target, drafter, drafting = tables["layers_and_gain"]
    assert target["model"] == "target.gguf"
    assert drafter["model"] == "drafter.gguf"
    assert drafting["model"] == "target.gguf + drafter.gguf"
    assert (target["gain"], drafter["gain"]) == ("", "")
    gain = drafting["tokens/s"] / target["tokens/s"] - 1
    assert int(drafting["gain"].removesuffix("%")) / 100 == pytest.approx(gain, abs=0.01)

    kept = tables["drafts_kept"]
    assert sorted((row["k"], row["γ"]) for row in kept if row["measured"] == "drafting") == [
        (k, size) for k in (1, 50) for size in (5, 10, 20)
    ]
    greedy = {row["output length"] for row in kept if row["k"] == 1 and row["measured"] != "drafting"}
    for row in kept:
        assert row["seconds"] > 0
        if row["measured"] == "drafting":
            assert 0 <= row["draft tokens kept"] < row["output length"]
            assert row["k"] == 50 or row["output length"] >= min(greedy)

    assert {row["role"] for row in tables["comparison"]} == set(Role)
    assert len(tables["comparison"]) == 3
    assert {row["draft"] for row in tables["per_prompt"]} == {4}
    # one, tuned, served, seven, and one for each k; a tuning confirms its winner, if there is one, in another
    assert len(results.ids()) in {6, 7}


def _errors(cell: Any) -> list[Any]:
    return [output for output in cell.get("outputs", ()) if output.output_type == "error"]


@pytest.mark.takes(35)
@pytest.mark.timeout(1800)
@pytest.mark.usefixtures("kernel")
def test_the_llama3_notebook_does_its_whole_job_on_the_embedded_pair(
    llama: Install, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("GGUFSPEC_PAIR", "demo")
    if llama.origin == "GGUFSPEC_LLAMA":  # else the notebook's own build finds that of the tests
        monkeypatch.setenv("GGUFSPEC_LLAMA", str(llama.root))
    book = _read("llama3_notebook.ipynb", SHORT)
    book.cells.append(_cell("print(layers_and_gain.to_json(orient='records'))"))
    book.cells.append(_cell("ggufspec.load('nowhere')"))
    ran = _run(book, tmp_path, timeout_s=900, allow_errors=True)
    *cells, table, broken = ran.cells
    assert not [error for cell in (*cells, table) for error in _errors(cell)]
    (error,) = _errors(broken)
    shown = "\n".join(error.traceback)
    assert "hint: " in shown  # below the message, as notebooks show no traceback of ours
    target, drafter, drafting = json.loads(table.outputs[0].text)
    assert [row["Model"] for row in (target, drafter)] == ["target.gguf", "drafter.gguf"]
    assert (target["Gain"], drafter["Gain"], target["Accepted"]) == ("-", "-", "")
    gain = drafting["Tokens/second"] / target["Tokens/second"] - 1
    assert int(drafting["Gain"].removesuffix("%")) / 100 == pytest.approx(gain, abs=0.01)
    assert 0 < float(drafting["Accepted"].removesuffix("%")) <= 100

    pages = [page for page in _outputs(ran, "text/html") if "tex2jax_ignore" in page]
    bench, why, tuning = pages
    assert "Engine: binary" in bench
    assert "What would pay most" in why or "No single change" in why
    assert any(words in tuning for words in ("Draft with", "Do not draft", "Undecided"))
    assert "<pre><code>" in tuning
    assert "llama-server" in tuning
    (packed,) = tmp_path.glob("*-bundle.zip")
    assert publishing.verify(packed).findings == ()
