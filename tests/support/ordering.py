"""In which order tests run: the long ones begin first, so that none is left when all others are done.

A test that takes some ten seconds or more says so: ``@pytest.mark.takes(40)``, in seconds on two cores. Those
that share what takes long, or would wait for each other, say what that is, and run one after the other in one
process: ``@pytest.mark.takes(40, together="host lock")``.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest


def deal(items: Sequence[pytest.Item], workers: int) -> list[pytest.Item]:
    """Return the tests in an order in which every worker of pytest-xdist begins with long ones.

    ``--dist worksteal`` gives each worker as many tests as every other, which follow each other in the list.
    A worker that has none left takes them from the end of another one's part.
    """
    parts: list[list[pytest.Item]] = [[] for _ in range(workers)]
    for group in sorted(_long(items), key=_takes_s, reverse=True):
        min(parts, key=_takes_s).extend(group)
    short = [item for item in items if not _takes_s([item])]
    left = len(items)
    for number, part in enumerate(parts):
        missing = max(0, left // (workers - number) - len(part))
        part += short[:missing]
        del short[:missing]
        left -= len(part)
    return [item for part in parts for item in part]


def _long(items: Sequence[pytest.Item]) -> list[list[pytest.Item]]:
    """Return the long tests, those together that say so."""
    groups: dict[object, list[pytest.Item]] = {}
    for item in items:
        if marker := item.get_closest_marker("takes"):
            groups.setdefault(marker.kwargs.get("together", item), []).append(item)
    return [*groups.values()]


def _takes_s(items: Sequence[pytest.Item]) -> float:
    markers = (item.get_closest_marker("takes") for item in items)
    return sum(float(marker.args[0]) for marker in markers if marker)
