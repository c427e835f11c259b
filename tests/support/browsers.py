"""The browser that opens pages: tests without one say in one line how to get it."""

from __future__ import annotations

import importlib.util
import os
import shutil

import pytest

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


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
