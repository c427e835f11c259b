"""What the verification of a bundle has found so far, and when two values agree."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from ggufspec.harmless import one_line

_MOST_RUNS_NAMED = 5
_CLOSE = 1e-9  # relative: sums round differently on other processors and Pythons


@dataclass(kw_only=True)
class Report:
    """What has been found so far.

    Attributes:
        findings: sentences on what does not follow.
        unchecked: what cannot be recomputed -> of which runs or files.
        n_runs: runs whose logs were read again.
        n_figures: figures that follow from these logs.
    """

    findings: list[str] = field(default_factory=list)
    unchecked: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    n_runs: int = 0
    n_figures: int = 0

    def find(self, sentence: str) -> None:
        """Add a finding."""
        self.findings.append(one_line(sentence))

    def skip(self, reason: str, *names: str) -> None:
        """Add runs or files to what cannot be recomputed for a reason; without names, all of them."""
        self.unchecked[reason] += names

    def sentences(self) -> Iterator[str]:
        """Yield what cannot be recomputed, with the first few names."""
        for reason, names in self.unchecked.items():
            more = len(names) - _MOST_RUNS_NAMED
            listed = ", ".join(names[:_MOST_RUNS_NAMED]) + (f" and {more} more" if more > 0 else "")
            yield one_line(f"{reason}: {listed}" if names else reason)


def is_close(first: Any, second: Any) -> bool:
    """Whether two values are equal, numbers up to rounding."""
    if isinstance(first, float) or isinstance(second, float):
        numbers = isinstance(first, int | float) and isinstance(second, int | float)
        return numbers and math.isclose(first, second, rel_tol=_CLOSE, abs_tol=1e-12)
    if isinstance(first, list | tuple) and isinstance(second, list | tuple):
        return len(first) == len(second) and all(map(is_close, first, second))
    if isinstance(first, dict) and isinstance(second, dict):
        return first.keys() == second.keys() and all(is_close(first[key], second[key]) for key in first)
    return bool(first == second)
