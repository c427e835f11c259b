"""Every token of a text that is known already, as the target itself sees it: teacher forcing, in batches."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ggufspec import stats
from ggufspec.domain import Failure, Status
from ggufspec.engines.library.messages import ScoreRun, TextScores
from ggufspec.engines.library.model import OUTPUTS, Logits, Model
from ggufspec.stats import sampling as exact

_BROKEN = "\N{REPLACEMENT CHARACTER}"  # stands for bytes that are not known any more
_LINE_BREAKS = 8  # that may have stood at the end of a text, and are never stored


def score(target: Model, run: ScoreRun) -> TextScores:
    """Return what the target says of each token.

    Raises:
        Failure: prompt and answer do not fit into the context, or the answer cannot be written in tokens.
    """
    target.use_threads(run.threads)
    target.clear()
    prompt = target.vocabulary.tokens(run.prompt)
    if not prompt:
        raise Failure(Status.FAILED, "the prompt has no tokens, and the model adds none")
    target.evaluate(prompt[:-1], 0)
    if isinstance(run.answer, str):
        if not run.sampling.greedy:
            raise Failure(Status.FAILED, "the tokens of a sampled text are not known")
        return TextScores(margins=_score_text(target, prompt, run.answer, ended=run.ended))
    if run.sampling.greedy:
        return TextScores(margins=_score_tokens(target, prompt, run.answer, ended=run.ended))
    return TextScores(places=_place_tokens(target, prompt, run))


def _score_tokens(
    target: Model, prompt: Sequence[int], answer: Sequence[int], *, ended: bool
) -> tuple[float, ...]:
    text = (*prompt, *answer)
    margins: list[float] = []
    for start in range(len(prompt) - 1, len(text) - 1, OUTPUTS):
        piece = text[start : min(start + OUTPUTS, len(text) - 1)]
        target.evaluate(piece, start, outputs=len(piece))
        written = text[start + 1 : start + 1 + len(piece)]
        margins += map(_margin, target.rows(len(piece)), written)
    if ended and not (answer and target.vocabulary.ends(answer[-1])):
        margins.append(_end_margin(target, target.step(text[-1], len(text) - 1)))
    return tuple(margins)


def _score_text(target: Model, prompt: Sequence[int], answer: str, *, ended: bool) -> tuple[float, ...]:
    """Score a text whose tokens are not known: where two tokens begin its rest, the target's choice counts.

    A text is tokenised otherwise than it was written now and then. What the target would have written is
    therefore tried at each place before the tokeniser's own choice. A text is scored up to its first byte
    that is not known.
    """
    target.check_rollback()
    whole, broken, _ = answer.partition(_BROKEN)
    rest, last, at = whole.encode(), prompt[-1], len(prompt) - 1
    vocabulary = target.vocabulary
    margins: list[float] = []
    while rest:
        tokens = vocabulary.continuation(rest)
        if tokens is None:
            raise Failure(Status.FAILED, "the vocabulary has no tokens that write this text")
        target.evaluate([last, *tokens[: OUTPUTS - 1]], at, outputs=min(OUTPUTS, len(tokens) + 1))
        for row, token in zip(target.rows(OUTPUTS), tokens, strict=False):
            choice = int(row.argmax())
            piece = vocabulary.piece(choice)
            is_other = choice != token and bool(piece) and rest.startswith(piece)
            last = choice if is_other else token
            margins.append(_margin(row, last))
            rest = rest.removeprefix(vocabulary.piece(last))
            at += 1
            if is_other:
                break
        target.forget(at)
    if ended and not broken:
        row = target.step(last, at)
        for _ in range(_LINE_BREAKS):
            choice = int(row.argmax())
            if vocabulary.ends(choice) or vocabulary.piece(choice).strip(b"\n"):
                break
            at += 1
            row = target.step(choice, at)
        margins.append(_end_margin(target, row))
    return tuple(margins)


def _place_tokens(target: Model, prompt: Sequence[int], run: ScoreRun) -> tuple[float | None, ...]:
    """Return each token's place in its distribution; random within its probability, the same every time."""
    assert not isinstance(run.answer, str)
    text = (*prompt, *run.answer)
    generator = np.random.default_rng([len(prompt), *(abs(token) for token in run.answer)])
    positions: list[float | None] = []
    for start in range(len(prompt) - 1, len(text) - 1, OUTPUTS):
        piece = text[start : min(start + OUTPUTS, len(text) - 1)]
        target.evaluate(piece, start, outputs=len(piece))
        for row, token in zip(target.rows(len(piece)), text[start + 1 :], strict=False):
            probabilities = exact.distribution(row, run.sampling)
            positions.append(stats.place_token(probabilities, token, generator.random()))
    return tuple(positions)


def _margin(row: Logits, token: int) -> float:
    """Return how much likelier the likeliest token is, in nats: what logits differ by."""
    return float(row.max() - row[token])


def _end_margin(target: Model, row: Logits) -> float:
    """Return how much likelier than any end of the text the likeliest token is."""
    return min((_margin(row, token) for token in target.vocabulary.end_tokens), default=float("inf"))
