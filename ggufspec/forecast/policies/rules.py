"""Rules for the draft size: how many tokens to draft next, from the rounds of a request so far.

A rule of your own is a Python file with a function of this signature, whose name is that of the rule:

    def halve(rounds, seconds, largest):
        "Half as many after a draft that was not accepted as a whole, else one more."
        if not rounds:
            return largest
        drafted, accepted = rounds[-1]
        return drafted + 1 if accepted == drafted else drafted // 2

The rules of this file that remember more than rounds are generators.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Generator, Sequence
from functools import partial
from pathlib import Path

from ggufspec import userfiles
from ggufspec.domain import Round
from ggufspec.errors import GgufspecError

Seconds = Callable[[int], float]
"""Seconds of a round by its drafted tokens."""

Sizes = Generator[int, Round, None]
"""Yields how many tokens to draft next, and gets what became of them."""

Rule = Callable[[Seconds, int], Sizes]
"""Takes the seconds of rounds and the largest draft size, for one request.

Sizes other than 0 to the largest are taken for the nearest of them.
"""

UserRule = Callable[[Sequence[Round], Seconds, int], int]
"""Takes the rounds of a request so far, the seconds of rounds, and the largest draft size; returns a size."""

_REMEMBERED = 8  # rounds, by the rule of the mean


def fixed(size: int) -> Rule:
    """Return the rule that always drafts as many."""
    return from_rounds(lambda rounds, seconds, largest: size)


def from_rounds(choose: UserRule) -> Rule:
    """Return the rule that asks a function anew for each round."""

    def rule(seconds: Seconds, largest: int) -> Sizes:
        rounds: list[Round] = []
        while True:
            rounds.append((yield choose(rounds, seconds, largest)))

    return rule


def follow(rounds: Sequence[Round], seconds: Seconds, largest: int) -> int:
    """Draft one token more than the last round accepted, and two more if it accepted its whole draft."""
    if not rounds:
        return largest
    drafted, accepted = rounds[-1]
    return accepted + 1 + (accepted == drafted)


def mean(rounds: Sequence[Round], seconds: Seconds, largest: int) -> int:
    """Draft one token more than the last eight rounds accepted on average."""
    if not rounds:
        return largest
    last = rounds[-_REMEMBERED:]
    return 1 + round(sum(entry.accepted for entry in last) / len(last))


def streaks(seconds: Seconds, largest: int) -> Sizes:
    """llama.cpp #25726: one more after eleven whole drafts in a row, one less after eleven others.

    Eleven (``--spec-draft-adaptive-length-threshold``) is what its author found to work well, and the bias is
    0, its default. The description does not say where it starts; the author's next branch does, at the least.
    """
    threshold, size, whole, others = 11, 1, 0, 0
    while True:
        drafted, accepted = yield size
        whole, others = (whole + 1, 0) if accepted == drafted else (0, others + 1)
        if threshold in {whole, others}:
            size = min(max(1, size + (1 if whole else -1)), largest)
            whole = others = 0


def depth_control(seconds: Seconds, largest: int) -> Sizes:
    """llama.cpp #27210 as proposed in August 2026: climbs after whole drafts, drops where misses add up.

    Fast off the floor of 3 (``--spec-draft-n-min-adaptive``) and at depth, slow in between.
    """
    climbs = {1: 2, 2: 4, 3: 6, 4: 5, 5: 4, 6: 3}  # whole drafts in a row; 2 of more tokens
    size = floor = min(3, largest)
    whole = missed = 0
    while True:
        drafted, accepted = yield size
        if accepted == drafted:
            whole, missed = whole + 1, 0
            if whole >= climbs.get(size, 2) and size < largest:
                size, whole = size + 1, 0
            continue
        whole = 0
        if size > floor:
            missed += drafted - accepted
            if missed >= max(5 * size, 20):
                size, missed = size - 1, 0


def autotune(seconds: Seconds, largest: int) -> Sizes:
    """ik_llama.cpp's ``--spec-autotune``, of the draft size alone: the fastest so far, else any (ε 0.15).

    As common/spec-tuner.cpp of July 2026: tokens/s of a round are the reward, whose mean is kept for each
    size. Thirty rounds in a row that are 30 % slower than their moving mean begin it anew.
    """
    epsilon, alpha, drop, patience, cooldown = 0.15, 0.05, 0.3, 30, 50
    draw = random.Random(0)  # noqa: S311  # not for secrets: the same in every replay
    rewards = dict.fromkeys(range(1, largest + 1), (0.0, 0))  # mean, and how many
    best, usual, slow, waiting = 1, 0.0, 0, 0
    while True:
        size = draw.randint(1, largest) if draw.random() < epsilon else best
        drafted, accepted = yield size
        speed = (accepted + 1) / seconds(drafted)
        value, times = rewards[size]
        rewards[size] = value + (speed - value) / (times + 1), times + 1
        best = max((one for one in rewards if rewards[one][1]), key=lambda one: rewards[one][0])
        if waiting or not usual:
            waiting = max(0, waiting - 1)
        elif speed < (1 - drop) * usual:
            slow += 1
            if slow >= patience:
                rewards = dict.fromkeys(rewards, (0.0, 0))
                best, usual, slow, waiting = largest, 0.0, 0, cooldown
                continue
        else:
            slow = 0
        usual = alpha * speed + (1 - alpha) * usual if usual else speed


RULES: dict[str, Rule] = {
    "follow": from_rounds(follow),
    "mean": from_rounds(mean),
    "llama.cpp #25726": streaks,
    "llama.cpp #27210": depth_control,
    "ik autotune": autotune,
}


def best_sizes(right: Sequence[bool], seconds: Seconds, largest: int) -> tuple[int, ...]:
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


def replay(right: Sequence[bool], rule: Rule, seconds: Seconds, largest: int) -> tuple[Round, ...]:
    """Return the rounds of a request under a rule; a draft is no longer than what is left to write."""
    rounds: list[Round] = []
    at, sizes = 0, rule(seconds, largest)
    size = next(sizes)
    while True:
        drafted = min(max(0, size), largest, len(right) - at - 1)
        accepted = 0
        while accepted < drafted and right[at + accepted]:
            accepted += 1
        rounds.append(Round(drafted, accepted))
        at += accepted + 1
        if at >= len(right):
            return tuple(rounds)
        size = sizes.send(rounds[-1])


def replay_p_min(
    right: Sequence[bool], confident: Sequence[bool], tails: Sequence[int], size: int, draw: random.Random
) -> tuple[tuple[Round, ...], tuple[int, ...]]:
    """Return the rounds of a request whose drafts end before a doubtful token.

    Args:
        right: which tokens the drafter has right.
        confident: of which tokens it is sure enough.
        tails: how many tokens drafts went on behind a wrong one; they are drawn.
        size: γ.
        draw: for what is drawn.

    Returns:
        The rounds, and how many tokens were proposed in each: one more where a doubtful one ended the draft.
    """
    rounds: list[Round] = []
    proposals: list[int] = []
    at = 0
    while at < len(right):
        most = min(size, len(right) - at - 1)
        accepted = 0
        while accepted < most and right[at + accepted] and confident[at + accepted]:
            accepted += 1
        drafted = accepted
        if accepted < most and confident[at + accepted]:  # its guess was wrong, and it went on from there
            drafted = min(most, accepted + 1 + draw.choice(tails))
        rounds.append(Round(drafted, accepted))
        proposals.append(min(most, drafted + 1))
        at += accepted + 1
    return tuple(rounds), tuple(proposals)


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
    return {name: from_rounds(partial(_checked, name, function)) for name, function in own.items()}


def _checked(name: str, rule: UserRule, rounds: Sequence[Round], seconds: Seconds, largest: int) -> int:
    try:
        return int(rule(tuple(rounds), seconds, largest))
    except Exception as error:
        raise GgufspecError(f"the rule {name} failed after {len(rounds)} rounds: {error}") from error
