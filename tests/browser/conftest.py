"""A real Chromium without a window, and the pages that reports make of artificial benches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ggufspec.report.html.sections import html
from tests.support import crossed
from tests.support.browsers import find_chromium
from tests.support.swept import HARMFUL, swept

if TYPE_CHECKING:
    from playwright.sync_api import Browser

_QUIET = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync"),
)


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """A Chromium without a window."""
    from playwright.sync_api import sync_playwright  # not at once: each worker imports this file

    with sync_playwright() as started:
        browser = started.chromium.launch(executable_path=find_chromium(), args=list(_QUIET))
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Path]:
    """Pages on two benches, of which one has harmful names everywhere; on one draft size, which too few runs
    leave undecided; and on a crossover.
    """
    folder = tmp_path_factory.mktemp("pages")
    files = {name: folder / f"{name}.html" for name in ("report", "undecided", "crossover")}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GGUFSPEC_DATA", str(folder / "data"))
        hostile = swept(HARMFUL, "another-drafter-with-a-long-name-Q4_K_M.gguf", tag=HARMFUL, name="hostile")
        plain = swept(sizes=(1, 2, 3, 4), name="plain")
        files["report"].write_text(html([plain, hostile]), encoding="utf-8")
        files["undecided"].write_text(html(swept(sizes=(2,))), encoding="utf-8")
        files["crossover"].write_text(html(crossed.crossover()), encoding="utf-8")
    return files
