"""The report in a real browser: charts have their data, tables sort, nothing is fetched."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.browsers import COLOURS, Scheme, opened, skip_without_chromium
from tests.support.pages import contrast

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

skip_without_chromium()

CHARTS = ("curve", "heatmap", "positions", "rounds", "pareto", "drift")


@pytest.fixture
def page(chromium: Browser, pages: Mapping[str, Path]) -> Iterator[Page]:
    with opened(chromium, pages["report"]) as shown:
        yield shown


def _column(page: Page, head: str) -> list[str]:
    table = page.locator("#bench-1 table").first
    place = 1 + [text.startswith(head) for text in table.locator("th").all_inner_texts()].index(True)
    return table.locator(f"tbody td:nth-child({place})").all_inner_texts()


def _tooltip(page: Page, chart: str) -> str:
    """Return what the first mark of a chart says when it is pointed at."""
    page.locator(f"{chart} .mark-symbol.role-mark path").first.hover()
    tooltip = page.locator("#vg-tooltip-element.visible")
    tooltip.wait_for()
    return tooltip.inner_text()


def test_every_chart_has_its_data(page: Page) -> None:
    for name, marks, expected in (
        ("curve", "symbol", 4),  # one point for each γ
        ("heatmap", "rect", 8),  # four γ × two categories
        ("positions", "symbol", 8),  # four positions, of two shares
        ("rounds", "rect", 12),  # four γ × three parts
        ("pareto", "symbol", 5),  # the target alone and four γ
        ("drift", "symbol", 24),  # every run
    ):
        chart = page.locator(f"#chart-1-{name}")
        assert chart.locator(f"svg .mark-{marks}.role-mark path").count() == expected, name
        assert chart.get_attribute("role") == "img"
        assert (chart.get_attribute("aria-label") or "").endswith(".")
    said = _tooltip(page, "#chart-1-curve")
    assert "speed-up" in said
    assert "1.20×" in said


def test_a_hostile_bench_is_drawn_as_well(page: Page) -> None:
    assert all(page.locator(f"#chart-2-{name} svg").count() == 1 for name in CHARTS)
    assert "</script><script>" in (page.locator("#chart-2-curve svg").text_content() or "")
    assert page.locator("img").count() == 0
    assert "<img src=x" in _tooltip(page, "#chart-2-drift")


def test_a_click_sorts_and_another_turns_round(page: Page) -> None:
    head = page.locator("#bench-1 th").filter(has_text="tokens/s").first
    head.get_by_role("button").click()
    assert head.get_attribute("aria-sort") == "ascending"
    rising = [float(text.split()[0]) for text in _column(page, "tokens/s")]
    assert rising == sorted(rising)
    head.get_by_role("button").click()
    assert head.get_attribute("aria-sort") == "descending"
    assert [float(text.split()[0]) for text in _column(page, "tokens/s")] == rising[::-1]
    assert page.locator("#said").inner_text() == "Sorted by tokens/s, descending."


def test_the_keyboard_reaches_the_results_first_sorts_and_leaves_what_is_absent_last(page: Page) -> None:
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the results"
    assert page.locator(".skip").bounding_box()["x"] >= 0  # it is on the page
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    button = page.locator("#bench-1 th").filter(has_text="γ").first.get_by_role("button")
    for key, sizes in (("Enter", ["1", "2", "3", "4", ""]), ("Space", ["4", "3", "2", "1", ""])):
        button.press(key)
        assert _column(page, "γ") == sizes


def test_data_and_commands_unfold_and_are_copied(page: Page) -> None:
    figure = page.locator("#bench-1 figure").first
    figure.locator("summary").press("Enter")
    assert figure.locator("tbody tr").first.is_visible()
    page.locator("#bench-1 .commands > summary").click()
    assert "--prompt" in page.locator("#bench-1 .commands code").first.inner_text()
    page.locator("#bench-1 .copy").first.click()
    page.wait_for_function("() => document.getElementById('said').textContent !== ''")
    assert page.locator("#said").inner_text() in {"Copied.", "Selected; copy it with your keyboard."}


OVERLAPS = """() => [...document.querySelectorAll('.chart svg')].flatMap((svg) => {
  const boxes = (selector) => [...svg.querySelectorAll(selector)].filter((text) => text.textContent.trim())
    .map((text) => [text.textContent, text.getBoundingClientRect()]);
  const ticks = boxes('.role-axis-label text');
  return boxes('.mark-text.role-mark text').flatMap(([label, one]) => ticks
    .filter(([, other]) => one.left < other.right && other.left < one.right
      && one.top < other.bottom && other.top < one.bottom)
    .map(([tick]) => `${svg.closest('.chart').id}: ${label} on ${tick}`));
})"""
"""Labels of charts that cover a tick's label."""


@pytest.mark.parametrize("width", [390, 800, 1400])
@pytest.mark.parametrize("name", ["report", "undecided", "crossover"])
def test_labels_cover_no_ticks_no_card_is_empty_and_there_is_one_headline(
    chromium: Browser, pages: Mapping[str, Path], name: str, width: int
) -> None:
    with opened(chromium, pages[name], width) as shown:
        assert shown.evaluate(OVERLAPS) == []
        assert shown.evaluate("document.documentElement.scrollWidth") <= width
        for chart in shown.locator(".chart").all():
            assert chart.locator("svg .role-mark path, svg .role-mark line").count() > 0
            assert chart.locator("svg").bounding_box()["width"] <= width
        if name != "report":  # which has harmful names
            assert (shown.locator("h1").count(), shown.locator(".badge").count()) == (1, 1)
            assert "`" not in shown.locator("main").inner_text()


@pytest.mark.parametrize("scheme", COLOURS)
@pytest.mark.parametrize("name", ["undecided", "crossover"])
def test_the_first_screen_of_a_phone_has_the_verdict_and_the_speed_up(
    chromium: Browser, pages: Mapping[str, Path], name: str, scheme: Scheme
) -> None:
    with opened(chromium, pages[name], 420, scheme) as shown:
        for selector in (".badge", "h1", ".speedup dd >> nth=0"):
            box = shown.locator(selector).bounding_box()
            assert box["x"] >= 0
            assert box["x"] + box["width"] <= 420
            assert box["y"] + box["height"] <= 844
        assert shown.locator(".speedup dd").first.inner_text().endswith("×")
        paper = shown.evaluate("getComputedStyle(document.body).backgroundColor")
        fill = "node => getComputedStyle(node).fill"
        ink = shown.locator(".role-axis-label text").first.evaluate(fill)
        assert [paper, ink] == COLOURS[scheme]
        badge = "node => [getComputedStyle(node).color, getComputedStyle(node).backgroundColor]"
        colours = [re.findall(r"\d+", rgb) for rgb in shown.locator(".badge").evaluate(badge)]
        ink, paper = ("#" + "".join(f"{int(part):02x}" for part in parts) for parts in colours)
        assert contrast(ink, paper) >= 4.5


def test_an_undecided_card_recommends_nothing(chromium: Browser, pages: Mapping[str, Path]) -> None:
    with opened(chromium, pages["undecided"], 800) as shown:
        card = shown.locator(".card").inner_text()
        assert "estimate" in shown.locator(".badge").inner_text()  # of two loads
        assert "the target alone is what is safe" in card
        assert not re.search("fastest|[Dd]raft with|[Dd]o not draft|Serve it", card)
        curve = shown.locator("#chart-1-curve svg")
        assert curve.locator(".mark-rect.role-mark path").count() == 2  # the target alone and one draft size
        assert curve.locator(".mark-line").count() == 0


def test_paper_is_light_and_shows_the_commands(chromium: Browser, pages: Mapping[str, Path]) -> None:
    with opened(chromium, pages["report"], scheme="dark") as page:
        page.emulate_media(media="print")
        page.evaluate("dispatchEvent(new Event('beforeprint'))")
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
        assert page.locator("#bench-1 .commands code").first.is_visible()
        assert not page.locator("#bench-1 .copy").first.is_visible()
        assert page.pdf().startswith(b"%PDF")


def test_the_map_of_a_crossover_has_its_cells_and_its_line(
    chromium: Browser, pages: Mapping[str, Path]
) -> None:
    with opened(chromium, pages["crossover"]) as shown:
        chart = shown.locator("#chart-1-crossover svg")
        assert chart.locator(".mark-rect.role-mark path").count() == 8
        assert chart.locator(".mark-rule.role-mark line").count() == 6  # around 2 users, below 4
        labels = chart.locator(".mark-text.role-mark text").all_text_contents()
        assert sum(label.startswith("~") for label in labels) == 2  # 2 users are forecast
        assert sum("1.80×" in label for label in labels) == 2
        assert any("4,096" in text for text in chart.locator("text").all_text_contents())
        assert shown.locator("#bench-1 h1").inner_text().startswith("Draft with γ = 2 for 1 user")
