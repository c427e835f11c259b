"""What notebooks show of results: readable without our own style, and harmless whatever a model is called."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from ggufspec import tuning
from ggufspec.analysis import comparing
from ggufspec.analysis.comparing import BenchComparison
from ggufspec.domain import Prompt, Role, Serving, Status
from ggufspec.report.html import notebook
from ggufspec.results import ResultSet
from ggufspec.tuning import Spent, Tuned, TuningForecast
from tests.support.pages import Page
from tests.support.swept import HARMFUL, swept
from tests.support.values import bench, configuration, run, whole_bench

PLAIN = {
    *("div", "p", "small", "strong", "pre", "code", "br"),
    *("table", "thead", "tbody", "tr", "th", "td"),
    *("details", "summary", "dl", "dt", "dd"),
}
"""Elements that every notebook shows, trusted or not."""


def _tuned(results: ResultSet, *, notes: tuple[str, ...] = ()) -> Tuned:
    """Judge a bench of which nothing was forecast."""
    outlook = TuningForecast(
        prospects=(),
        unknown=(),
        prompts=(Prompt(id="p1", text="x"), Prompt(id="p2", text="y")),
        n_predict=32,
        finalists=2,
        spent=Spent(traces_s=1.0, costs_s=2.0),
        notes=notes,
    )
    return tuning.judge_finalists(outlook, tuning.select_arms(results), results, measuring_s=4.0)


def _shown(value: ResultSet | Tuned | BenchComparison) -> Page:
    return Page(value._repr_html_())


def _table(page: str) -> list[list[str]]:
    """Return the words of a page's table, row by row."""
    cells = re.findall(r"<t[hd] [^>]*>(.*?)</t[hd]>", page, re.DOTALL)
    words = [Page(cell).words for cell in cells]
    width = sum(tag == "th" for tag, _ in Page(page).elements)
    return [words[at : at + width] for at in range(0, len(words), width)]


@pytest.mark.parametrize("kind", ["bench", "tuning", "comparison"])
def test_hostile_names_stay_text(kind: str) -> None:
    results = swept(HARMFUL, "other.gguf", target=HARMFUL, tag=HARMFUL)
    elsewhere = replace(results.meta, machine=replace(results.meta.machine, cpu=f"new{HARMFUL}"))
    page = _shown(results)
    if kind == "tuning":
        page = _shown(_tuned(results, notes=(HARMFUL,)))
    if kind == "comparison":
        page = _shown(comparing.compare(results, replace(results, meta=elsewhere)))
    assert {tag for tag, _ in page.elements} <= PLAIN
    assert {name for _, about in page.elements for name in about} <= {"class", "style", "scope"}
    assert page.words.count(HARMFUL) >= 3  # models, warnings, and with a tuning its notes
    assert f"{'new' if kind == 'comparison' else 'odd'}{HARMFUL}" in page.words


def test_names_are_neither_formulas_nor_colours() -> None:
    tag, about = _shown(swept("$x$.gguf")).elements[0]
    assert tag == "div"
    assert (about["class"] or "").split() == ["tex2jax_ignore", "mathjax_ignore"]
    assert "color" not in swept()._repr_html_()
    assert "background" not in swept()._repr_html_()


def test_a_bench_is_its_verdict_a_table_and_its_basis() -> None:
    shown = whole_bench()
    page = shown._repr_html_()
    assert "Drafting with drafter.gguf at γ = 3 is faster" in Page(page).words
    head, *rows = _table(page)
    assert head[:3] == ["measured", "model", "GPU layers"]
    assert [row[0] for row in rows] == ["target", "drafter", "drafting"]
    assert rows[2][1:4] == ["target.gguf + drafter.gguf", "0 + 0", "3"]
    assert rows[2][6].startswith("1.50× [1.50×")
    assert "2 prompts × 2 repeats, 32 tokens each, 2 threads, greedy; llama.cpp b11312 (" in Page(page).words
    assert shown.meta.id in Page(page).words


def test_empty_failed_and_long_benches_are_shown() -> None:
    empty = _shown(bench())
    assert "Nothing was measured." in empty.words
    assert "table" not in {tag for tag, _ in empty.elements}
    page = bench(run(), run(Role.DRAFTING, draft=3, status=Status.OUT_OF_MEMORY))._repr_html_()
    head, *rows = _table(page)
    assert [row[head.index("status")] for row in rows] == ["ok", "out of memory"]
    assert "1 warning: runs-failed" in Page(page).words
    assert "some runs failed and are missing from the means" in Page(page).words
    sizes = range(1, notebook._MOST_ROWS + 3)
    page = swept(sizes=sizes)._repr_html_()
    assert len(_table(page)) == 1 + notebook._MOST_ROWS
    assert f"{len(sizes) + 1 - notebook._MOST_ROWS} more: ggufspec.summary(…)" in Page(page).words


def test_a_tuning_is_its_verdict_with_the_choice_in_bold() -> None:
    quiet = (
        replace(each, doubts=(), sample=replace(each.sample, gen_s=gen_s * (1 + 0.001 * (number**2 % 7))))
        for number, each in enumerate(swept("small.gguf", "best.gguf", sizes=(4,)).runs)
        if (gen_s := each.sample.gen_s)
    )
    tuned = _tuned(bench(*quiet), notes=("time: 4 of 8 prompts",))
    page = tuned._repr_html_()
    words = Page(page).words
    assert "Draft with best.gguf, γ = 4: 1.44×" in words
    assert "By category" not in words  # one prompt of each decides nothing
    assert "time: 4 of 8 prompts" in words
    assert "Time: 7 s, of which traces 1.0 s" in words
    bold = [row for row in page.split("<tr>")[1:] if "<strong>" in row]
    assert len(bold) == 1
    assert "target.gguf + best.gguf" in bold[0]
    assert bold[0].count("<strong>") == bold[0].count("<td")


def test_a_tuning_shows_the_command_that_serves_it() -> None:
    tuned = _tuned(swept(sizes=(4,)))
    assert "llama-server" not in Page(tuned._repr_html_()).words
    stored = configuration()
    launch = replace(stored.launch, argv=("/opt/llama-server", "-m", "my model.gguf"))
    command = "/opt/llama-server -m &#39;my model.gguf&#39;"
    served = replace(tuned, launch=launch, serving=Serving(context=4096, slots=1))
    page = served._repr_html_()
    assert f"<pre><code>{command}</code></pre>" in page
    assert "It serves one request at a time, each of up to 4096 tokens." in page
    assert {tag for tag, _ in Page(page).elements} <= PLAIN
    page = replace(served, launch=replace(launch, failure="it did not load"))._repr_html_()
    assert "llama-server cannot serve it: it did not load." in page
    assert command not in page


def test_a_tuning_that_advises_against_drafting_marks_the_target() -> None:
    runs = [
        replace(each, repeat=repeat)
        for repeat in range(3)
        for each in (run(tps=50 + repeat), run(Role.DRAFTING, tps=30 + repeat, draft=3))
    ]
    page = _tuned(bench(*runs))._repr_html_()
    assert "Do not draft: the target alone has 50.99 " in Page(page).words
    assert "<strong>target.gguf</strong>" in page


def test_a_comparison_is_its_verdict_a_row_for_each_arm_and_what_differs() -> None:
    before, after = swept(name="before"), swept(name="after", gain=1.32, engine="server")
    page = comparing.compare(before, after)._repr_html_()
    words = Page(page).words
    assert "No verdict: before was measured with the engine inprocess" in words
    assert "before: before   after: after" in words
    assert "engine: inprocess → server" in words
    assert "Stored as" not in words
    head, *rows = _table(page)
    assert head[:6] == ["measured", "model", "γ", "before", "after", "after/before"]
    assert [row[2] for row in rows] == ["", "2", "4"]
    assert rows[1][5].startswith("1.100")


def test_one_is_said_as_one() -> None:
    alone = run()
    shown = _shown(bench(replace(alone, spec=replace(alone.spec, threads=1))))
    assert "1 prompt × 1 repeat, 32 tokens each, 1 thread, greedy" in shown.words
