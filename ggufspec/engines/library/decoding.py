"""One text, written by a target alone or with a drafter, timed round by round.

The rounds are those of llama.cpp's examples/speculative-simple, so that counts can be compared: the
prompt's last token opens the first round, the drafter sees every verified batch once more, and a run ends
when more than ``n_predict`` tokens are written, which is asked once per round.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter
from typing import NamedTuple

from ggufspec.domain import Drafting, Status
from ggufspec.engines.failures import Failure
from ggufspec.engines.library.drafting import Chooser, ProposedDraft, chooser, propose
from ggufspec.engines.library.messages import Record, RoundRecord, Run
from ggufspec.engines.library.model import Model


def write(target: Model, drafter: Model | None, run: Run) -> Record:
    """Write one text.

    Raises:
        Failure: it does not fit into the context, or the model's logits are not numbers.
    """
    started = perf_counter()
    prompt = target.vocabulary.tokens(run.prompt)
    check_room(target, prompt, run.n_predict)
    for model in filter(None, (target, drafter)):
        model.use_threads(run.threads)
        model.clear()
    chosen = chooser(run.sampling, target.vocabulary.n_tokens)
    if drafter is None:
        return _alone(target, chosen, prompt, run.n_predict, started)
    return _together(target, drafter, chosen, prompt, run, started)


def check_room(target: Model, prompt: Sequence[int], n_predict: int) -> None:
    """Make sure that there is a prompt, and room for it and its answer.

    Raises:
        Failure: there is not.
    """
    if not prompt:
        raise Failure(Status.FAILED, "the prompt has no tokens, and the model adds none")
    if len(prompt) + n_predict > target.n_context:
        reason = (
            f"prompt ({len(prompt)} tokens) and answer ({n_predict}) "
            f"do not fit into the context of {target.n_context} tokens"
        )
        raise Failure(Status.PROMPT_TOO_LONG, reason)


def _alone(target: Model, chosen: Chooser, prompt: Sequence[int], n_predict: int, started: float) -> Record:
    target.evaluate(prompt, 0, outputs=1)
    token = chosen.first(target.rows(1)[0])
    begun = perf_counter()
    tokens, at_s = [token], [begun - started]
    ends = target.vocabulary.ends
    at = len(prompt)
    while len(tokens) < n_predict and not ends(token):
        token = chosen.first(target.step(token, at))
        at_s.append(perf_counter() - started)
        tokens.append(token)
        at += 1
    return Record(
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
    """One round: what was drafted, how much of it was accepted, the token after it, and the times."""

    draft: ProposedDraft
    accepted: int
    token: int
    propose_s: float
    evaluate_s: float
    absorb_s: float
    choose_s: float


def run_round(
    target: Model, drafter: Model, chosen: Chooser, last: int, at: int, size: int, drafting: Drafting
) -> PlayedRound:
    """Play one round from the token ``last``, which stands at position ``at`` and is in no cache yet.

    Afterwards both caches hold the whole round's tokens; rolling back is the caller's.
    """
    begun = perf_counter()
    draft = propose(drafter, chosen, last, at, size, drafting)
    drafter.forget(at)
    proposed = perf_counter()
    batch = [last, *draft.tokens]
    target.evaluate(batch, at, outputs=len(batch))
    evaluated = perf_counter()
    drafter.evaluate(batch, at, outputs=1)
    absorbed = perf_counter()
    accepted, token = chosen.verify(target.rows(len(batch)), draft)
    return PlayedRound(
        draft=draft,
        accepted=accepted,
        token=token,
        propose_s=proposed - begun,
        evaluate_s=evaluated - proposed,
        absorb_s=absorbed - evaluated,
        choose_s=perf_counter() - absorbed,
    )


def kept(one: PlayedRound, ends: Callable[[int], bool]) -> list[int]:
    """Return a round's tokens; an end that was drafted and accepted is the last, unless it ends the draft."""
    drafted = one.draft.tokens
    for place in range(min(one.accepted, len(drafted) - 1)):
        if ends(drafted[place]):
            return drafted[: place + 1]
    return [*drafted[: one.accepted], one.token]


def _together(
    target: Model, drafter: Model, chosen: Chooser, prompt: Sequence[int], run: Run, started: float
) -> Record:
    assert run.drafting is not None
    ends = target.vocabulary.ends
    *seen, last = prompt
    for model in (target, drafter):
        model.evaluate(seen, 0)
    for model in (target, drafter):
        model.wait()
    at = len(seen)
    begun = perf_counter()
    written = 0
    ended = False
    tokens: list[int] = []
    rounds: list[RoundRecord] = []
    arrivals: list[float] = []
    while written <= run.n_predict and not ended:
        room = min(target.n_context - at - 2, run.n_predict - written - 1)
        size = min(run.drafting.n_max, room) if room > 0 else run.drafting.n_max  # no room is no limit there
        one = run_round(target, drafter, chosen, last, at, size, run.drafting)
        new = kept(one, ends)
        at += len(new)
        written += len(new)
        last = new[-1]
        for token in new:
            tokens.append(token)
            if ends(token):
                ended = True
                break
        target.forget(at)
        drafter.forget(at)
        end_s = perf_counter() - started
        arrivals += [end_s] * len(new)
        rounds.append(
            RoundRecord(
                drafted=tuple(one.draft.tokens),
                accepted=len(new) - 1,
                probabilities=tuple(one.draft.probabilities),
                draft_s=one.propose_s,
                absorb_s=one.absorb_s,
                verify_s=one.evaluate_s + one.choose_s,
                at_s=end_s,
            )
        )
    gen_s = perf_counter() - begun
    return Record(
        n_draft=run.drafting.n_max,
        prompt_tokens=len(prompt),
        prompt_s=begun - started,
        ttft_s=rounds[0].at_s,
        gen_tokens=written,
        gen_s=gen_s,
        tokens=tuple(tokens),
        text=target.vocabulary.text(tokens),
        at_s=tuple(arrivals[: len(tokens)]),
        ended=ended,
        rounds=tuple(rounds),
    )
