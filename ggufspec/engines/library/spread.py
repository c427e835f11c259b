"""How far the size of a batch moves the logits of a model on this machine.

Kernels for batches of other sizes add in another order, and activations that are quantised or rounded
multiply the difference. A choice between tokens whose logits differ by less may fall otherwise in a run that
splits the same text into other batches. How much that is depends on the model, its types and the processor.
So it is measured: the same tokens are evaluated in batches of several sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence

import numpy as np
from numpy.typing import NDArray

from ggufspec.engines.library.heads import BlockHead, ChainedHead
from ggufspec.engines.library.model import LIKELIEST, Logits, Model, read_in_batches

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
    compared = text[: first + _PLACES + 1]
    model.clear()
    model.evaluate(text[:first], 0)
    looks = []
    for size in _SIZES:
        model.forget(first)
        looks.append([row.copy() for row, _ in read_in_batches(model, compared, first, size=size)])
    return _largest(looks)


def chained_spread(head: ChainedHead, text: Sequence[int], first: int) -> float:
    """Return the same of a head that drafts token by token, from the target's states in other batches.

    Args:
        head: attached to its target; both caches hold the tokens before ``first``, and do so afterwards.
        text: tokens.
        first: where the tokens begin at which logits are compared.
    """
    looks = [_look(head, text, first, size) for size in _SIZES]
    return _largest(looks)


def _look(head: ChainedHead, text: Sequence[int], first: int, size: int) -> list[Logits]:
    """Return the head's logits from states in batches of a size, and forget what was read."""
    rows: list[Logits] = []
    state, end = head.state, min(first + _PLACES, len(text))
    for start in range(first, end, size):
        batch = text[start : min(start + size, end)]
        head.target.evaluate(batch, start)
        for at, following in enumerate(head.states(len(batch)), start):
            rows.append(head.step(text[at], at, state)[0].copy())
            state = following
    head.target.forget(first)
    head.forget(first)
    return rows


def block_spread(head: BlockHead, text: Sequence[int], first: int, size: int) -> float:
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
            head.target.evaluate(batch, at)
            head.follow(batch, at)
        head.target.forget(first)
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
        likely = np.argpartition(row, -LIKELIEST)[-LIKELIEST:] if len(row) > LIKELIEST else slice(None)
        moved = (float(np.ptp(rows[row_number][likely] - row[likely])) for rows in others)
        largest = max(largest, *moved)
    return largest
