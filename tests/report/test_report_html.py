"""The page of a bench: what strangers wrote stays text, nothing is fetched, and it says what was measured."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from ggufspec import results
from ggufspec.analysis import arms
from ggufspec.cli import reading
from ggufspec.domain import Difference, Role, RunResult, Status, TextVerdict
from ggufspec.report.html.sections import html, section
from ggufspec.report.plot import drawing
from ggufspec.report.text.verdict import verdicts
from ggufspec.results import ResultSet
from tests.support import crossed
from tests.support.pages import Page, contrast
from tests.support.swept import HARMFUL, running, swept
from tests.support.values import bench, run, whole_bench

command = reading.report("report")

STYLE = Path(__file__).parents[2] / "ggufspec/report/html/page/style.css"


def test_hostile_names_stay_text() -> None:
    page = Page(html(swept(HARMFUL, "other.gguf", target=HARMFUL, tag=HARMFUL)))
    assert not {tag for tag, _ in page.elements} & {"img", "iframe", "object", "embed", "form", "svg"}
    assert not [name for _, about in page.elements for name in about if name.startswith("on")]
    scripts = [about for tag, about in page.elements if tag == "script"]
    assert sum(about.get("type") == "application/json" for about in scripts) == len(page.specs())
    assert sum("type" not in about for about in scripts) == 2
    assert HARMFUL in page.words


def test_hostile_names_reach_the_charts_as_data() -> None:
    page = Page(html(swept(HARMFUL, "other.gguf", tag=HARMFUL)))
    assert HARMFUL.removesuffix(".gguf") in json.dumps(page.specs()["chart-1-curve"], ensure_ascii=False)
    prompts = {
        row.get("prompt") for rows in page.specs()["chart-1-drift"]["datasets"].values() for row in rows
    }
    assert f"p1{HARMFUL}" in prompts


def test_nothing_is_fetched() -> None:
    whole = html(swept())
    page = Page(whole)
    addresses = [about[name] or "" for _, about in page.elements for name in ("src", "href") if name in about]
    assert set(addresses) == {"data:,", "#main"}
    assert not re.findall(r"https?:|url\(|@import", whole.replace(drawing.javascript(), ""))


def test_only_our_own_scripts_and_styles_may_run() -> None:
    page = Page(html(swept()))
    kept = {"script": set[str](), "style": set[str]()}
    for tag, about, data in page.sources:
        if tag in kept and "type" not in about:
            digest = base64.b64encode(hashlib.sha256(data.encode()).digest()).decode()
            kept[tag].add(f"'sha256-{digest}'")
    rules = dict(rule.split(" ", 1) for rule in page.policy().split("; "))
    assert rules["default-src"] == "'none'"
    assert set(rules["script-src"].split()) == kept["script"]
    assert set(rules["style-src"].split()) == kept["style"]


def test_every_chart_has_words_and_data() -> None:
    found = section(swept(sizes=(1, 2, 4)))
    assert [figure.name for figure in found.figures] == [
        "curve",
        *("heatmap", "positions", "rounds", "pareto", "drift"),
    ]
    for figure in found.figures:
        assert figure.alternative
        assert figure.caption
        assert figure.data.rows
    curve = found.figures[0].data
    assert [column.head for column in curve.columns] == ["arm", "kind", "γ", "tokens/s", "speed-up"]
    assert [cell.text for cell in curve.rows[1]][:3] == ["measured", "measured", "1"]


def test_the_summary_shows_only_what_says_something() -> None:
    summary = section(whole_bench()).summary
    heads = [column.head for column in summary.columns]
    assert heads == ["", "γ", "tokens/s", "speed-up", "verdict", "accepted", "text unchanged"]
    assert "measured" in Page(html(whole_bench())).words
    drafting = [cell.text for cell in summary.rows[-1]]
    assert drafting[3].startswith("1.50× [1.50×")
    assert drafting[-2:] == ["75.0 %", "2 of 2"]


def test_failures_and_empty_benches_have_pages() -> None:
    failed = section(bench(run(), run(Role.DRAFTING, draft=3, status=Status.OUT_OF_MEMORY)))
    assert [row[-1].text for row in failed.summary.rows] == ["ok", "out of memory"]
    assert "runs-failed" in failed.warnings
    assert failed.card.verdict == "no verdict"
    assert failed.card.headline == "No drafting run succeeded, so there is no verdict"
    assert "Nothing was measured" in Page(html(bench())).words


def _pairs(ratio: float, **changes: Any) -> list[RunResult]:
    """Three prompts, twice each, at a ratio of the target's speed."""
    runs = []
    for repeat in range(2):
        for number, tps in enumerate((40.0, 50.0, 60.0)):
            heat = tps * (1 + 0.004 * repeat)
            told: dict[str, Any] = {"prompt": f"p{number}", "repeat": repeat}
            runs.append(run(tps=heat, **told))
            noise = 1.0001 ** (1 if (repeat + number) % 2 else -1)  # equal runs would have no interval
            drafting = run(Role.DRAFTING, tps=heat * ratio * noise, draft=3, **told)
            runs.append(replace(drafting, **changes) if number == 0 else drafting)
    return runs


NEAR = Difference(at_char=5, at_token=1, verdict=TextVerdict.NEAR_TIE)
APART = Difference(at_char=5, at_token=1, verdict=TextVerdict.DIVERGENCE)


@pytest.mark.parametrize(
    ("runs", "said"),
    [
        (_pairs(1.5), "Drafting with drafter.gguf at γ = 3 is faster: "),
        (_pairs(1.5), "1.50× [1.50×, 1.50×] the speed of target.gguf alone."),
        (_pairs(1.5), "Its text equals the target's on all 3 prompts."),
        (
            _pairs(1.5, text_identical=False, difference=NEAR),
            "But its text differs from the target's on 1 of 3",
        ),
        (_pairs(1.5, text_identical=False, difference=NEAR), "prompts, at near-ties only, which is normal."),
        (
            _pairs(1.5, text_identical=False, difference=APART),
            "No verdict: drafting with drafter.gguf at γ = 3 has 1.50×",
        ),
        (
            _pairs(1.5, text_identical=False, difference=APART),
            "1 of 3 prompts, so the comparison is not fair.",
        ),
        (_pairs(0.8), "Drafting with drafter.gguf at γ = 3 is slower: "),
        (_pairs(0.8), "0.80× [0.80×, 0.80×] the speed of target.gguf alone (49."),
        (_pairs(1.5)[1::2], "The target alone was not measured, so the speed-up is not known."),
    ],
)
def test_the_verdict_is_a_sentence(runs: list[RunResult], said: str) -> None:
    (sentence,) = verdicts(arms.group(bench(*runs)))
    assert said in sentence


def _alternating(ratio: float, off: float) -> ResultSet:
    """Three prompts, three loads; the ratio is off by ``off`` above and below in turn."""
    runs = []
    for repeat in range(3):
        for number, tps in enumerate((40.0, 50.0, 60.0)):
            noise = (1 + off) ** (-1) ** (repeat + number)
            told: dict[str, Any] = {"prompt": f"p{number}", "repeat": repeat}
            alone = run(tps=tps, **told)
            drafting = run(Role.DRAFTING, tps=tps * ratio * noise, draft=3, **told)
            runs += [replace(alone, load=2 * repeat), replace(drafting, load=2 * repeat + 1)]
    return bench(*runs)


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
    stored = _alternating(ratio, off)
    page = Page(html(stored))
    card = section(stored).card
    assert (card.verdict, card.headline) == (verdict, headline)
    assert page.words.count(headline) == 1
    assert sum(tag == "h1" for tag, _ in page.elements) == 1
    badges = [about for _, about in page.elements if about.get("class") == "badge"]
    assert len(badges) == 1
    assert f" {verdict}" in page.words  # not by its colour alone


def test_the_card_has_the_figures_and_what_they_rest_on() -> None:
    card = section(_alternating(1.5, 0.002)).card
    assert card.speedup == "1.50×"
    assert re.fullmatch(r"1\.\d\d× to 1\.\d\d× \(95 %\)", card.interval)
    assert [reading.name for reading in card.readings] == [
        "tokens/s, drafting",
        "tokens/s, target alone",
        "accepted",
        "text unchanged",
    ]
    assert [reading.value for reading in card.readings[2:]] == ["75.0 %", "3 of 3"]
    assert card.basis[0] == "Rests on 3 prompts × 3 repeats, 3 loads."


def test_an_undecided_card_recommends_nothing() -> None:
    card = section(_alternating(1.02, 0.2)).card
    told = " ".join((card.headline, *card.notes, card.action, card.command))
    assert "Meanwhile, the target alone is what is safe." in card.notes
    assert not re.search("fastest|draft with|Serve|llama-server", told)


def test_loads_are_named_in_every_row_and_command() -> None:
    found = section(crossed.crossover())
    heads = [column.head for column in found.summary.columns]
    rows = [
        tuple(row[heads.index(head)].text for head in ("users", "depth", "", "γ"))
        for row in found.summary.rows
    ]
    assert len(set(rows)) == len(rows) == 18
    assert len({name for name, _ in found.commands}) == 18
    assert "verdict" not in heads  # the map's are the only ones


def test_pages_of_crossovers_and_servers() -> None:
    card = section(crossed.crossover()).card
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
    assert [about["href"] for tag, about in page.elements if tag == "a"] == [
        "#main",
        "#bench-1",
        "#bench-2",
        "#compared",
    ]
    assert {"bench-1", "bench-2", "compared"} <= {about.get("id") for _, about in page.elements}


def test_commands_and_refusals_are_as_they_stand() -> None:
    page = Page(html([swept(name="before"), swept(name="after", target="another.gguf", sizes=(7,))]))
    assert "before and after have no arm in common." in page.words
    commands = dict(section(swept("a drafter.gguf")).commands)
    assert commands["target: target.gguf"] == "llama -m target.gguf --prompt ''"
    assert "drafting: target.gguf + a drafter.gguf, γ = 4" in commands


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize(
    ("text", "behind"),
    [(text, behind) for text in ("ink", "quiet", "link") for behind in ("paper", "sheet")]
    + [("ink", "warn-sheet")]
    + [(text, behind) for text in ("good", "bad", "warn") for behind in (f"{text}-sheet", "paper")],
)
def test_text_is_readable_in_both_schemes(scheme: str, text: str, behind: str) -> None:
    light, dark = (dict(re.findall(r"--([\w-]+): (#\w{6});", part)) for part in _schemes())
    colours = light if scheme == "light" else dark
    assert contrast(colours[text], colours[behind]) >= 4.5


def _schemes() -> tuple[str, str]:
    first, second, *_ = re.findall(r":root \{(.*?)\}", STYLE.read_text(encoding="utf-8"), re.DOTALL)
    return first, second


def test_the_command_writes_a_page_or_pictures(tmp_path: Path) -> None:
    whole_bench()
    page, pictures = tmp_path / "page.html", tmp_path / "new" / "pictures"
    written = CliRunner().invoke(command, ["--out", str(page)])
    assert written.exit_code == 0
    assert written.stdout == ""
    assert str(page) in written.stderr
    assert page.read_text(encoding="utf-8").startswith("<!doctype html>")
    assert CliRunner().invoke(command, ["last", "-o", "svg", "--out", str(pictures)]).exit_code == 0
    assert sorted(file.name for file in pictures.iterdir()) == ["curve.svg", "drift.svg"]


def test_formats_of_reports() -> None:
    whole_bench()
    piped = CliRunner().invoke(command, ["--out", "-"])
    assert piped.stdout.startswith("<!doctype html>")
    assert piped.stderr == ""
    refused = CliRunner().invoke(command, ["-o", "pgn"])
    assert refused.exit_code == 2
    assert "'pgn' is not one of 'html', 'png', 'svg'" in refused.stderr
