"""The browser that opens pages: tests without one say in one line how to get it."""

from __future__ import annotations

import importlib.util
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

Scheme = Literal["light", "dark"]
COLOURS = {
    "light": ["rgb(255, 255, 255)", "rgb(31, 35, 40)"],
    "dark": ["rgb(20, 24, 29)", "rgb(230, 237, 243)"],
}
"""Of pages and of their text."""
_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_DRAWN = (
    "() => document.querySelectorAll('.chart[data-drawn]').length"
    " === document.querySelectorAll('.chart').length"
)


def find_chromium() -> str | None:
    """Return the Chromium that GGUFSPEC_CHROMIUM names, or the one of this machine."""
    return os.environ.get("GGUFSPEC_CHROMIUM") or next(filter(None, map(shutil.which, _NAMES)), None)


def skip_without_chromium() -> None:
    """Skip the module that is being imported, if no Chromium is here, or nothing that drives it."""
    if importlib.util.find_spec("playwright") is None:
        pytest.skip("playwright is not installed: pip install playwright", allow_module_level=True)
    if find_chromium() is None:
        pytest.skip(
            "no Chromium is here: install it (Debian: apt-get install chromium) or set GGUFSPEC_CHROMIUM",
            allow_module_level=True,
        )


@contextmanager
def opened(chromium: Browser, file: Path, width: int = 1280, scheme: Scheme = "light") -> Iterator[Page]:
    """Open a page whose charts are drawn, which asks for nothing but itself and does not complain."""
    height = 900 if width > 1000 else 844
    with chromium.new_context(viewport={"width": width, "height": height}, color_scheme=scheme) as context:
        shown = context.new_page()
        shown.set_default_timeout(10_000)
        events: list[str] = []
        shown.on("request", lambda request: events.append(request.url))
        shown.on("console", lambda message: events.append(message.text))
        shown.on("pageerror", lambda error: events.append(str(error)))
        shown.on("dialog", lambda dialog: events.append(dialog.message))
        shown.goto(file.as_uri())
        shown.wait_for_function(_DRAWN)
        yield shown
        assert events == [file.as_uri()]
