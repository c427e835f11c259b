"""Long tests begin first, in each of the processes that run tests side by side."""

from __future__ import annotations

import pytest

from tests.support import ordering

pytest_plugins = ["pytester"]


@pytest.fixture
def items(pytester: pytest.Pytester) -> list[pytest.Item]:
    """Twelve tests: the last ones of the file are long, and two of these wait for each other."""
    short = "\n".join(f"def test_{letter}(): pass" for letter in "abcdefg")
    long = "\n".join(
        f"@pytest.mark.takes({takes})\ndef test_{letter}(): pass"
        for letter, takes in zip(
            "vwxyz", ("5", "30", "20", "15, together='a'", "25, together='a'"), strict=True
        )
    )
    pytester.makeini("[pytest]\nmarkers = takes")
    return pytester.getitems(f"import pytest\n{short}\n{long}")


@pytest.mark.parametrize(
    ("workers", "expected"),
    [(1, "yzwxvabcdefg"), (2, "yzvabc wxdefg"), (3, "yzab wcde xvfg"), (6, "yz wa xb vc de fg")],
)
def test_every_worker_begins_with_long_tests(items: list[pytest.Item], workers: int, expected: str) -> None:
    dealt = ordering.deal(items, workers)
    assert "".join(item.name.removeprefix("test_") for item in dealt) == expected.replace(" ", "")


def test_without_long_tests_the_order_stays(items: list[pytest.Item]) -> None:
    assert ordering.deal(items[:7], 3) == items[:7]
