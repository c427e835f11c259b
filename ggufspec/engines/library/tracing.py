"""Record a trace: the target's text, and what each drafter would have drafted, to forecast acceptance."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import repeat
from time import perf_counter

from ggufspec.domain import Program, Sampling
from ggufspec.engines.library.decoding import check_room, confidence, fit, lead, likeliest, write
from ggufspec.engines.library.heads import BlockHead, ChainedHead, Drafter, States
from ggufspec.engines.library.messages import (
    BEFORE_MTP,
    NEAR_TIE,
    DrafterTrace,
    DraftLimits,
    HeadDraft,
    ModelLoad,
    RecordedTrace,
    TraceRun,
    Written,
)
from ggufspec.engines.library.model import LIKELIEST, Logits, Model, read_in_batches
from ggufspec.engines.library.spread import Spreads, block_spread, chained_spread, model_spread
from ggufspec.stats import sampling as exact

_KEPT_BEFORE_END = 4  # tokens of a prompt that llama-server evaluates after it has kept a copy of the caches
_DRAFTED = 4  # tokens that are verified where a text is written in batches: a middle γ
_VERIFIED = 16
"""Tokens of a text that a head reads at once: a draft's length. Kernels for long batches add in another
order, which can move a confidence by a hundredth.
"""


class _View:
    """What a drafter says of each token of a text."""

    def __init__(self) -> None:
        self.matches: list[bool] = []
        self.confidences: list[float] = []
        self.leads: list[float] = []

    def add(self, logits: Logits, token: int) -> None:
        """Add what it says of the next token."""
        self.matches.append(likeliest(logits) == token)
        self.confidences.append(confidence(logits))
        self.leads.append(lead(logits, token))

    def to_trace(
        self, load: ModelLoad, seconds: float, overlaps: Sequence[float] | None = None
    ) -> DrafterTrace:
        """Return the trace of a draft model; ``overlaps`` are those of a sampled text."""
        return DrafterTrace(
            load=load,
            matches=tuple(self.matches),
            confidences=tuple(self.confidences),
            overlaps=None if overlaps is None else tuple(overlaps),
            seconds=seconds,
            leads=tuple(self.leads) if overlaps is None else None,
        )


class _Proposer:
    """What is verified while a greedy text is written: nothing, so that it is written token by token.

    Attributes:
        size: the most tokens of a draft.
    """

    size = 0

    def propose(self, written: Sequence[int], last: int, at: int, size: int) -> Sequence[int]:
        """Return a draft.

        Args:
            written: the text so far.
            last: the token before the draft.
            at: its position.
            size: tokens of the draft.
        """
        return ()

    def take(self, tokens: Sequence[int]) -> None:
        """Look at the target's tokens of the round."""


class _KnownText(_Proposer):
    """Proposes a known text, so that the target writes in batches, as a server does that drafts."""

    size = _DRAFTED

    def __init__(self, text: Sequence[int]) -> None:
        self._text = text

    def propose(self, written: Sequence[int], last: int, at: int, size: int) -> Sequence[int]:
        """Return what follows in the known text, or behind its end the last token again."""
        following = self._text[len(written) : len(written) + size]
        return [*following, *[last] * (size - len(following))]


class _Helper(_Proposer):
    """A drafter that drafts one token more than is verified.

    So it has proposed something for every token of the text, and evaluates the text token by token.

    Attributes:
        seconds: that it took.
        view: its view of the text so far.
    """

    def __init__(self, drafter: Drafter, prompt: Sequence[int], size: int) -> None:
        assert isinstance(drafter, Model), "heads do not help to write"
        self.size, self.seconds, self.view = size, 0.0, _View()
        self._drafter = drafter
        self._rows: list[Logits] = []  # that chose the draft
        drafter.clear()
        drafter.evaluate(prompt[:-1], 0)

    def propose(self, written: Sequence[int], last: int, at: int, size: int) -> Sequence[int]:
        """Draft greedily."""
        begun = perf_counter()
        self._drafter.forget(at)
        self._rows, draft = [], []
        for position in range(at, at + size + 1):
            self._rows.append(self._drafter.step(last, position).copy())
            last = likeliest(self._rows[-1])
            draft.append(last)
        self.seconds += perf_counter() - begun
        return draft[:size]

    def take(self, tokens: Sequence[int]) -> None:
        """Keep what it said of the target's tokens."""
        for row, token in zip(self._rows, tokens, strict=False):
            self.view.add(row, token)


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
    traces: dict[int, DrafterTrace] = {}
    if not run.sampling.greedy:
        record = write(target, (), run)
        seconds = record.prompt_s + record.gen_s
        drawn = Written(tokens=record.tokens, text=record.text, ended=record.ended, seconds=seconds)
        return _trace_text(target, drafters, run, prompt, drawn, spreads, traces)
    helper: _Helper | None = None
    if run.writing is not None:
        position, size = run.writing
        helper = _Helper(drafters[position], prompt, size)
    written = _write_greedily(target, prompt, run, helper or _Proposer())
    if helper is not None:
        written = replace(written, seconds=written.seconds - helper.seconds)
        traces[position] = helper.view.to_trace(run.drafters[position], helper.seconds)
    trace = _trace_text(target, drafters, run, prompt, written, spreads, traces)
    if not run.twice or not _has_near_tie(trace.written):
        return trace
    proposer = _KnownText(written.tokens) if helper is None else _Proposer()
    other = _write_greedily(target, prompt, run, proposer)
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
    text, n_prompt = (*prompt, *written.tokens), len(prompt)

    def spread(model: Model) -> float:
        return spreads.of(model, len(written.tokens), lambda: model_spread(model, text, n_prompt - 1))

    if run.sampling.greedy and target.rolls_back and written.tokens:
        written = replace(written, spread=spread(target))
    for number, (load, drafter) in enumerate(zip(run.drafters, drafters, strict=True)):
        if isinstance(drafter, ChainedHead):
            traces[number] = _trace_head(load, drafter, text, n_prompt, max(run.limits.sizes), spreads)
        elif isinstance(drafter, BlockHead):
            traces[number] = _trace_blocks(load, drafter, text, n_prompt, run.limits, spreads)
        else:
            if number not in traces:
                traces[number] = _trace_drafter(load, drafter, target, text, n_prompt, run)
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


def _write_greedily(target: Model, prompt: Sequence[int], run: TraceRun, proposer: _Proposer) -> Written:
    """Generate a greedy text in rounds, each of which verifies a draft.

    The first token comes from the prompt's own evaluation, but for a draft of the simple program, which
    begins with the prompt's last token.

    Raises:
        Failure: the text does not fit into the context.
    """
    begun = perf_counter()
    check_room(target, prompt, run.n_predict)
    starts_with_draft = proposer.size > 0 and run.program is not Program.SERVER
    if starts_with_draft:
        target.clear()
        target.evaluate(prompt[:-1], 0)
    tokens: list[int] = []
    leads: list[float] = []
    ended = False
    while not ended and (room := run.n_predict - len(tokens)):
        last, at = (tokens or prompt)[-1], len(prompt) - 1 + len(tokens)
        reads_prompt = not tokens and not starts_with_draft
        draft = proposer.propose(tokens, last, at, 0 if reads_prompt else min(proposer.size, room - 1))
        if reads_prompt:
            _read_prompt(target, prompt, run.program)
        else:
            target.evaluate([last, *draft], at, outputs=1 + len(draft))
        new: list[int] = []
        for logits, drafted in zip(target.rows(1 + len(draft)), [*draft, None], strict=True):
            new.append(likeliest(logits))
            leads.append(lead(logits, new[-1]))
            ended = target.vocabulary.ends(new[-1])
            if ended or new[-1] != drafted:
                break
        tokens += new
        proposer.take(new)
        if draft:
            target.forget(len(prompt) - 1 + len(tokens))
    text = target.vocabulary.text(tokens)
    seconds = perf_counter() - begun
    return Written(tokens=tuple(tokens), text=text, ended=ended, seconds=seconds, leads=tuple(leads))


def _read_prompt(target: Model, prompt: Sequence[int], program: Program) -> None:
    """Evaluate a prompt in a program's batches, for the logits of the token that follows it."""
    target.clear()
    is_server = program is Program.SERVER and target.n_window > 0
    start = 0
    for end in prompt_batches(len(prompt), target.n_ubatch, server=is_server):
        target.evaluate(prompt[start:end], start, outputs=int(end == len(prompt)))
        start = end


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


def _trace_drafter(
    load: ModelLoad, drafter: Model, target: Model, text: Sequence[int], n_prompt: int, run: TraceRun
) -> DrafterTrace:
    """Evaluate the target's text with a drafter, up to the token before the last.

    The drafter evaluates token by token, as when drafting. A batch sums in another order, which can change
    the likeliest token at a near-tie.
    """
    begun = perf_counter()
    first, n_vocab = n_prompt - 1, target.vocabulary.n_tokens
    is_sampled, view = not run.sampling.greedy, _View()
    overlaps: list[float] = []
    for model in (drafter, target) if is_sampled else (drafter,):
        model.clear()
        model.evaluate(text[:first], 0)
    of_target: Iterable[tuple[Logits | None, int]]
    of_target = read_in_batches(target, text, first) if is_sampled else repeat((None, 0))
    for at, (row, _) in zip(range(first, len(text) - 1), of_target, strict=False):
        logits = drafter.step(text[at], at)
        view.add(logits, text[at + 1])
        if row is not None:
            p = exact.distribution(row, run.sampling)[None]
            q = fit(exact.distribution(logits[:n_vocab], _draft_sampling(run))[None], n_vocab)
            overlaps += exact.overlap(p, q).tolist()
    return view.to_trace(load, perf_counter() - begun, overlaps if is_sampled else None)


def _draft_sampling(run: TraceRun) -> Sampling:
    """Return how drafts are drawn, where they are: by llama-server from the ten likeliest tokens.

    It does so at the target's temperature, without the target's other samplers (spec_retune in
    common/speculative.cpp). The library and the tree program draw drafts as they draw the text.
    """
    if run.program is not Program.SERVER:
        return run.sampling
    return Sampling(temperature=run.sampling.temperature, top_k=LIKELIEST, seed=run.sampling.seed)


def _trace_head(
    load: ModelLoad, head: ChainedHead, text: Sequence[int], n_prompt: int, n_max: int, spreads: Spreads
) -> DrafterTrace:
    """Let a head draft at every place of the target's text, up to its first miss.

    What a head drafts depends on the target's states up to the place where the draft begins, and on its own
    states from there on. So each place needs a draft of its own, after which the head's cache is rolled back.
    """
    begun = perf_counter()
    first = n_prompt - 1
    served: tuple[HeadDraft, ...] | None = None
    with head.attached():
        head.clear()
        head.read(text[:first], 0)
        spread = spreads.of(head, len(text) - n_prompt, lambda: chained_spread(head, text, first))
        drafts = _drafts(head, text, first, n_max)
        if not head.kept:  # EAGLE-3 has no entry for a text's first token
            head.clear()
            head.read(BEFORE_MTP, 0)
            state = head.state
            head.clear()
            head.state = state
            head.read(text[:first], 0)
            served = _drafts(head, text, first, n_max)
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


def _drafts(head: ChainedHead, text: Sequence[int], first: int, n_max: int) -> tuple[HeadDraft, ...]:
    """Return the draft that begins at each position of a text from ``first`` on, before which all is read."""
    drafts: list[HeadDraft] = []
    before, end = head.state, len(text) - 1
    for start in range(first, end, _VERIFIED):
        piece = text[start : min(start + _VERIFIED, end)]
        head.target.evaluate(piece, start)
        for at, state in enumerate(head.states(len(piece)), start):
            drafts.append(_draft(head, text, at, before, n_max))
            before = state
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
    head.clear()
    first, n_tokens = n_prompt - 1, len(text) - n_prompt
    least = min(filter(None, limits.p_mins), default=None)
    blocks: dict[int, dict[int, HeadDraft]] = {size: {} for size in limits.sizes if size <= head.longest}
    due = {(size, at): set(limits.p_mins) for size in blocks for at in limits.starts}
    with head.attached():
        head.read(text[:first], 0)
        longest = max(blocks, default=1)
        spread = spreads.of((head, longest), n_tokens, lambda: block_spread(head, text, first, longest))
        for start in range(0, n_tokens, _VERIFIED):
            piece = text[first + start : first + min(start + _VERIFIED, n_tokens)]
            head.target.evaluate(piece, first + start)
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
