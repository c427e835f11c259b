"""From the rounds of a measured run to a trace: what drafts of smaller sizes would have done in its text.

A greedy draft of a draft model is the model's own continuation of the text, wherever the draft begins. So a
token that was accepted would be proposed at its place in a round of any size, and the token that ended a
round would not. This is exact for a draft model with greedy drafts and p-min 0. It does not hold for heads,
which go on from states of their own, nor for n-grams, which learn from earlier drafts, nor with a p-min,
because rounds do not tell how sure a drafter was: those are measured.

Nobody proposed the token behind a draft that was accepted as a whole. A chance stands in there, with which
``expected`` computes. It is the only place where the order of rounds matters: every other round ends at a
token that the drafter gets wrong, and there a round of any size ends.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import pairwise

from ggufspec.domain import Program, Round
from ggufspec.forecast.trace.values import DraftTrace
from ggufspec.forecast.trace.walks import first_place


def from_rounds(
    rounds: Sequence[Round],
    *,
    prompt_id: str,
    chance: float,
    program: Program = Program.SERVER,
    category: str | None = None,
    n_prompt: int = 1,
    ended: bool = False,
) -> DraftTrace:
    """Return the trace of a run's text; its overlaps are 1 or 0 but for what nobody proposed.

    Args:
        rounds: in their order, see ``from_counts`` where that is not known.
        prompt_id: of the run's prompt.
        chance: that the drafter has the token right that follows a draft which was accepted as a whole.
        program: that drafted.
        category: of the prompt.
        n_prompt: its tokens.
        ended: whether the last token ends the generation.
    """
    overlap = [0.0] * first_place(program)  # no round drafts these
    for drafted, accepted in rounds:
        overlap += [*[1.0] * accepted, chance if accepted == drafted else 0.0]
    return DraftTrace(
        prompt_id=prompt_id,
        category=category,
        tokens=(0,) * len(overlap),  # which ones does not matter to a walk
        match=tuple(value == 1.0 for value in overlap),
        confidence=(0.0,) * len(overlap),
        overlap=tuple(overlap),
        n_prompt=n_prompt,
        ended=ended,
    )


def chance_behind(rounds: Sequence[Round]) -> float:
    """Return the chance that the token behind a draft which was accepted as a whole is right, too.

    The later halves of drafts tell it: what is accepted there follows many accepted tokens. One is added to
    either count (Laplace's rule of succession), so that few rounds do not make the chance 0 or 1.
    """
    accepted = sum(max(0, count - drafted // 2) for drafted, count in rounds)
    judged = sum(max(0, min(count + 1, drafted) - drafted // 2) for drafted, count in rounds)
    return (accepted + 1) / (judged + 2)


def from_counts(accepted_at: Sequence[int], n_rounds: int) -> tuple[Round, ...]:
    """Return rounds with these counts, in a random order, the same one each time.

    Args:
        accepted_at: how often a draft's first, second, … token was accepted; as many as the draft size.
        n_rounds: how many there were.
    """
    reached = (n_rounds, *accepted_at, 0)  # how often at least 0, 1, 2, … tokens were accepted
    rounds = [
        Round(len(accepted_at), accepted)
        for accepted, (here, further) in enumerate(pairwise(reached))
        for _ in range(here - further)
    ]
    random.Random(0).shuffle(rounds)  # noqa: S311  # not for secrets
    return tuple(rounds)
