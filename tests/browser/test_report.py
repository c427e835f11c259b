"""The report in a real browser: charts have their data, tables sort, nothing is fetched."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import pytest

from tests.support.browsers import skip_without_chromium
from tests.support.pages import contrast

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

skip_without_chromium()

CHARTS = ("curve", "heatmap", "positions", "rounds", "pareto", "drift")
DRAWN = "() => document.querySelectorAll('.chart[data-drawn]').length === 12"


@pytest.fixture
def page(chromium: Browser, report: Path) -> Iterator[Page]:
    """The report, drawn, which has asked for nothing but itself and has nothing to complain about."""
    with chromium.new_context(viewport={"width": 1280, "height": 900}) as context:
        shown = context.new_page()
        shown.set_default_timeout(10_000)
        asked, said = _watch(shown)
        shown.goto(report.as_uri())
        shown.wait_for_function(DRAWN)
        yield shown
        assert asked == [report.as_uri()]
        assert said == []


def _watch(page: Page) -> tuple[list[str], list[str]]:
    asked: list[str] = []
    said: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("dialog", lambda dialog: said.append(dialog.message))
    return asked, said


def _column(page: Page, number: int) -> list[str]:
    return page.locator("#bench-1 table").first.locator(f"tbody td:nth-child({number})").all_inner_texts()


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


def test_a_hostile_bench_is_drawn_as_well(page: Page) -> None:
    assert all(page.locator(f"#chart-2-{name} svg").count() == 1 for name in CHARTS)
    assert "</script><script>" in (page.locator("#chart-2-curve svg").text_content() or "")
    assert page.locator("img").count() == 0
    page.locator("#chart-2-drift .mark-symbol.role-mark path").first.hover()
    tooltip = page.locator("#vg-tooltip-element.visible")
    tooltip.wait_for()
    assert "<img src=x" in tooltip.inner_text()


def test_a_point_says_its_numbers(page: Page) -> None:
    page.locator("#chart-1-curve .mark-symbol.role-mark path").first.hover()
    tooltip = page.locator("#vg-tooltip-element.visible")
    tooltip.wait_for()
    assert "speed-up" in tooltip.inner_text()
    assert "1.20×" in tooltip.inner_text()


def test_a_click_sorts_and_another_turns_round(page: Page) -> None:
    head = page.locator("#bench-1 th").filter(has_text="tokens/s").first
    head.get_by_role("button").click()
    assert head.get_attribute("aria-sort") == "ascending"
    rising = [float(text.split()[0]) for text in _column(page, 3)]
    assert rising == sorted(rising)
    head.get_by_role("button").click()
    assert head.get_attribute("aria-sort") == "descending"
    assert [float(text.split()[0]) for text in _column(page, 3)] == rising[::-1]
    assert page.locator("#said").inner_text() == "Sorted by tokens/s, descending."


def test_the_keyboard_sorts_and_what_is_absent_stays_last(page: Page) -> None:
    button = page.locator("#bench-1 th").filter(has_text="γ").first.get_by_role("button")
    for key in ("Enter", "Space"):
        button.press(key)
        assert _column(page, 2)[-1] == ""
    assert _column(page, 2) == ["4", "3", "2", "1", ""]


def test_the_keyboard_reaches_the_results_first(page: Page) -> None:
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the results"
    assert page.locator(".skip").bounding_box()["x"] >= 0  # it is on the page
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"


def test_data_and_commands_unfold(page: Page) -> None:
    figure = page.locator("#bench-1 figure").first
    figure.locator("summary").press("Enter")
    assert figure.locator("tbody tr").first.is_visible()
    page.locator("#bench-1 .commands > summary").click()
    assert "--prompt" in page.locator("#bench-1 .commands code").first.inner_text()


def test_a_command_is_copied_or_selected(page: Page) -> None:
    page.locator("#bench-1 .copy").first.click()
    page.wait_for_function("() => document.getElementById('said').textContent !== ''")
    assert page.locator("#said").inner_text() in {"Copied.", "Selected; copy it with your keyboard."}


@pytest.mark.parametrize(
    ("scheme", "width"), [("light", 1280), ("dark", 1280), ("light", 390), ("dark", 390)]
)
def test_it_fits_wide_and_narrow_in_light_and_dark(
    chromium: Browser, report: Path, tmp_path_factory: pytest.TempPathFactory, scheme: str, width: int
) -> None:
    with chromium.new_context(
        viewport={"width": width, "height": 844}, color_scheme="dark" if scheme == "dark" else "light"
    ) as context:
        page = context.new_page()
        page.goto(report.as_uri())
        page.wait_for_function(DRAWN)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        for name in CHARTS:
            box = page.locator(f"#chart-1-{name} svg").bounding_box()
            assert box["width"] <= width
        paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
        ink = page.locator("#chart-1-curve .role-axis-label text").first.evaluate(
            "node => getComputedStyle(node).fill"
        )
        assert (paper, ink) == {
            "light": ("rgb(255, 255, 255)", "rgb(31, 35, 40)"),
            "dark": ("rgb(20, 24, 29)", "rgb(230, 237, 243)"),
        }[scheme]
        page.screenshot(path=tmp_path_factory.getbasetemp() / f"report-{scheme}-{width}.png", full_page=True)


REPORTS = ("report", "undecided_report", "crossover_report")
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


def _open(chromium: Browser, file: Path, width: int, scheme: Literal["light", "dark"] = "light") -> Page:
    """Open a page in a window of this width, and wait until its charts are drawn."""
    shown = chromium.new_context(viewport={"width": width, "height": 844}, color_scheme=scheme).new_page()
    shown.goto(file.as_uri())
    shown.wait_for_function(
        "() => document.querySelectorAll('.chart[data-drawn]').length"
        " === document.querySelectorAll('.chart').length"
    )
    return shown


@pytest.mark.parametrize("width", [420, 800, 1400])
@pytest.mark.parametrize("name", REPORTS)
def test_labels_cover_no_ticks_no_card_is_empty_and_there_is_one_headline(
    chromium: Browser, request: pytest.FixtureRequest, name: str, width: int
) -> None:
    shown = _open(chromium, request.getfixturevalue(name), width)
    assert shown.evaluate(OVERLAPS) == []
    assert shown.evaluate("document.documentElement.scrollWidth") <= width
    for chart in shown.locator(".chart").all():
        assert chart.locator("svg .role-mark path, svg .role-mark line").count() > 0
    if name != "report":  # which has harmful names
        assert (shown.locator("h1").count(), shown.locator(".badge").count()) == (1, 1)
        assert "`" not in shown.locator("main").inner_text()
    shown.context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", REPORTS[1:])
def test_the_first_screen_of_a_phone_has_the_verdict_and_the_speed_up(
    chromium: Browser, request: pytest.FixtureRequest, name: str, scheme: Literal["light", "dark"]
) -> None:
    shown = _open(chromium, request.getfixturevalue(name), 420, scheme)
    for selector in (".badge", "h1", ".speedup dd >> nth=0"):
        box = shown.locator(selector).bounding_box()
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= 420
        assert box["y"] + box["height"] <= 844
    assert shown.locator(".speedup dd").first.inner_text().endswith("×")
    badge = shown.locator(".badge").evaluate(
        "node => [getComputedStyle(node).color, getComputedStyle(node).backgroundColor]"
    )
    ink, paper = ("#" + "".join(f"{int(part):02x}" for part in re.findall(r"\d+", rgb)) for rgb in badge)
    assert contrast(ink, paper) >= 4.5
    shown.context.close()


def test_an_undecided_card_recommends_nothing(chromium: Browser, undecided_report: Path) -> None:
    shown = _open(chromium, undecided_report, 800)
    card = shown.locator(".card").inner_text()
    assert "estimate" in shown.locator(".badge").inner_text()  # of two loads
    assert "the target alone is what is safe" in card
    assert not re.search("fastest|[Dd]raft with|[Dd]o not draft|Serve it", card)
    curve = shown.locator("#chart-1-curve svg")
    assert (
        curve.locator(".mark-rect.role-mark path").count() == 2
    )  # bars: the target alone and one draft size
    assert curve.locator(".mark-line").count() == 0
    shown.context.close()


def test_paper_is_light_and_shows_the_commands(chromium: Browser, report: Path) -> None:
    with chromium.new_context(color_scheme="dark") as context:
        page = context.new_page()
        page.goto(report.as_uri())
        page.wait_for_function(DRAWN)
        page.emulate_media(media="print")
        page.evaluate("dispatchEvent(new Event('beforeprint'))")
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
        assert page.locator("#bench-1 .commands code").first.is_visible()
        assert not page.locator("#bench-1 .copy").first.is_visible()
        assert page.pdf().startswith(b"%PDF")


def test_the_map_of_a_crossover_has_its_cells_and_its_line(chromium: Browser, crossover_report: Path) -> None:
    with chromium.new_context(viewport={"width": 1280, "height": 900}) as context:
        shown = context.new_page()
        shown.set_default_timeout(10_000)
        asked, said = _watch(shown)
        shown.goto(crossover_report.as_uri())
        chart = shown.locator("#chart-1-crossover")
        chart.locator("svg").wait_for()
        assert chart.locator("svg .mark-rect.role-mark path").count() == 8
        assert chart.locator("svg .mark-rule.role-mark line").count() == 6  # around 2 users, below 4
        labels = chart.locator("svg .mark-text.role-mark text").all_text_contents()
        assert sum(label.startswith("~") for label in labels) == 2  # 2 users are forecast
        assert sum("1.80×" in label for label in labels) == 2
        assert any("4,096" in text for text in chart.locator("svg text").all_text_contents())
        assert shown.locator("#bench-1 h1").inner_text().startswith("Draft with γ = 2 for 1 user")
        assert (asked, said) == ([crossover_report.as_uri()], [])
