"""Is the complete text the target's own? The target scores every token of each text in a few batches.

``audit`` asks about the first difference of two texts. Here the target reads all that was written, behind the
same prompt, and says of each token how much likelier its own choice was. Its own texts are scored in the same
way: a batch rounds otherwise than single tokens do, and this control shows how much.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import accumulate
from typing import NamedTuple

from ggufspec import stats
from ggufspec.domain import Failure, Role, RunResult, RunSpec, Status, TextAudit
from ggufspec.engines import InprocessEngine
from ggufspec.engines.library import TextScores
from ggufspec.errors import GgufspecError, NoInstallError
from ggufspec.measure.audit import LONGEST_S, TIE_MARGIN, Judge, has_text, was_cut
from ggufspec.measure.deadline import NO_DEADLINE, Deadline
from ggufspec.units import counted

_LOG = logging.getLogger("ggufspec")  # `-v` shows it
_UNKNOWN_TOKENS = "this engine does not report the tokens of its texts, and sampled texts need them"


class _Text(NamedTuple):
    """One text to score: what wrote it after which prompt is the same for all runs that share it."""

    baseline: RunSpec
    answer: tuple[int, ...] | str
    ended: bool


def score_texts(
    runs: Sequence[RunResult], judge: Judge, *, deadline: Deadline = NO_DEADLINE
) -> Iterator[RunResult]:
    """Yield each run that has a text, with the audit of that text; equal texts are scored once.

    Where the target cannot be asked, the audit says why. Such runs are tried again the next time.

    Args:
        runs: of one bench, drafting or the target alone.
        judge: that of what measured; its library scores. Servers that run already have none.
        deadline: after it, no text is scored, and a load or a text that takes too long is ended.
    """
    pending: dict[_Text, list[tuple[RunResult, tuple[_Text, ...]]]] = {}
    for run in filter(_is_pending, runs):
        texts = _texts(run)
        for text in texts:
            pending.setdefault(text, []).append((run, texts))
    audits: dict[_Text, TextAudit] = {}
    for text, audit in _audits(sorted(pending, key=lambda text: text.baseline.key), judge, deadline):
        audits[text] = audit
        for run, texts in pending[text]:
            of_run = [audits[text] for text in texts if text in audits]
            if len(of_run) == len(texts) and run.audit != (merged := merge_audits(of_run)):
                yield replace(run, audit=merged)


def _is_pending(run: RunResult) -> bool:
    is_written = run.sample.status is Status.OK and has_text(run.sample)
    is_real = run.spec.drafting is None or run.spec.drafting.synthetic is None
    is_new = run.audit is None or run.audit.unjudged is not None
    # a grammar masks tokens, and only the server knows what its template made of messages
    is_scored = run.spec.role is not Role.DRAFTER and not run.spec.asks
    return is_written and is_real and is_new and is_scored


def _texts(run: RunResult) -> tuple[_Text, ...]:
    """Return what a run wrote: one text, or the answers to several users."""
    sample, spec, baseline = run.sample, run.spec, run.spec.baseline
    if spec.traffic is not None and sample.traffic is not None:
        alone = {
            answer.prompt: replace(baseline, prompt=spec.traffic.prompts[answer.prompt], traffic=None)
            for answer in sample.traffic.answers
        }
        most = spec.traffic.tokens_of(spec.n_predict)
        return tuple(
            _Text(alone[answer.prompt], answer.text, answer.tokens < most[answer.prompt])
            for answer in sample.traffic.answers
        )
    assert sample.text is not None
    answer = sample.text if sample.tokens is None else sample.tokens
    return (_Text(baseline, answer, was_cut(sample, spec.n_predict) is False),)


def merge_audits(audits: Sequence[TextAudit]) -> TextAudit:
    """Return the audits of several texts as one; the texts follow one another. One that failed fails all."""
    if len(audits) == 1:
        return audits[0]
    unjudged = next((audit.unjudged for audit in audits if audit.unjudged is not None), None)
    if unjudged is not None:
        return TextAudit(tokens=0, unjudged=unjudged)
    before = accumulate((audit.tokens for audit in audits), initial=0)
    divergent = [
        start + audit.first_divergent
        for start, audit in zip(before, audits, strict=False)
        if audit.first_divergent is not None
    ]
    margins = [audit.worst_margin for audit in audits]
    histograms = [audit.places for audit in audits if audit.places is not None]
    return TextAudit(
        tokens=sum(audit.tokens for audit in audits),
        near_ties=_sum(audit.near_ties for audit in audits),
        divergent=_sum(audit.divergent for audit in audits),
        first_divergent=divergent[0] if divergent else None,
        worst_margin=None if None in margins else max(filter(None, margins), default=0.0),
        places=tuple(map(sum, zip(*histograms, strict=True))) if histograms else None,
        impossible=_sum(audit.impossible for audit in audits),
    )


def _sum(counts: Iterable[int | None]) -> int | None:
    """Add counts; one that is absent makes the sum absent."""
    known = list(counts)
    return None if None in known else sum(filter(None, known))


def _audits(texts: Sequence[_Text], judge: Judge, deadline: Deadline) -> Iterator[tuple[_Text, TextAudit]]:
    if not texts or deadline.is_over():
        return
    try:
        install = judge.find_library()
    except NoInstallError as error:
        for text in texts:
            reason = _without_library(text, error.message, has_server=judge.ranks(text.baseline))
            yield text, TextAudit(tokens=0, unjudged=reason)
        return
    seconds, started = 0.0, time.perf_counter()
    timeout_s = deadline.timeout_s(LONGEST_S)
    with InprocessEngine(install=install, capacity=1, timeout_s=timeout_s) as engine:
        with suppress(Failure, GgufspecError):  # what is wrong is said of each text
            engine.start_worker(texts[0].baseline)
        stats.preload()  # meanwhile: the figures of the bench need it next
        for text in texts:
            if deadline.is_over():
                break
            engine.timeout_s = deadline.timeout_s(LONGEST_S)
            audit = _audit(text, engine)
            seconds += time.perf_counter() - started
            yield text, audit
            started = time.perf_counter()
    _LOG.info("text audit: %s in %.2f s", counted(len(texts), "text"), seconds)


def _without_library(text: _Text, reason: str, *, has_server: bool) -> str:
    """Return why a text was not scored, and what is known of it instead."""
    if not text.baseline.sampling.greedy:
        return f"only llama.cpp's library can test the distribution of sampled texts, and {reason}"
    if has_server:  # see ``audit``
        return f"{reason}; llama-server judged the places where texts first part"
    return reason


def _audit(text: _Text, judge: InprocessEngine) -> TextAudit:
    if isinstance(text.answer, str) and not text.baseline.sampling.greedy:
        return TextAudit(tokens=0, unjudged=_UNKNOWN_TOKENS)
    try:
        scores = judge.score(text.baseline, text.answer, ended=text.ended)
    except Failure as failure:
        return TextAudit(tokens=0, unjudged=failure.reason)
    except GgufspecError as error:
        return TextAudit(tokens=0, unjudged=error.message)
    return summarize_scores(scores, greedy=text.baseline.sampling.greedy)


def summarize_scores(scores: TextScores, *, greedy: bool) -> TextAudit:
    """Return what the scores of a text say of it."""
    if not greedy:
        possible = [place for place in scores.places if place is not None]
        return TextAudit(
            tokens=len(scores.places),
            places=stats.count_places(possible),
            impossible=len(scores.places) - len(possible),
        )
    divergent = [place for place, margin in enumerate(scores.margins) if margin > TIE_MARGIN]
    worst = max(scores.margins, default=0.0)
    return TextAudit(
        tokens=len(scores.margins),
        near_ties=sum(0.0 < margin <= TIE_MARGIN for margin in scores.margins),
        divergent=len(divergent),
        first_divergent=divergent[0] if divergent else None,
        worst_margin=worst if math.isfinite(worst) else None,
    )
