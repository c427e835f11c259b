from __future__ import annotations

import pytest

from ggufspec.llama.install.releases import build_number


@pytest.mark.parametrize(
    ("release", "number"),
    [
        ("0.2.63", 2699),
        ("0.2.64", 2699),
        ("0.3.16", 6170),
        ("0.3.19", 8475),
        ("0.3.36", 11312),
        ("b4159", 4159),
    ],
)
def test_known_and_neighbouring_releases(release: str, number: int) -> None:
    assert build_number(release) == number


@pytest.mark.parametrize("release", ["0.3.37", "1.0.0", "local-tree", "deadbeef", "0.3", "bad"])
def test_what_follows_todays_rules(release: str) -> None:
    assert build_number(release) is None
