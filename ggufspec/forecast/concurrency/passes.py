"""How llama.cpp splits the batch of several slots into passes through the model.

Read in src/llama-batch.cpp of llama-cpp-python 0.3.36 (``split_equal``, ``split_simple``) and in the caches
that call them: separate caches split into passes of equally many tokens per slot and consecutive slots, a
unified cache only at the size of a pass.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

BATCH = 2048
"""Tokens of a batch, the default of ``-b``."""

UBATCH = 512
"""Tokens of a pass, the default of ``-ub``."""


class SlotRows(NamedTuple):
    """Tokens of one slot in a batch or a pass."""

    slot: int
    tokens: int


def most_rows(users: int, n_max: int) -> int:
    """Return how many tokens a batch has at most, without prompts, if all slots draft ``n_max`` tokens.

    llama-server ends if they are more than ``-b`` allows.
    """
    return users * (n_max + 1)


def split_batch(
    batch: Sequence[SlotRows], *, ubatch: int = UBATCH, unified: bool = False
) -> tuple[tuple[SlotRows, ...], ...]:
    """Return the passes of a batch.

    Args:
        batch: the tokens of each slot in the order of the batch, each slot once.
        ubatch: tokens of a pass at most (``-ub``).
        unified: whether all slots share one cache (``-kvu``).
    """
    return tuple(_split_at(batch, ubatch) if unified else _split_equally(batch, ubatch))


def _split_equally(batch: Sequence[SlotRows], ubatch: int) -> Iterator[tuple[SlotRows, ...]]:
    left = dict(batch)
    while waiting := [slot for slot, tokens in left.items() if tokens]:
        chosen = waiting[:1]
        for slot in waiting[1:]:
            if slot == chosen[-1] + 1 and len(chosen) < ubatch:
                chosen.append(slot)
        tokens = min(max(1, ubatch // len(chosen)), *(left[slot] for slot in chosen))
        for slot in chosen:
            left[slot] -= tokens
        yield tuple(SlotRows(slot, tokens) for slot in chosen)


def _split_at(batch: Sequence[SlotRows], ubatch: int) -> Iterator[tuple[SlotRows, ...]]:
    part: list[SlotRows] = []
    room = ubatch
    for slot, rest in batch:
        tokens = rest
        while tokens:
            taken = min(tokens, room)
            part.append(SlotRows(slot, taken))
            tokens, room = tokens - taken, room - taken
            if not room:
                yield tuple(part)
                part, room = [], ubatch
    if part:
        yield tuple(part)
