"""When a bench that is measured until its verdicts are decided is looked at."""

from __future__ import annotations

import math
from dataclasses import dataclass

_FIRST_LOOK = 4  # repeats; fewer make Student's t too wide to decide anything
_GROWTH = 1.5


def schedule_looks(most_repeats: int, least_repeats: int = 1) -> tuple[int, ...]:
    """Return after how many complete repeats a bench is looked at.

    Args:
        most_repeats: the last look.
        least_repeats: no look comes before so many.
    """
    looks = [min(max(_FIRST_LOOK, least_repeats), most_repeats)]
    while looks[-1] < most_repeats:
        looks.append(min(math.ceil(looks[-1] * _GROWTH), most_repeats))
    return tuple(looks)


@dataclass(frozen=True, kw_only=True)
class StoppingRule:
    """When a bench is looked at, and by how many comparisons its error of 5 % is shared.

    ``comparisons`` is the number of arms that draft, in all blocks. Each block has looks of its own.
    """

    least_repeats: int
    most_repeats: int
    comparisons: int

    @property
    def looks(self) -> tuple[int, ...]:
        """After how many complete repeats there is a look."""
        return schedule_looks(self.most_repeats, self.least_repeats)

    @property
    def tests(self) -> int:
        """By how many tests the error is shared."""
        return len(self.looks) * max(1, self.comparisons)

    def last_look(self, repeats: int) -> int | None:
        """Return the last look that so many complete repeats reach; None before the first one."""
        return max((look for look in self.looks if look <= repeats), default=None)
