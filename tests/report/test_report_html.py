"""Pages and notebooks: what strangers wrote stays text, nothing is fetched, what was measured is said."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from ggufspec import cli, results, tuning
from ggufspec.analysis import arms, comparing
from ggufspec.analysis.comparing import BenchComparison
from ggufspec.domain import Difference, Role, RunResult, Serving, Status, TextVerdict
from ggufspec.report.html import notebook
from ggufspec.report.html.sections import html, section
from ggufspec.report.plot import drawing
from ggufspec.report.text.verdict import verdicts
from ggufspec.results import ResultSet
from ggufspec.tuning import Tuned
from tests.support import crossed, shell, tunings
from tests.support.pages import Page, contrast
from tests.support.swept import HARMFUL, running, swept
from tests.support.values import bench, configuration, run, whole_bench

STYLE = Path(__file__).parents[2] / "ggufspec/report/html/page/style.css"


def test_what_strangers_wrote_stays_text_and_reaches_charts_as_data() -> None:
    page = Page(html(swept(HARMFUL, "other.gguf", target=HARMFUL, tag=HARMFUL)))
    page.check_harmless(scripts=2)
    assert HARMFUL in page.words
    charts = page.specs()
    assert HARMFUL.removesuffix(".gguf") in json.dumps(charts["chart-1-curve"], ensure_ascii=False)
    rows = [row for rows in charts["chart-1-drift"]["datasets"].values() for row in rows]
    assert f"p1{HARMFUL}" in {row.get("prompt") for row in rows}


def test_nothing_is_fetched() -> None:
    whole = html(swept())
    assert Page(whole).addresses() == {"data:,", "#main"}
    assert not re.findall(r"https?:|url\(|@import", whole.replace(drawing.javascript(), ""))


def _heads(table: Any) -> list[str]:
    return [column.head for column in table.columns]


def test_every_chart_has_words_and_data() -> None:
    figures = section(swept(sizes=(1, 2, 4))).figures
    assert list(figures) == ["curve", "heatmap", "positions", "rounds", "pareto", "drift"]
    for drawn in figures.values():
        assert drawn.chart.description
        assert drawn.title[-1].isalpha()
        assert drawn.caption.endswith(".")
        assert drawn.table.rows
    curve = figures["curve"].table
    assert _heads(curve) == ["arm", "kind", "γ", "tokens/s", "speed-up"]
    assert [cell.text for cell in curve.rows[1]][:3] == ["measured", "measured", "1"]


def test_the_table_of_arms_has_all_columns_that_tell_something() -> None:
    page = Page(html(whole_bench()))
    table = section(whole_bench()).page.table
    assert _heads(table) == [
        *("", "model", "GPU layers", "γ", "tokens/s", "accepted", "speed-up", "verdict", "text unchanged")
    ]
    assert "measured" in page.words
    assert "Tokens/s: geometric mean over the cells" in page.words
    drafting = [cell.text for cell in table.rows[-1]]
    assert drafting[6].startswith("1.50× [1.50×")
    assert (drafting[5], drafting[8]) == ("75.0 %", "2 of 2")


def test_failures_and_empty_benches_have_pages() -> None:
    failed = section(bench(run(), run(Role.DRAFTING, draft=3, status=Status.OUT_OF_MEMORY)))
    assert [row[-1].text for row in failed.page.table.rows] == ["ok", "out of memory"]
    assert "runs-failed" in failed.page.warnings
    assert failed.card.verdict == "no verdict"
    assert failed.card.headline == "No drafting run succeeded, so there is no verdict"
    empty = Page(html(bench(doubts={"memory-tight": "close other programs"}))).words
    assert re.search(r"Nothing was measured.*memory-tight\s*close other programs", empty, re.DOTALL)


def _runs(
    ratio: float, *, repeats: int = 2, off: float = 1e-4, heat: float = 0.0, **changes: Any
) -> list[RunResult]:
    """Three prompts at a ratio of the target's speed, in turn off above and below; the first is changed."""
    runs = []
    for repeat in range(repeats):
        for number, tps in enumerate((40.0, 50.0, 60.0)):
            told: dict[str, Any] = {"prompt": f"p{number}", "repeat": repeat}
            alone = tps * (1 + heat * repeat)
            noise = (1 + off) ** (-1) ** (repeat + number)  # equal runs would have no interval
            drafting = run(Role.DRAFTING, tps=alone * ratio * noise, draft=3, **told)
            loads = (2 * repeat, 2 * repeat + 1) if repeats > 2 else (None, None)
            runs += [
                replace(run(tps=alone, **told), load=loads[0]),
                replace(drafting, load=loads[1], **changes if number == 0 else {}),
            ]
    return runs


def _differs(verdict: TextVerdict) -> dict[str, Any]:
    return {"text_identical": False, "difference": Difference(at_char=5, at_token=1, verdict=verdict)}


ARM = r"rafting with drafter\.gguf at γ = 3"
SPEED = r"1\.50× \[1\.50×, 1\.50×\] the speed of target\.gguf alone"
SLOWER = r"0\.80× \[0\.80×, 0\.80×\] the speed of target\.gguf alone \(49\."


@pytest.mark.parametrize(
    ("ratio", "changes", "said"),
    [
        (1.5, {}, f"D{ARM} is faster: .*, {SPEED}\\. Its text equals the target's on all 3 prompts"),
        (
            1.5,
            _differs(TextVerdict.NEAR_TIE),
            "text differs .* on 1 of 3 prompts, at near-ties only, which is",
        ),
        (1.5, _differs(TextVerdict.DIVERGENCE), f"No verdict: d{ARM} has {SPEED}.* 1 of 3 .* is not fair"),
        (0.8, {}, f"D{ARM} is slower: .*{SLOWER}"),
    ],
)
def test_the_verdict_is_a_sentence(ratio: float, changes: dict[str, Any], said: str) -> None:
    (sentence,) = verdicts(arms.group(bench(*_runs(ratio, heat=0.004, **changes))))
    assert re.search(said, sentence), sentence


def test_without_the_target_alone_no_speed_up_is_known() -> None:
    (sentence,) = verdicts(arms.group(bench(*_runs(1.5)[1::2])))
    assert "The target alone was not measured, so the speed-up is not known." in sentence


@pytest.mark.parametrize(
    ("ratio", "off", "verdict", "headline"),
    [
        (1.5, 0.002, "faster", "Drafting with drafter.gguf at γ = 3 is faster"),
        (0.8, 0.002, "slower", "Drafting with drafter.gguf at γ = 3 is slower"),
        (1.0, 0.002, "same", "Drafting with drafter.gguf at γ = 3 is as fast as the target alone"),
        (1.02, 0.2, "undecided", "Undecided whether drafting with drafter.gguf at γ = 3 is faster"),
    ],
)
def test_the_card_has_one_verdict(ratio: float, off: float, verdict: str, headline: str) -> None:
    stored = bench(*_runs(ratio, repeats=3, off=off))
    page, card = Page(html(stored)), section(stored).card
    assert (card.verdict, card.headline) == (verdict, headline)
    assert page.words.count(headline) == 1
    assert sum(tag == "h1" for tag, _ in page.elements) == 1
    assert sum(about.get("class") == "badge" for _, about in page.elements) == 1
    assert f" {verdict}" in page.words  # not by its colour alone
    if verdict == "faster":
        assert card.speedup == "1.50×"
        assert re.fullmatch(r"1\.\d\d× to 1\.\d\d× \(95 %\)", card.interval)
        names = ["tokens/s, drafting", "tokens/s, target alone", "accepted", "text unchanged"]
        assert [reading.name for reading in card.readings] == names
        assert [reading.value for reading in card.readings[2:]] == ["75.0 %", "3 of 3"]
        assert card.basis[0] == "Rests on 3 prompts × 3 repeats, 3 loads."
    if verdict == "undecided":  # nothing is recommended
        told = " ".join((card.headline, *card.notes, card.action, card.command))
        assert "Meanwhile, the target alone is what is safe." in card.notes
        assert not re.search("fastest|draft with|Serve|llama-server", told)


def test_pages_of_crossovers_and_servers() -> None:
    found = section(crossed.crossover())
    heads = _heads(found.page.table)
    loads = [heads.index(head) for head in ("users", "depth", "", "γ")]
    rows = [tuple(row[place].text for place in loads) for row in found.page.table.rows]
    assert len(set(rows)) == len(rows) == 18
    assert len({name for name, _ in found.commands}) == 18
    assert "verdict" not in heads  # the map's are the only ones
    card = found.card
    assert card.verdict == "faster"
    assert card.headline.startswith("Draft with γ = 2 for 1 user")
    assert (card.speedup, card.readings[0].value) == ("1.80×", "180.0")
    assert card.interval.endswith("for 1 user, depth 0")
    stored = bench()
    results.write_crossover_axes(results.CrossoverAxes(users=(1, 2), depths=(0,)), stored.folder)
    card = section(stored).card
    assert (card.verdict, card.headline) == ("no verdict", "No cell was measured, so there is no verdict")
    assert (card.speedup, card.readings) == ("", ())
    page = Page(html(running()))
    assert "Drafting at http://127.0.0.1:8002" in page.words
    assert "None" not in page.words


@pytest.mark.parametrize("make", [swept, crossed.crossover, running])
def test_backticks_are_shown_as_code(make: Callable[[], ResultSet]) -> None:
    page = Page(html(make()))
    assert "`" not in page.words
    assert any(tag == "code" for tag, _ in page.elements)


def test_equal_arms_of_two_benches_are_compared() -> None:
    page = Page(html([swept(name="before"), swept(name="after", gain=1.5)]))
    assert page.words.count("before → after") == 2  # a heading and a caption
    assert page.addresses() == {"data:,", "#main", "#bench-1", "#bench-2", "#compared"}
    assert {"main", "bench-1", "bench-2", "compared"} <= {about.get("id") for _, about in page.elements}


def test_commands_and_refusals_are_as_they_stand() -> None:
    page = Page(html([swept(name="before"), swept(name="after", target="another.gguf", sizes=(7,))]))
    assert "before and after have no arm in common." in page.words
    commands = dict(section(swept("a drafter.gguf")).commands)
    assert commands["target: target.gguf"] == "llama -m target.gguf --prompt ''"
    assert "drafting: target.gguf + a drafter.gguf, γ = 4" in commands


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
def test_text_is_readable_in_both_schemes(scheme: int) -> None:
    root = re.findall(r":root \{(.*?)\}", STYLE.read_text(encoding="utf-8"), re.DOTALL)[scheme]
    colours = dict(re.findall(r"--([\w-]+): (#\w{6});", root))
    pairs = [(text, behind) for text in ("ink", "quiet", "link") for behind in ("paper", "sheet")]
    pairs += [(text, behind) for text in ("good", "bad", "warn") for behind in (f"{text}-sheet", "paper")]
    for text, behind in (*pairs, ("ink", "warn-sheet")):
        assert contrast(colours[text], colours[behind]) >= 4.5, (text, behind)


def test_the_command_writes_a_page_or_pictures(tmp_path: Path) -> None:
    results.close(whole_bench())
    page, pictures = tmp_path / "page.html", tmp_path / "new" / "pictures"
    written = shell.done("report", "--out", str(page))
    assert (written.stdout, str(page) in written.stderr) == ("", True)
    assert page.read_text(encoding="utf-8").startswith("<!doctype html>")
    shell.done("report", "last", "-o", "svg", "--out", str(pictures))
    assert sorted(file.name for file in pictures.iterdir()) == ["curve.svg", "drift.svg"]
    refused = shell.here("report", "-o", "pgn")
    assert refused.returncode == 2
    assert "'pgn' is not one of 'html', 'png', 'svg'" in refused.stderr


def test_a_report_is_piped_without_a_word() -> None:
    results.close(whole_bench())
    piped = CliRunner().invoke(cli.cli, ["report", "--out", "-"])
    assert piped.stdout.startswith("<!doctype html>")
    assert piped.stderr == ""


# What notebooks show of results: readable without our own style, and harmless whatever a model is called


PLAIN = {
    *("div", "p", "small", "strong", "pre", "code", "br"),
    *("table", "thead", "tbody", "tr", "th", "td"),
    *("details", "summary", "dl", "dt", "dd"),
}
"""Elements that every notebook shows, trusted or not."""


def _tuned(results: ResultSet, *, notes: tuple[str, ...] = ()) -> Tuned:
    """Judge a bench of which nothing was forecast."""
    selection = tuning.select_arms(results)
    return tuning.judge_finalists(tunings.outlook(notes=notes), selection, results, measuring_s=4.0)


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
