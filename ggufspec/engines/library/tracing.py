"""Record a trace: the target's text, and what each drafter would have drafted, to forecast acceptance."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from time import perf_counter

import numpy as np

from ggufspec.domain import Program, Sampling
from ggufspec.engines.library.decoding import check_room, write
from ggufspec.engines.library.drafting import confidence, fit, lead, likeliest
from ggufspec.engines.library.heads import BlockHead, ChainedHead, Drafter, States, read, read_block
from ggufspec.engines.library.messages import (
    BEFORE_MTP,
    NEAR_TIE,
    DrafterTrace,
    DraftLimits,
    HeadDraft,
    ModelLoad,
    RecordedTrace,
    TraceRun,
    WorkerRun,
    Written,
)
from ggufspec.engines.library.model import LIKELIEST, OUTPUTS, Logits, Model
from ggufspec.engines.library.spread import (
    Spreads,
    block_spread,
    chained_spread,
    model_spread,
)
from ggufspec.stats import sampling as exact

_KEPT_BEFORE_END = 4  # tokens of a prompt that llama-server evaluates after it has kept a copy of the caches
_DRAFTED = 4  # tokens that are verified where a text is written in batches: a middle γ
_VERIFIED = 16
"""Tokens of a text that a head reads at once: a draft's length. Kernels for long batches add in another
order, which can move a confidence by a hundredth.
"""


def trace(target: Model, drafters: Sequence[Drafter], run: TraceRun, spreads: Spreads) -> RecordedTrace:
    """Let the target generate a text, then evaluate that text with every drafter.

    Args:
        target: loaded.
        drafters: in the order of ``run``.
        run: what to trace.
        spreads: those that are known of these models; what is measured is added.
    """
    for model in (target, *drafters):
        model.use_threads(run.threads)
    prompt = target.vocabulary.tokens(run.prompt)
    position, size = run.writing if run.writing is not None and run.sampling.greedy else (None, 0)
    traces: dict[int, DrafterTrace] = {}
    if position is None:
        written = _write_greedily(target, prompt, run) if run.sampling.greedy else _write_alone(target, run)
    else:
        helper = drafters[position]
        assert isinstance(helper, Model), "heads do not help to write"
        written, traces[position] = _write_together(target, helper, prompt, size, run, position)
    trace = _trace_text(target, drafters, run, prompt, written, spreads, traces)
    written = trace.written
    if not run.twice or not _has_near_tie(written):
        return trace
    single = written if position is None else _write_greedily(target, prompt, run)
    other = _write_in_batches(target, prompt, run, single.tokens) if position is None else single
    if other.tokens == written.tokens:
        return trace
    return replace(trace, other=_trace_text(target, drafters, run, prompt, other, spreads, {}))


def _trace_text(
    target: Model,
    drafters: Sequence[Drafter],
    run: TraceRun,
    prompt: Sequence[int],
    written: Written,
    spreads: Spreads,
    traces: dict[int, DrafterTrace],
) -> RecordedTrace:
    """Evaluate a text with every drafter whose trace of it is not in ``traces`` yet."""
    text, first = (*prompt, *written.tokens), len(prompt) - 1

    def spread(model: Model) -> float:
        return spreads.of(model, len(written.tokens), lambda: model_spread(model, text, first))

    if run.sampling.greedy and target.rolls_back and written.tokens:
        written = replace(written, spread=spread(target))
    for number, (load, drafter) in enumerate(zip(run.drafters, drafters, strict=True)):
        if isinstance(drafter, ChainedHead):
            n_max = max(run.limits.sizes)
            traces[number] = _trace_head(load, drafter, target, text, len(prompt), n_max, spreads)
        elif isinstance(drafter, BlockHead):
            traces[number] = _trace_blocks(load, drafter, target, text, len(prompt), run.limits, spreads)
        else:
            if number not in traces:
                traces[number] = _trace_drafter(load, drafter, target, text, len(prompt), run)
            if run.sampling.greedy and drafter.rolls_back:
                traces[number] = replace(traces[number], spread=spread(drafter))
    return RecordedTrace(
        prompt=tuple(prompt), written=written, drafters=tuple(traces[number] for number in sorted(traces))
    )


def _has_near_tie(written: Written) -> bool:
    """Whether batches of another size may write another text."""
    if written.spread is None or not written.leads:
        return False
    return min(written.leads) <= NEAR_TIE * written.spread


def _write_alone(target: Model, run: TraceRun) -> Written:
    plain = WorkerRun(
        target=run.target,
        drafter=None,
        prompt=run.prompt,
        n_predict=run.n_predict,
        threads=run.threads,
        sampling=run.sampling,
        drafting=None,
    )
    record = write(target, None, plain)
    seconds = record.prompt_s + record.gen_s
    return Written(tokens=record.tokens, text=record.text, ended=record.ended, seconds=seconds)


def _write_greedily(target: Model, prompt: Sequence[int], run: TraceRun) -> Written:
    """Generate a greedy text token by token.

    Raises:
        Failure: the text does not fit into the context.
    """
    begun = perf_counter()
    check_room(target, prompt, run.n_predict)
    logits = _read_prompt(target, prompt, run.program)
    tokens: list[int] = []
    leads: list[float] = []
    ended = False
    while not ended and len(tokens) < run.n_predict:
        if tokens:
            logits = target.step(tokens[-1], len(prompt) + len(tokens) - 1)
        tokens.append(likeliest(logits))
        leads.append(lead(logits, tokens[-1]))
        ended = target.vocabulary.ends(tokens[-1])
    seconds = perf_counter() - begun
    text = target.vocabulary.text(tokens)
    return Written(tokens=tuple(tokens), text=text, ended=ended, seconds=seconds, leads=tuple(leads))


def _write_in_batches(target: Model, prompt: Sequence[int], run: TraceRun, single: Sequence[int]) -> Written:
    """Generate a greedy text as a server does that drafts: each batch verifies several tokens.

    Args:
        target: whose cache can be rolled back.
        prompt: tokens.
        run: for the number of tokens.
        single: the text as the target writes it token by token; it is drafted.
    """
    begun = perf_counter()
    logits = _read_prompt(target, prompt, run.program)
    tokens: list[int] = []
    leads: list[float] = []

    def add(logits: Logits) -> int:
        tokens.append(likeliest(logits))
        leads.append(lead(logits, tokens[-1]))
        return tokens[-1]

    ended = target.vocabulary.ends(add(logits))
    while not ended and len(tokens) < run.n_predict:
        following = single[len(tokens) : len(tokens) + _DRAFTED]
        draft = [*following, *[tokens[-1]] * (_DRAFTED - len(following))]
        target.evaluate([tokens[-1], *draft], len(prompt) + len(tokens) - 1, outputs=1 + _DRAFTED)
        for logits, drafted in zip(target.rows(1 + _DRAFTED), [*draft, None], strict=True):
            token = add(logits)
            ended = target.vocabulary.ends(token)
            if ended or token != drafted or len(tokens) == run.n_predict:
                break
        target.forget(len(prompt) + len(tokens) - 1)
    text = target.vocabulary.text(tokens)
    seconds = perf_counter() - begun
    return Written(tokens=tuple(tokens), text=text, ended=ended, seconds=seconds, leads=tuple(leads))


def _read_prompt(target: Model, prompt: Sequence[int], program: Program) -> Logits:
    """Evaluate a prompt in a program's batches; return the logits of the token that follows it."""
    target.clear()
    ends = prompt_batches(
        len(prompt), target.n_ubatch, server=program is Program.SERVER and target.n_window > 0
    )
    start = 0
    for end in ends:
        target.evaluate(prompt[start:end], start, outputs=int(end == len(prompt)))
        start = end
    logits: Logits = target.rows(1)[0]
    return logits


def prompt_batches(n_prompt: int, n_ubatch: int, *, server: bool) -> list[int]:
    """Return where the batches end in which a prompt is evaluated.

    Where layers have a sliding window, llama-server keeps a copy of their caches shortly before the prompt's
    end, and a batch ends there (checkpoint_offsets in server-context.cpp). Other batches add in another
    order, and a near-tie of the first tokens falls otherwise: so with Gemma 3.

    Args:
        n_prompt: tokens.
        n_ubatch: most tokens that are evaluated at once.
        server: whether these are the batches of a llama-server that keeps such copies.
    """
    offsets = (_KEPT_BEFORE_END + n_ubatch, _KEPT_BEFORE_END) if server else ()
    return [*(n_prompt - offset for offset in offsets if offset < n_prompt), n_prompt]


def _write_together(
    target: Model, drafter: Model, prompt: Sequence[int], size: int, run: TraceRun, position: int
) -> tuple[Written, DrafterTrace]:
    """Generate a greedy text with a drafter, which drafts one token more than is verified.

    So the drafter has proposed something for every token of the text, and evaluates the text token by token.

    Raises:
        Failure: the text does not fit into the context.
    """
    begun = perf_counter()
    draft_s = 0.0
    check_room(target, prompt, run.n_predict)
    *seen, last = prompt
    drafter.clear()
    drafter.evaluate(seen, 0)
    tokens: list[int] = []
    matches: list[bool] = []
    confidences: list[float] = []
    text_leads: list[float] = []
    leads: list[float] = []

    def add(rows: Iterable[Logits], draft: Sequence[int], views: Sequence[Logits]) -> bool:
        """Add the target's tokens up to the first one that was not drafted; return whether the text ends."""
        for logits, proposed, view in zip(rows, draft, views, strict=True):
            token = likeliest(logits)
            tokens.append(token)
            text_leads.append(lead(logits, token))
            leads.append(lead(view, token))
            matches.append(token == proposed)
            confidences.append(confidence(view))
            if target.vocabulary.ends(token):
                return True
            if token != proposed:
                break
        return False

    ended = False
    if run.program is Program.SERVER:  # its first token comes from the prompt's own evaluation
        logits = _read_prompt(target, prompt, run.program)
        draft, views = _propose(drafter, last, len(seen), 1)
        ended = add([logits], draft, views)
    else:
        target.clear()
        target.evaluate(seen, 0)
    while not ended and (room := run.n_predict - len(tokens)):
        last = tokens[-1] if tokens else last
        at, ahead = len(seen) + len(tokens), min(size, room - 1)
        draft_begun = perf_counter()
        draft, views = _propose(drafter, last, at, ahead + 1)
        draft_s += perf_counter() - draft_begun
        target.evaluate([last, *draft[:ahead]], at, outputs=ahead + 1)
        ended = add(target.rows(ahead + 1), draft, views)
        for model in (target, drafter):
            model.forget(len(seen) + len(tokens))
    seconds = perf_counter() - begun - draft_s
    text = target.vocabulary.text(tokens)
    return (
        Written(tokens=tuple(tokens), text=text, ended=ended, seconds=seconds, leads=tuple(text_leads)),
        DrafterTrace(
            load=run.drafters[position],
            matches=tuple(matches),
            confidences=tuple(confidences),
            overlaps=None,
            seconds=draft_s,
            leads=tuple(leads),
        ),
    )


def _propose(drafter: Model, last: int, at: int, size: int) -> tuple[list[int], list[Logits]]:
    """Draft greedily after a token at a position; return the tokens, and the logits that chose each."""
    tokens: list[int] = []
    views: list[Logits] = []
    for position in range(at, at + size):
        logits = drafter.step(last, position).copy()
        last = likeliest(logits)
        tokens.append(last)
        views.append(logits)
    return tokens, views


def _trace_drafter(
    load: ModelLoad,
    drafter: Model,
    target: Model,
    text: Sequence[int],
    n_prompt: int,
    run: TraceRun,
) -> DrafterTrace:
    """Evaluate the target's text with a drafter, up to the token before the last.

    The drafter evaluates token by token, as when drafting. A batch sums in another order, which can change
    the likeliest token at a near-tie.
    """
    begun = perf_counter()
    sampling, drafts = run.sampling, _draft_sampling(run)
    first, end = n_prompt - 1, len(text) - 1
    for model in (drafter,) if sampling.greedy else (drafter, target):
        model.clear()
        model.evaluate(text[:first], 0)
    n_vocab = target.vocabulary.n_tokens
    matches: list[bool] = []
    confidences: list[float] = []
    overlaps: list[float] = []
    leads: list[float] = []
    for start in range(first, end, OUTPUTS):
        piece = text[start : min(start + OUTPUTS, end)]
        rows = []
        for position, token in enumerate(piece, start):
            logits = drafter.step(token, position)
            matches.append(likeliest(logits) == text[position + 1])
            confidences.append(confidence(logits))
            if sampling.greedy:
                leads.append(lead(logits, text[position + 1]))
            else:
                rows.append(exact.distribution(logits[:n_vocab], drafts))
        if not sampling.greedy:
            target.evaluate(piece, start, outputs=len(piece))
            p = exact.distributions(target.rows(len(piece)), sampling)
            overlaps += exact.overlap(p, fit(np.stack(rows), n_vocab)).tolist()
    seconds = perf_counter() - begun
    return DrafterTrace(
        load=load,
        matches=tuple(matches),
        confidences=tuple(confidences),
        overlaps=None if sampling.greedy else tuple(overlaps),
        seconds=seconds,
        leads=tuple(leads) if sampling.greedy else None,
    )


def _draft_sampling(run: TraceRun) -> Sampling:
    """Return how drafts are drawn, where they are: by llama-server from the ten likeliest tokens.

    It does so at the target's temperature, without the target's other samplers (spec_retune in
    common/speculative.cpp). The library and the tree program draw drafts as they draw the text.
    """
    if run.program is not Program.SERVER:
        return run.sampling
    return Sampling(temperature=run.sampling.temperature, top_k=LIKELIEST, seed=run.sampling.seed)


def _trace_head(
    load: ModelLoad,
    head: ChainedHead,
    target: Model,
    text: Sequence[int],
    n_prompt: int,
    n_max: int,
    spreads: Spreads,
) -> DrafterTrace:
    """Let a head draft at every place of the target's text, up to its first miss.

    What a head drafts depends on the target's states up to the place where the draft begins, and on its own
    states from there on. So each place needs a draft of its own, after which the head's cache is rolled back.
    """
    begun = perf_counter()
    first = n_prompt - 1
    served: tuple[HeadDraft, ...] | None = None
    with head.attached():
        target.clear()
        head.clear()
        before = read(target, head, text[:first], 0, head.first_state())
        spread = spreads.of(
            head, len(text) - n_prompt, lambda: chained_spread(head, target, text, first, before)
        )
        drafts = _drafts(head, target, text, first, before, n_max)
        if not head.first_kept:  # EAGLE-3 has no entry for a text's first token
            target.clear()
            target.evaluate(BEFORE_MTP, 0)
            kept = head.states(len(BEFORE_MTP))[-1]
            target.clear()
            head.clear()
            before = read(target, head, text[:first], 0, kept)
            served = _drafts(head, target, text, first, before, n_max)
    return DrafterTrace(
        load=load,
        matches=tuple(draft.accepted > 0 for draft in drafts),
        confidences=tuple(draft.confidences[0] for draft in drafts),
        overlaps=None,
        seconds=perf_counter() - begun,
        drafts=drafts,
        spread=spread,
        served_drafts=served,
    )


def _drafts(
    head: ChainedHead, target: Model, text: Sequence[int], first: int, before: States, n_max: int
) -> tuple[HeadDraft, ...]:
    """Return the draft that begins at each position of a text from ``first`` on.

    Both caches hold the tokens before it; ``before`` is the state of the last one.
    """
    drafts: list[HeadDraft] = []
    end = len(text) - 1
    for start in range(first, end, _VERIFIED):
        piece = text[start : min(start + _VERIFIED, end)]
        target.evaluate(piece, start)
        states = head.states(len(piece))
        for position, state in enumerate((before, *states[:-1]), start):
            drafts.append(_draft(head, text, position, state, n_max))
        before = states[-1]
    return tuple(drafts)


def _draft(head: ChainedHead, text: Sequence[int], position: int, state: States, n_max: int) -> HeadDraft:
    """Draft after the token at a place; its own entry stays, as the target's states make the same one."""
    confidences: list[float] = []
    leads: list[float] = []
    accepted = 0
    while True:
        logits, state = head.step(text[position + accepted], position + accepted, state)
        confidences.append(confidence(logits))
        following = position + accepted + 1
        if following == len(text):
            break
        leads.append(lead(logits, text[following]))
        if likeliest(logits) != text[following]:
            break
        accepted += 1
        if accepted == n_max:
            break
    head.forget(position + 1)
    return HeadDraft(accepted, tuple(confidences), tuple(leads))


def _trace_blocks(
    load: ModelLoad,
    head: BlockHead,
    target: Model,
    text: Sequence[int],
    n_prompt: int,
    limits: DraftLimits,
    spreads: Spreads,
) -> DrafterTrace:
    """Let a head draft a block of every size where a round of that size may begin.

    A draft of each size is an evaluation of its own. So only those are made that some run asks for: rounds
    follow each other from each start. The head's cache must hold exactly the states before the block.
    """
    begun = perf_counter()
    target.clear()
    head.clear()
    first, n_tokens = n_prompt - 1, len(text) - n_prompt
    least = min(filter(None, limits.p_mins), default=None)
    blocks: dict[int, dict[int, HeadDraft]] = {size: {} for size in limits.sizes if size <= head.longest}
    due = {(size, at): set(limits.p_mins) for size in blocks for at in limits.starts}
    with head.attached():
        read_block(target, head, text[:first], 0)
        longest = max(blocks, default=1)
        spread = spreads.of(
            (head, longest), n_tokens, lambda: block_spread(head, target, text, first, longest)
        )
        for start in range(0, n_tokens, _VERIFIED):
            piece = text[first + start : first + min(start + _VERIFIED, n_tokens)]
            target.evaluate(piece, first + start)
            features, absorbed = head.features(len(piece)), 0
            for at in range(start, start + len(piece)):
                for size, drafts in blocks.items():
                    p_mins = due.pop((size, at), None)
                    if p_mins is None:
                        continue
                    if absorbed < at - start:
                        head.absorb(features[absorbed : at - start], first + start + absorbed)
                        absorbed = at - start
                    draft = drafts[at] = _draft_block(head, text, first + at, size, least)
                    for p_min in p_mins:
                        due.setdefault((size, at + 1 + _accepted(draft, p_min)), set()).add(p_min)
            head.absorb(features[absorbed:], first + start + absorbed)
    return DrafterTrace(
        load=load,
        matches=(False,) * n_tokens,
        confidences=(0.0,) * n_tokens,
        overlaps=None,
        seconds=perf_counter() - begun,
        blocks=blocks,
        spread=spread,
    )


def _draft_block(
    head: BlockHead, text: Sequence[int], position: int, size: int, least: float | None
) -> HeadDraft:
    """Draft a block after the token at a place, and remove it from the head's cache.

    Confidences are looked at up to the first one below ``least``, the smallest p_min, which ends every draft
    with a p_min. None stands for p_min 0 alone, which needs none.
    """
    head.draft(text[position], position, size)
    logits = head.drafted(size)
    following = text[position + 1 : position + 1 + size]
    accepted = 0
    leads: list[float] = []
    for row, token in zip(logits, following, strict=False):
        leads.append(lead(row, token))
        if likeliest(row) != token:
            break
        accepted += 1
    confidences: list[float] = []
    if least is not None:
        chances = head.chances(size).tolist() if head.estimates else map(confidence, logits)
        for value in chances:
            confidences.append(value)
            if value < least:
                break
    head.forget(position)
    return HeadDraft(accepted, tuple(confidences), tuple(leads))


def _accepted(draft: HeadDraft, p_min: float) -> int:
    """Return how many tokens are accepted of a draft that ends before the first doubtful one."""
    doubtful = (position for position, value in enumerate(draft.confidences) if value < p_min)
    return min(draft.accepted, next(doubtful, draft.accepted))
