"""Draft sizes by how many users a server answers at once, over a bench of several numbers of users.

vLLM has such schedules (``num_speculative_tokens_per_batch_size``); so has TensorRT-LLM
(``draft_len_schedule``). A server whose users are always as many drafts as with that fixed size, so nothing
is replayed but chosen.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from statistics import fmean

from ggufspec.domain import RunResult, Status
from ggufspec.errors import GgufspecError
from ggufspec.stats import Estimate, mean_over_prompts

_NEEDED = "measure them with `ggufspec bench --engine server --parallel 1,4,16 --draft 1,4,8`"
_FORMS = "write 4:4,8:2,32:1, or [[1, 4, 4], [5, 8, 2], [9, 32, 1]]"
_SEVERAL = 2


@dataclass(frozen=True)
class DraftSchedule:
    """Draft sizes by the number of users: from, to, and γ.

    ``beyond`` is γ for more users than it names; None where it says nothing of them.
    """

    parts: tuple[tuple[int, int, int], ...]
    beyond: int | None = None

    @classmethod
    def parse(cls, text: str) -> DraftSchedule:
        """Read TensorRT-LLM's form, as 4:4,8:2 (up to so many users; 0 for more), or vLLM's list of lists.

        Raises:
            GgufspecError: it is neither.
        """
        try:
            if text.lstrip().startswith("["):
                return cls(
                    tuple((int(first), int(last), int(size)) for first, last, size in json.loads(text))
                )
            pairs = sorted(
                (int(last), int(size)) for last, size in (part.split(":") for part in text.split(","))
            )
        except (ValueError, TypeError) as error:
            raise GgufspecError(f"{text} is not a schedule", _FORMS) from error
        firsts = (1, *(last + 1 for last, _ in pairs))
        return cls(tuple((first, *pair) for first, pair in zip(firsts, pairs, strict=False)), beyond=0)

    def size(self, users: int) -> int:
        """Return γ for a number of users; 0 does not draft.

        Raises:
            GgufspecError: it does not say.
        """
        named = next((size for first, last, size in self.parts if first <= users <= last), self.beyond)
        if named is None:
            raise GgufspecError(f"the schedule says nothing of {users} users", _FORMS)
        return named


@dataclass(frozen=True, kw_only=True)
class ScheduleGain:
    """What a schedule does at one number of users and depth; ratios have 95 % intervals over repeats.

    Attributes:
        users: at once.
        depth: tokens of other text before each prompt.
        size: γ by the schedule; 0 does not draft.
        gain: over the target alone.
        over_fixed: over the fixed draft size that is best over all numbers of users.
        of_oracle: over the size that is best here.
    """

    users: int
    depth: int
    size: int
    gain: Estimate
    over_fixed: Estimate
    of_oracle: Estimate


@dataclass(frozen=True, kw_only=True)
class ScheduleComparison:
    """A schedule over all numbers of users and depths of a bench.

    Attributes:
        bench: its id.
        schedule: the one that was asked for, or what is best at each number of users.
        best_fixed: the draft size that is best over all of them, by the mean of the logarithms.
        gains: by users and depth.
        over_fixed: the geometric mean over them, with its 95 % interval over repeats.
    """

    bench: str
    schedule: DraftSchedule
    best_fixed: int
    gains: tuple[ScheduleGain, ...]
    over_fixed: Estimate


_Cells = Mapping[tuple[int, int], Mapping[int, Mapping[int, float]]]
"""Users and depth -> γ, 0 for the target alone -> repeat -> the logarithm of tokens/s of all users."""


def compare_schedule(
    stored: Sequence[RunResult], schedule: DraftSchedule | None, bench: str = ""
) -> ScheduleComparison:
    """Compare a schedule with the best fixed draft size, and with the best one for each number of users.

    Args:
        stored: runs of several users.
        schedule: None for what is best at each number of users.
        bench: its id.

    Raises:
        GgufspecError: there are too few numbers of users or draft sizes, or the schedule has another size.
    """
    cells = _read_cells(stored)
    shared = set[int].intersection(*(set(sizes) for sizes in cells.values())) if cells else set[int]()
    if len({users for users, _ in cells}) < _SEVERAL or 0 not in shared or len(shared) <= _SEVERAL:
        raise GgufspecError(
            "the bench does not have the target alone and two draft sizes at several numbers of users",
            _NEEDED,
        )
    means = {
        cell: {size: fmean(logs.values()) for size, logs in sizes.items()} for cell, sizes in cells.items()
    }
    fixed = max(shared - {0}, key=lambda size: fmean(cell[size] for cell in means.values()))
    best = {cell: max(by_size, key=by_size.__getitem__) for cell, by_size in means.items()}
    if schedule is None:
        numbers = sorted({users for users, _ in cells})
        firsts = (1, *(users + 1 for users in numbers))
        sizes = [_best_at(means, users, shared) for users in numbers]
        schedule = DraftSchedule(tuple(zip(firsts, numbers, sizes, strict=False)))
    gains, overs = [], []
    for cell, by_size in sorted(cells.items()):
        size = schedule.size(cell[0])
        if size not in by_size:
            raise GgufspecError(f"the bench has no γ {size} at {cell[0]} users", "measure it with --draft")
        overs.append(_differences(by_size[size], by_size[fixed]))
        gains.append(
            ScheduleGain(
                users=cell[0],
                depth=cell[1],
                size=size,
                gain=_ratio(_differences(by_size[size], by_size[0])),
                over_fixed=_ratio(overs[-1]),
                of_oracle=_ratio(_differences(by_size[size], by_size[best[cell]])),
            )
        )
    everywhere = set[int].intersection(*map(set, overs))
    over = {repeat: fmean(logs[repeat] for logs in overs) for repeat in everywhere}
    over = over or {0: fmean(fmean(logs.values()) for logs in overs)}  # runs failed in every repeat
    return ScheduleComparison(
        bench=bench, schedule=schedule, best_fixed=fixed, gains=tuple(gains), over_fixed=_ratio(over)
    )


def _best_at(means: Mapping[tuple[int, int], Mapping[int, float]], users: int, sizes: Set[int]) -> int:
    """Return the size that is best at a number of users, over all depths."""
    here = [by_size for (cell_users, _), by_size in means.items() if cell_users == users]
    return max(sizes, key=lambda size: fmean(by_size[size] for by_size in here))


def _read_cells(stored: Sequence[RunResult]) -> _Cells:
    cells: dict[tuple[int, int], dict[int, dict[int, float]]] = {}
    for run in stored:
        traffic, rate = run.spec.traffic, run.sample.decode_tps
        if traffic is None or run.sample.status is not Status.OK or not rate:
            continue
        size = 0 if run.spec.drafting is None else run.spec.drafting.n_max
        by_size = cells.setdefault((traffic.users, traffic.depth), {})
        by_size.setdefault(size, {})[run.repeat] = math.log(rate)
    return cells


def _differences(one: Mapping[int, float], other: Mapping[int, float]) -> dict[int, float]:
    """Return the differences of two logarithms in the repeats that both have."""
    return {repeat: one[repeat] - other[repeat] for repeat in one.keys() & other.keys()}


def _ratio(logs: Mapping[int, float]) -> Estimate:
    """Return the ratio of two speeds from its logarithms by repeat."""
    return mean_over_prompts({str(repeat): math.exp(log) for repeat, log in logs.items()})
