"""How far the size of a batch moves the logits of a model on this machine.

Kernels for batches of other sizes add in another order, and activations that are quantised or rounded
multiply the difference. A choice between tokens whose logits differ by less may fall otherwise in a run that
splits the same text into other batches. How much that is depends on the model, its types and the processor.
So it is measured: the same tokens are evaluated in batches of several sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ggufspec.engines.library.heads import BlockHead, ChainedHead, States
from ggufspec.engines.library.model import LIKELIEST, Logits, Model

_PLACES = 32  # tokens of a text at which logits are compared; more hardly raise the largest difference
_SIZES = (1, 2, 8)  # of batches: kernels differ for one token, for few and for many
_ROUNDING = 2.0**-11
"""Half precision's: flash attention on the CPU adds values in it, in their order in the cache."""


class Spreads:
    """The spreads of loaded models, each measured at the first text that is long enough.

    They are of the model, its types and the processor: from text to text they differ by a fifth (embedded
    pair), and measuring one evaluates about a hundred tokens.
    """

    def __init__(self) -> None:
        self._found: dict[Hashable, float] = {}

    def of(self, key: Hashable, n_tokens: int, measure: Callable[[], float]) -> float:
        """Return a spread, measured if need be.

        Args:
            key: the loaded model or head, with what else its spread depends on.
            n_tokens: of the text; a spread of fewer than are compared is not kept.
            measure: measures it.
        """
        if key in self._found:
            return self._found[key]
        spread = measure()
        if n_tokens >= _PLACES:
            self._found[key] = spread
        return spread


def model_spread(model: Model, text: Sequence[int], first: int) -> float:
    """Return by how many nats the difference of two of a model's logits moved at most.

    Args:
        model: whose cache is overwritten; it must be able to roll it back.
        text: tokens.
        first: where the tokens begin at which logits are compared.
    """
    piece = text[first : first + _PLACES]
    model.clear()
    model.evaluate(text[:first], 0)
    looks = []
    for size in _SIZES:
        model.forget(first)
        rows = []
        for start in range(0, len(piece), size):
            batch = piece[start : start + size]
            model.evaluate(batch, first + start, outputs=len(batch))
            rows += [row.copy() for row in model.rows(len(batch))]
        looks.append(rows)
    return _largest(looks)


def chained_spread(
    head: ChainedHead, target: Model, text: Sequence[int], first: int, before: States
) -> float:
    """Return the same of a head that drafts token by token, from the target's states in other batches.

    Args:
        head: attached to the target; both caches hold the tokens before ``first``, and do so afterwards.
        target: whose states it reads.
        text: tokens.
        first: where the tokens begin at which logits are compared.
        before: the target's state of the token before.
    """
    looks = [_look(head, target, text, first, before, size) for size in _SIZES]
    return _largest(looks)


def _look(
    head: ChainedHead, target: Model, text: Sequence[int], first: int, before: States, size: int
) -> list[Logits]:
    """Return the head's logits from states in batches of a size, and forget what was read."""
    rows: list[Logits] = []
    state, end = before, min(first + _PLACES, len(text))
    for start in range(first, end, size):
        batch = text[start : min(start + size, end)]
        target.evaluate(batch, start)
        states = head.states(len(batch))
        for row_number, at in enumerate(range(start, start + len(batch))):
            rows.append(head.step(text[at], at, state)[0].copy())
            state = states[row_number]
    target.forget(first)
    head.forget(first)
    return rows


class LikelyLogits(NamedTuple):
    """The likeliest tokens at one place, and their logits."""

    tokens: NDArray[np.intp]
    logits: Logits

    @classmethod
    def read(cls, row: Logits) -> LikelyLogits:
        """Return those of one row."""
        count = min(LIKELIEST, len(row))
        tokens = np.argpartition(row, -count)[-count:]
        return cls(tokens, row[tokens])

    def moved(self, row: Logits) -> float:
        """Return by how much the difference of two of them is another one in a row."""
        moved = row[self.tokens] - self.logits
        return float(moved.max() - moved.min())


def block_spread(head: BlockHead, target: Model, text: Sequence[int], first: int, size: int) -> float:
    """Return the same of a head that drafts blocks of ``size`` tokens; see ``chained_spread``.

    Of a head that estimates its own drafts, the log-odds of those estimates are compared, too.
    """
    n_tokens = min(_PLACES, len(text) - first)
    looks, estimates = [], []
    for count in _SIZES:
        rows: list[Logits] = []
        odds: list[NDArray[np.float64]] = []
        for start in range(0, n_tokens, count):
            at = first + start
            if start % max(_SIZES) == 0:  # where batches of every size begin
                head.draft(text[at], at, size)
                rows += [row.copy() for row in head.drafted(size)]
                if head.estimates:
                    chances = np.clip(head.chances(size).astype(np.float64), 1e-9, 1 - 1e-9)
                    odds.append(np.log(chances / (1 - chances)))
                head.forget(at)
            batch = text[at : first + min(start + count, n_tokens)]
            target.evaluate(batch, at)
            head.absorb(head.features(len(batch)), at)
        target.forget(first)
        head.forget(first)
        looks.append(rows)
        estimates.append(odds)
    moved = [np.abs(np.array(odds) - np.array(estimates[0])).max() for odds in estimates if odds]
    return max(_largest(looks), *map(float, moved), 0.0)


def _largest(looks: Sequence[Sequence[Logits]]) -> float:
    """Return the largest change of a difference among the likeliest tokens, against the first look.

    It is at least what rounding alone may change.
    """
    reference, *others = looks
    largest = _ROUNDING * max((float(np.abs(row).max()) for row in reference), default=0.0)
    for row_number, row in enumerate(reference):
        likely = LikelyLogits.read(row)
        largest = max(largest, *(likely.moved(rows[row_number]) for rows in others))
    return largest
