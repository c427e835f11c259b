"""Every command that the documentation shows, run for real; those of fleets are in test_fleet.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from ggufspec.llama.install.installs import Install
from tests.support import imagined_times, reading
from tests.support.documentation import PAGES, ROOT, blocks

_OF_FLEETS = "fleet.md"
_RUN = {page: [block for block in blocks(page) if block.is_run] for page in PAGES if page.name != _OF_FLEETS}


def _takes(page: Path) -> pytest.MarkDecorator:
    """Say about how long the commands of a page take: those that measure take long."""
    body = "\n".join(block.body for block in _RUN[page])
    return pytest.mark.takes(3 + 8 * body.count("bench ") + 10 * body.count("tune "))


@pytest.mark.timeout(4 * reading.PATIENCE_S)
@pytest.mark.parametrize(
    "page",
    [pytest.param(page, id=str(page.relative_to(ROOT)), marks=_takes(page)) for page in _RUN if _RUN[page]],
)
@pytest.mark.usefixtures("legacy")
def test_the_commands_of_a_page_do_what_it_shows(
    page: Path, llama: Install, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    imagined_times.shorten(monkeypatch.setattr)
    reading.read(page, reading.reader(tmp_path / "home-of-a-reader", llama))
