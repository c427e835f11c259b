"""Rules for the draft size: how many tokens to draft next, from the rounds of a request so far.

A rule of your own is a Python file with a function of this signature, whose name is that of the rule:

    def halve(rounds, seconds, largest):
        "Half as many after a draft that was not accepted as a whole, else one more."
        if not rounds:
            return largest
        drafted, accepted = rounds[-1]
        return drafted + 1 if accepted == drafted else drafted // 2
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from ggufspec import userfiles
from ggufspec.domain import Round
from ggufspec.errors import GgufspecError

Rule = Callable[[Sequence[Round], Callable[[int], float], int], int]
"""Takes the rounds of a request so far, the seconds of a round by its drafted tokens, and the largest draft
size. Returns how many tokens to draft; others than 0 to the largest are taken for the nearest of them.
"""

_EXPLORED = 0.1  # the share of rounds in which the ε-greedy rule tries any size
_TRIED = 64  # rounds by which it judges sizes
_REMEMBERED = 8  # rounds, by the rule of the mean


def fixed(size: int) -> Rule:
    """Return the rule that always drafts as many."""
    return lambda rounds, seconds, largest: size


def follow(rounds: Sequence[Round], seconds: Callable[[int], float], largest: int) -> int:
    """Draft one token more than the last round accepted, and two more if it accepted its whole draft."""
    if not rounds:
        return largest
    drafted, accepted = rounds[-1]
    return accepted + 1 + (accepted == drafted)


def mean(rounds: Sequence[Round], seconds: Callable[[int], float], largest: int) -> int:
    """Draft one token more than the last eight rounds accepted on average."""
    if not rounds:
        return largest
    last = rounds[-_REMEMBERED:]
    return 1 + round(sum(entry.accepted for entry in last) / len(last))


def epsilon_greedy(rounds: Sequence[Round], seconds: Callable[[int], float], largest: int) -> int:
    """Draft the size that gave most tokens/s so far, and in every tenth round any size."""
    draw = random.Random(len(rounds))  # noqa: S311  # not for secrets: the same in every replay
    if not rounds or draw.random() < _EXPLORED:
        return draw.randint(0, largest)
    written: dict[int, list[float]] = {}
    for drafted, accepted in rounds[-_TRIED:]:
        of_size = written.setdefault(drafted, [0.0, 0.0])
        of_size[0] += accepted + 1
        of_size[1] += seconds(drafted)
    return max(written, key=lambda size: written[size][0] / written[size][1])


RULES: dict[str, Rule] = {"follow": follow, "mean": mean, "epsilon-greedy": epsilon_greedy}


def best_sizes(right: Sequence[bool], seconds: Callable[[int], float], largest: int) -> tuple[int, ...]:
    """Return the draft size of each round of the oracle, which knows the text: no rule can be faster.

    Args:
        right: which tokens the drafter has right.
        seconds: of a round that drafts so many tokens.
        largest: the largest draft size.
    """
    size = len(right)
    left = [0.0] * (size + 1)  # seconds from each place on
    choice = [0] * size
    for at in range(size - 1, -1, -1):
        accepted = 0
        left[at], best = seconds(0) + left[at + 1], 0
        while accepted < min(largest, size - at - 1) and right[at + accepted]:
            accepted += 1  # to draft more than is accepted only costs
            time = seconds(accepted) + left[at + accepted + 1]
            if time < left[at]:
                left[at], best = time, accepted
        choice[at] = best
    sizes, at = [], 0
    while at < size:
        sizes.append(choice[at])
        at += choice[at] + 1
    return tuple(sizes)


def replay(
    right: Sequence[bool], rule: Rule, seconds: Callable[[int], float], largest: int
) -> tuple[Round, ...]:
    """Return the rounds of a request under a rule; a draft is no longer than what is left to write."""
    rounds: list[Round] = []
    at = 0
    while at < len(right):
        drafted = min(max(0, rule(rounds, seconds, largest)), largest, len(right) - at - 1)
        accepted = 0
        while accepted < drafted and right[at + accepted]:
            accepted += 1
        rounds.append(Round(drafted, accepted))
        at += accepted + 1
    return tuple(rounds)


def read_rules(file: Path) -> dict[str, Rule]:
    """Return the rules in a file of the user's, which is run.

    Raises:
        GgufspecError: it cannot be read or run, or has no function.
    """
    names: dict[str, object] = {"__name__": file.stem}
    try:
        exec(compile(userfiles.read(file).decode(), str(file), "exec"), names)  # noqa: S102  # the user's own code
    except Exception as error:
        raise GgufspecError(f"{file} cannot be run: {error}", "see `ggufspec policy --help`") from error
    own = {
        name: function
        for name, function in names.items()
        if callable(function) and getattr(function, "__module__", None) == file.stem and name[:1] != "_"
    }
    if not own:
        raise GgufspecError(
            f"{file} has no function", "write def NAME(rounds, seconds, largest): return SIZE"
        )
    return {name: partial(_checked, name, function) for name, function in own.items()}


def _checked(
    name: str, rule: Rule, rounds: Sequence[Round], seconds: Callable[[int], float], largest: int
) -> int:
    try:
        return int(rule(tuple(rounds), seconds, largest))
    except Exception as error:
        raise GgufspecError(f"the rule {name} failed after {len(rounds)} rounds: {error}") from error
