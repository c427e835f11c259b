"""Generate one text with a target alone or with a drafter, timed round by round.

Rounds are those of llama.cpp's examples/speculative-simple, so that counts can be compared: the prompt's last
token starts the first round, the drafter evaluates every verified batch again, and a run ends when more than
``n_predict`` tokens are generated, which is checked once per round.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter
from typing import NamedTuple

from ggufspec.domain import Drafting, Failure, Status
from ggufspec.engines.library.drafting import Chooser, ProposedDraft, make_chooser, propose
from ggufspec.engines.library.heads import Drafter
from ggufspec.engines.library.messages import LibraryRecord, RoundRecord, TextTask
from ggufspec.engines.library.model import Model


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
    chooser = make_chooser(run.sampling, target.vocabulary.n_tokens)
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
