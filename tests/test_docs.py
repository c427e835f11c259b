"""The documentation: it builds, nothing of it comes from elsewhere, and the reference is the code's."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import inspect
import json
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

import ggufspec
from ggufspec.domain import RunProblem, Status
from tests.support.documentation import PAGES, ROOT, blocks, unlike

DOCS = ROOT / "docs"
PRINT_PAGES = "import json, runpy, sys; print(json.dumps(runpy.run_path(sys.argv[1])['pages']()))"
SHOWN = (
    "pair: demo (as named)",
    "|          | model       | tokens/s             | verdict   |",
    "|----------|-------------|----------------------|-----------|",
    "| target   | target.gguf | 515.5 [470.5, 564.9] |           |",
    "| drafting | target.gguf | 657.8 [606.2, 713.9] | faster    |",
    "…",
    "Stored as 20261121-120019-e453: raw logs are in ~/runs/20261121-120019-e453/logs",
    "warning unstable: repeats of the same run differ by more than usual",
)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if importlib.util.find_spec("mkdocstrings") is None:
        pytest.skip("mkdocs is not installed: .venv/bin/python -m pip install --group docs")
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


class Loads(HTMLParser):
    """Collects what a browser loads by itself to show a page."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag == "link" and given.get("rel") != "canonical":
            self.found.append(given.get("href") or "")
        elif tag in {"script", "img", "iframe", "source"} and given.get("src"):
            self.found.append(str(given["src"]))


def test_every_page_is_built(site: Path) -> None:
    for page in DOCS.rglob("*.md"):
        assert (site / page.relative_to(DOCS).with_suffix(".html")).is_file()


def test_no_page_loads_anything_from_elsewhere(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    for page in pages:
        loads = Loads()
        loads.feed(page.read_text(encoding="utf-8"))
        assert loads.found, page
        assert not [url for url in loads.found if re.match(r"(?:https?:)?//", url)], page
    for sheet in site.rglob("*.css"):
        assert not re.search(r"(?:url\(|@import)\s*[\"']?(?:https?:)?//", sheet.read_text(encoding="utf-8"))
    assert pages


def test_marks_of_blocks_become_no_text(site: Path) -> None:
    text = (site / "tutorial.html").read_text(encoding="utf-8")
    assert "&lt;!--" not in text
    assert "```" not in text


def test_the_reference_is_what_the_code_says() -> None:
    # in a process of its own: tests before this one import commands while they pretend to be elsewhere
    words = [sys.executable, "-c", PRINT_PAGES, str(ROOT / "scripts" / "write_reference.py")]
    written = json.loads(subprocess.check_output(words, text=True))
    committed = {page.name: page.read_text(encoding="utf-8") for page in (DOCS / "reference").iterdir()}
    assert committed == written, "write it with scripts/write_reference.py"


def test_the_site_documents_every_public_class_and_function(site: Path) -> None:
    page = (site / "reference" / "python.html").read_text(encoding="utf-8")
    modules = {"ggufspec": ggufspec, "ggufspec.frames": ggufspec.frames, "ggufspec.plot": ggufspec.plot}
    public = {
        f"{path}.{name}"
        for path, module in modules.items()
        for name, value in inspect.getmembers(module)
        if (inspect.isclass(value) or inspect.isfunction(value))
        and name[0] != "_"
        and value.__module__.startswith(module.__name__)
    }
    assert {"ggufspec.BenchOptions", "ggufspec.bench", "ggufspec.frames.logs", "ggufspec.plot.curve"} < public
    assert public - set(re.findall(r'<h\d id="([^"]+)"', page)) == set()


def test_every_block_says_whether_it_is_run() -> None:
    everything = [block for page in PAGES for block in blocks(page)]
    assert not [f"{block.page}:{block.line}" for block in everything if not block.is_marked]
    assert sum(block.is_run for block in everything) > len(everything) / 2


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_fences_are_closed_and_none_escapes_the_marks(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert len(re.findall(r"^\s*```", text, re.MULTILINE)) % 2 == 0
    opened = re.findall(r"^\s*```(?:sh|bash|shell|console|python)\b.*$", text, re.MULTILINE)
    assert len(opened) == len(blocks(page))


def test_the_readme_is_one_screen_of_narrow_blocks() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(text.encode()) <= 6 * 1024
    bodies = re.findall(r"^```\w+\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    shown = [line for body in bodies for line in body.splitlines()]
    assert shown
    assert max(map(len, shown)) <= 100


def test_outcomes_and_citation_are_current() -> None:
    page = (DOCS / "measuring.md").read_text(encoding="utf-8")
    assert not [outcome for outcome in (*Status, *RunProblem) if f"`{outcome.value}`" not in page]
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"\nversion: {importlib.metadata.version('ggufspec')}\n" in citation


def test_a_block_is_read_as_it_is_typed(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "text\n<!-- run: exit 33 -->\n```sh\none \\\n    --two\nthree\n```\n\n```text\nsaid\n…\n```\n"
        "\n```sh\nfour\n```\n\nmore\n\n```text\nof something else\n```\n"
    )
    first, second = blocks(page)
    assert (first.line, first.is_run, second.is_marked) == (3, True, False)
    one, three = first.commands
    assert (one.line, one.shown, one.exit_codes) == ("one \\\n    --two", (), (0,))
    assert (three.line, three.shown, three.exit_codes) == ("three", ("said", "…"), (33,))
    (four,) = second.commands
    assert (four.line, four.shown) == ("four", ())
    page.write_text("<!-- run: exit 0 or 33 -->\n```sh\none\ntwo\n```\n")
    assert [command.exit_codes for command in blocks(page)[0].commands] == [(0,), (0, 33)]


def test_numbers_places_verdicts_and_warnings_may_differ() -> None:
    printed = "\n".join(SHOWN[:-1]).replace("515.5 [470.5, 564.9]", "88.1").replace("faster", "undecided")
    assert unlike(SHOWN, printed.replace("~/runs", "/tmp/x/runs").replace("…", "another line")) == []


TUNED = (
    "| model       | tokens/s             |",
    "|-------------|----------------------|",
    "| target.gguf | 251.6 [228.4, 277.2] |",
    "",
    "Draft with drafter.gguf, γ = 14, p-min 0.7: 2.13× [1.79, 2.53] of the target alone.",
    "",
    "llama-server:",
    "    ~/bin/llama-server --model target.gguf --model-draft drafter.gguf",
    "",
    "116 configurations forecast from one trace of 4 prompts, 40 tokens each; the best were measured.",
    "Time: 14 s, of which traces 1.2 s, measuring 10 s.",
)
PLANNED = (
    "| speed-up at γ   | α = 0.50   | break-even   |",
    "|-----------------|------------|--------------|",
    "| 1               | 0.73×      | never        |",
    "| 2               | 1.10×      | α = 0.78     |",
    "",
    "Best: α = 0.50: no γ would pay; α = 0.90: γ = 7, 1.40×.",
    "5 arms with 2 baselines, 120 runs: about 3 min 03 s.",
)


@pytest.mark.parametrize(
    "printed",
    [
        "| target   | target.gguf | 1.068e+04 [9.5e+03, 1.2e+04] |           |",
        "| target   | target.gguf | 10,680 [9,500, 12,000]       |           |",
        "| target   | target.gguf | 0.0042                       |           |",
        "|target|target.gguf|7|  |",
    ],
)
def test_no_speed_changes_what_a_row_is_like(printed: str) -> None:
    assert unlike(SHOWN, "\n".join(printed if "| target " in line else line for line in SHOWN)) == []


def test_what_follows_from_another_speed_is_like_what_is_shown() -> None:
    slow = [*TUNED[:4], "Do not draft: the target alone has 1.2 tokens/s.", *TUNED[9:]]
    assert unlike(TUNED, "\n".join(slow).replace("14 s, of", "2 h 10 min, of")) == []
    assert unlike(tuple(slow), "\n".join(TUNED)) == []
    other = (
        "\n".join(PLANNED)
        .replace("| never        |", "| α = 0.99     |")
        .replace("no γ would pay", "γ = 3, 1.20×")
        .replace("3 min 03 s", "12 days")
    )
    assert unlike(PLANNED, other) == []
    assert unlike(tuple(other.splitlines()), "\n".join(PLANNED)) == []


@pytest.mark.parametrize(
    ("shown", "old", "new", "missing"),
    [
        (SHOWN, "pair: demo", "models: other", 0),
        (SHOWN, "tokens/s ", "tok per s", 1),
        (SHOWN, "| verdict   ", "", 1),
        (SHOWN, "target.gguf", "drafter.gguf", 3),
        (SHOWN, "Stored as 20261121-120019-e453: raw logs are", "Result of 20261121-120019-e453: it is", 6),
        (TUNED, "Draft with drafter.gguf", "The choice is drafter.gguf", None),
        (TUNED, "| tokens/s  ", "| tok/s     ", 0),
        (TUNED, "| target.gguf | 251.6", "| | 251.6", 2),
        (TUNED, "llama-server:", "the server:", 6),
        (TUNED, "116 configurations forecast from one trace", "Looked at 116", 9),
        (PLANNED, "×      |", "       |", 2),
        (PLANNED, PLANNED[5], "No size of a draft is good.", 5),
        (PLANNED, "5 arms with 2 baselines", "5 rows, 2 blocks", None),
    ],
)
def test_another_text_is_found(shown: tuple[str, ...], old: str, new: str, missing: int | None) -> None:
    printed = "\n".join(shown)
    assert old in printed
    changed = unlike(shown, printed.replace(old, new))
    if missing is None:
        assert unlike(shown, "\n".join(line for line in shown if old not in line))
    else:
        assert shown[missing] in changed
