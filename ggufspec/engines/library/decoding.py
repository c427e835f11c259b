"""Generate one text with a target alone or with a drafter, timed round by round.

Greedy drafts follow llama.cpp's ``draft-simple`` (common/speculative.cpp) token by token. Others are drawn
from the drafter's distribution, as exact speculative sampling requires.

Rounds are those of llama.cpp's examples/speculative-simple, so that counts can be compared: the prompt's last
token starts the first round, the drafter evaluates every verified batch again, and a run ends when more than
``n_predict`` tokens are generated, which is checked once per round.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import exp
from time import perf_counter
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ggufspec.domain import Drafting, Failure, Sampling, Status
from ggufspec.engines.library.heads import Drafter
from ggufspec.engines.library.messages import LibraryRecord, RoundRecord, TextTask
from ggufspec.engines.library.model import LIKELIEST, Logits, Model
from ggufspec.stats import sampling as exact

Distribution = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class ProposedDraft:
    """Proposed tokens, their probabilities (see RoundRecord), and the distributions they were drawn from."""

    tokens: list[int]
    probabilities: list[float]
    distributions: list[Distribution]


class Greedy:
    """Always chooses the likeliest token."""

    def first(self, logits: Logits) -> int:
        """Return the next token, from logits of shape (vocabulary,)."""
        return likeliest(logits)

    def draft(
        self, logits: Logits, top: int, top_probability: float
    ) -> tuple[int, float, Distribution | None]:
        """Return a token to propose, its probability, and the distribution it was drawn from.

        Args:
            logits: the drafter's, shape (vocabulary,).
            top: its likeliest token.
            top_probability: its confidence in that token.
        """
        return top, top_probability, None

    def verify(self, logits: Logits, draft: ProposedDraft) -> tuple[int, int]:
        """Return how many drafted tokens are accepted, and the token after them.

        Args:
            logits: the target's, shape (drafted + 1, vocabulary).
            draft: the proposed tokens.
        """
        for position, token in enumerate(draft.tokens):
            target_token = likeliest(logits[position])
            if target_token != token:
                return position, target_token
        return len(draft.tokens), likeliest(logits[-1])


class Exact:
    """Draws from the processed distributions; the text is distributed as the target's alone."""

    def __init__(self, sampling: Sampling, n_vocab: int) -> None:
        self._sampling = sampling
        self._n_vocab = n_vocab
        self._random = np.random.default_rng(sampling.seed)

    def first(self, logits: Logits) -> int:
        """Draw from the target's distribution."""
        likeliest(logits)
        return int(exact.draw(exact.distribution(logits, self._sampling), self._random))

    def draft(
        self, logits: Logits, top: int, top_probability: float
    ) -> tuple[int, float, Distribution | None]:
        """Draw from the drafter's distribution."""
        q = fit(exact.distribution(logits[: self._n_vocab], self._sampling)[None], self._n_vocab)[0]
        token = int(exact.draw(q, self._random))
        return token, float(q[token]), q

    def verify(self, logits: Logits, draft: ProposedDraft) -> tuple[int, int]:
        """Accept with probability min(1, p/q), or draw from the residual (Leviathan et al., Chen et al.)."""
        for row in logits:
            likeliest(row)
        p = exact.distributions(logits, self._sampling)
        q = np.asarray(draft.distributions, dtype=p.dtype).reshape(len(draft.tokens), p.shape[1])
        verified = exact.verify(p, q, draft.tokens, self._random)
        return int(verified.n_accepted), int(verified.token)


Chooser = Greedy | Exact


def propose(
    drafter: Model, chooser: Chooser, last: int, at: int, size: int, drafting: Drafting
) -> ProposedDraft:
    """Draft up to ``size`` tokens after ``last``, which is at position ``at``.

    A draft ends where the drafter's confidence is below ``p_min``. That is decided before a token is drawn,
    so it does not change the distribution of the text. A draft shorter than ``n_min`` is dropped.
    """
    draft = ProposedDraft(tokens=[], probabilities=[], distributions=[])
    token, limit = last, drafting.p_min
    while True:
        logits = drafter.step(token, at)
        top = likeliest(logits)
        top_probability = confidence(logits)
        if top_probability < limit:
            break
        token, probability, distribution = chooser.draft(logits, top, top_probability)
        draft.tokens.append(token)
        draft.probabilities.append(probability)
        if distribution is not None:
            draft.distributions.append(distribution)
        if len(draft.tokens) >= size:
            break
        at += 1
    if len(draft.tokens) < drafting.n_min:
        return ProposedDraft(tokens=[], probabilities=[], distributions=[])
    return draft


def likeliest(logits: Logits) -> int:
    """Return the token with the largest logit, the first of equal ones, as llama.cpp does.

    Raises:
        Failure: a logit is NaN.
    """
    token = int(logits.argmax())
    if logits[token] != logits[token]:  # the fastest test for NaN, which argmax returns first
        reason = "the model's logits are not numbers (NaN): the file or the build is broken"
        raise Failure(Status.FAILED, reason)
    return token


def confidence(logits: Logits) -> float:
    """Return the likeliest token's probability among the ten likeliest.

    It is computed for every drafted token, so it uses only a partition and ten exponentials.
    """
    if len(logits) > LIKELIEST:
        near = np.partition(logits, len(logits) - LIKELIEST)[-LIKELIEST:].tolist()
    else:
        near = logits.tolist()
    top = max(near)
    return 1.0 / sum([exp(logit - top) for logit in near])


def lead(logits: Logits, token: int) -> float:
    """Return by how many nats a token is likelier than any other; negative where another is likelier."""
    others = (part.max() for part in (logits[:token], logits[token + 1 :]) if part.size)
    return float(logits[token] - max(others))


def fit(distributions: Distribution, n_vocab: int) -> Distribution:
    """Resize rows to the target's vocabulary; tokens that the drafter lacks get probability 0."""
    missing = n_vocab - distributions.shape[1]
    return np.pad(distributions, ((0, 0), (0, missing))) if missing > 0 else distributions[:, :n_vocab]


def write(
    target: Model, drafters: Sequence[Drafter], run: TextTask, drafting: Drafting | None = None
) -> LibraryRecord:
    """Generate one text, with one drafter or with the target alone.

    Raises:
        Failure: it does not fit into the context, or the model's logits are NaN.
    """
    started = perf_counter()
    prompt = target.vocabulary.tokens(run.prompt)
    check_room(target, prompt, run.n_predict)
    for model in (target, *drafters):
        model.use_threads(run.threads)
        model.clear()
    chooser: Chooser = Greedy()
    if not run.sampling.greedy:
        chooser = Exact(run.sampling, target.vocabulary.n_tokens)
    if drafting is None:
        return _write_alone(target, chooser, prompt, run.n_predict, started)
    (drafter,) = drafters
    assert isinstance(drafter, Model), "heads draft in llama-server alone"
    return _write_together(target, drafter, chooser, prompt, run.n_predict, drafting, started)


def check_room(target: Model, prompt: Sequence[int], n_predict: int) -> None:
    """Make sure that the prompt is not empty, and that it fits into the context with its answer.

    Raises:
        Failure: it is empty, or does not fit.
    """
    if not prompt:
        raise Failure(Status.FAILED, "the prompt has no tokens, and the model adds no BOS")
    if len(prompt) + n_predict > target.n_context:
        reason = (
            f"prompt ({len(prompt)} tokens) and answer ({n_predict}) "
            f"do not fit into the context of {target.n_context} tokens"
        )
        raise Failure(Status.PROMPT_TOO_LONG, reason)


def _write_alone(
    target: Model, chooser: Chooser, prompt: Sequence[int], n_predict: int, started: float
) -> LibraryRecord:
    target.evaluate(prompt, 0, outputs=1)
    token = chooser.first(target.rows(1)[0])
    begun = perf_counter()
    tokens, at_s = [token], [begun - started]
    ends = target.vocabulary.ends
    at = len(prompt)
    while len(tokens) < n_predict and not ends(token):
        token = chooser.first(target.step(token, at))
        at_s.append(perf_counter() - started)
        tokens.append(token)
        at += 1
    return LibraryRecord(
        n_draft=None,
        prompt_tokens=len(prompt),
        prompt_s=at_s[0],
        ttft_s=at_s[0],
        gen_tokens=len(tokens) - 1,
        gen_s=at_s[-1] - at_s[0],
        tokens=tuple(tokens),
        text=target.vocabulary.text(tokens),
        at_s=tuple(at_s),
        ended=ends(token),
    )


class PlayedRound(NamedTuple):
    """One round: the draft, how many of its tokens were accepted, the token after them, and the times."""

    draft: ProposedDraft
    accepted: int
    token: int
    propose_s: float
    evaluate_s: float
    absorb_s: float
    choose_s: float


def run_round(
    target: Model, drafter: Model, chooser: Chooser, last: int, at: int, size: int, drafting: Drafting
) -> PlayedRound:
    """Run one round from the token ``last``, which is at position ``at`` and in no cache yet.

    Afterwards both caches hold all tokens of the round; the caller rolls them back.
    """
    begun = perf_counter()
    draft = propose(drafter, chooser, last, at, size, drafting)
    drafter.forget(at)
    proposed = perf_counter()
    batch = [last, *draft.tokens]
    target.evaluate(batch, at, outputs=len(batch))
    evaluated = perf_counter()
    drafter.evaluate(batch, at, outputs=1)
    absorbed = perf_counter()
    accepted, token = chooser.verify(target.rows(len(batch)), draft)
    return PlayedRound(
        draft=draft,
        accepted=accepted,
        token=token,
        propose_s=proposed - begun,
        evaluate_s=evaluated - proposed,
        absorb_s=absorbed - evaluated,
        choose_s=perf_counter() - absorbed,
    )


def kept_tokens(played: PlayedRound, ends: Callable[[int], bool]) -> list[int]:
    """Return the tokens that a round adds to the text.

    They stop at an accepted end of generation, unless that is the last token of the draft.
    """
    drafted = played.draft.tokens
    for position in range(min(played.accepted, len(drafted) - 1)):
        if ends(drafted[position]):
            return drafted[: position + 1]
    return [*drafted[: played.accepted], played.token]


def _write_together(
    target: Model,
    drafter: Model,
    chooser: Chooser,
    prompt: Sequence[int],
    n_predict: int,
    drafting: Drafting,
    started: float,
) -> LibraryRecord:
    ends = target.vocabulary.ends
    *seen, last = prompt
    for model in (target, drafter):
        model.evaluate(seen, 0)
    for model in (target, drafter):
        model.wait()
    at = len(seen)
    begun = perf_counter()
    n_generated = 0
    ended = False
    tokens: list[int] = []
    rounds: list[RoundRecord] = []
    arrivals: list[float] = []
    while n_generated <= n_predict and not ended:
        room = min(target.n_context - at - 2, n_predict - n_generated - 1)
        # as speculative-simple: no limit without room
        size = min(drafting.n_max, room) if room > 0 else drafting.n_max
        played = run_round(target, drafter, chooser, last, at, size, drafting)
        new = kept_tokens(played, ends)
        at += len(new)
        n_generated += len(new)
        last = new[-1]
        for token in new:
            tokens.append(token)
            if ended := ends(token):
                break
        target.forget(at)
        drafter.forget(at)
        end_s = perf_counter() - started
        arrivals += [end_s] * len(new)
        rounds.append(
            RoundRecord(
                drafted=tuple(played.draft.tokens),
                accepted=len(new) - 1,
                probabilities=tuple(played.draft.probabilities),
                draft_s=played.propose_s,
                absorb_s=played.absorb_s,
                verify_s=played.evaluate_s + played.choose_s,
                at_s=end_s,
            )
        )
    gen_s = perf_counter() - begun
    return LibraryRecord(
        n_draft=drafting.n_max,
        p_min=drafting.p_min,
        prompt_tokens=len(prompt),
        prompt_s=begun - started,
        ttft_s=rounds[0].at_s,
        gen_tokens=n_generated,
        gen_s=gen_s,
        tokens=tuple(tokens),
        text=target.vocabulary.text(tokens),
        at_s=tuple(arrivals[: len(tokens)]),
        ended=ended,
        rounds=tuple(rounds),
    )
