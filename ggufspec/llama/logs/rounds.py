"""What a log tells beyond a run's totals: rounds, accepted positions, and where the time of a run went.

Everything here is exact or absent. What each program's own timers mean, and when they mean nothing:

- A context's timer runs from the start of an evaluation until the program asks for its result. The tree
  program asks the target at once, so its target block is the prompt's evaluation and all verification; the
  drafter's last evaluation of a round is asked for a round later, so its block holds waits for the target.
- From December 2025 on (#17974) the timer of a context misses every evaluation that needs a larger output
  buffer than those before, and a first verification does. Blocks of that time are printed by
  ``common_perf_print`` (b7115 on), and tell nothing of a tree's verification.
- In the simple program the target's prompt is waited for in the first verification, behind the first
  drafting: its target block cannot be taken apart. Its drafter is asked at once (b4159 to b9108), so there
  the drafter's block is its evaluations while drafting, its prompt included; on a GPU, where the target's
  prompt may still run, it is not taken.
- A ``statistics`` line (b7864 on) has the seconds of drafting itself: evaluations and sampling of the
  drafter, not what it takes to evaluate the target's batches once more (b9109 on).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from ggufspec.domain import Program, Sample

_STATISTICS = re.compile(
    rb"statistics {1,20}(?P<kind>[\w-]{1,40}): "
    rb"#calls\(b,g,a\) = +\d{1,12} +(?P<drafting>\d{1,12}) +(?P<judged>\d{1,12}), "
    rb"#gen drafts = +\d{1,12}, #acc drafts = +(?P<first>\d{1,12}), "
    rb"#gen tokens = +\d{1,12}, #acc tokens = +(?P<accepted>\d{1,12})"
    rb"(?:, #mean acc len = +[\d.]{1,12}, #acc rate/pos = \((?P<rates>\d\.\d{3}(?:, \d\.\d{3}){0,999})\))?"
    rb"(?:, dur\(b,g,a\) = +[\d.]{1,16}, +(?P<ms>\d{1,12}\.\d{3}), +[\d.]{1,16} ms)?"
)
_TESTED = 2  # tokens that builds from b8889 on evaluate beforehand, to see whether a cache can be shortened
_SLACK = 1.02  # of a window that is printed to the millisecond


class Clock(NamedTuple):
    """What the timer of one model's context says: tokens evaluated, and the seconds that it took."""

    tokens: int
    seconds: float
    whole: bool  # no evaluation is missed, see the module


class Statistics(NamedTuple):
    """A ``statistics`` line: what drafting did since the program started."""

    kind: str
    drafting: int  # calls to draft, each before one evaluation of the target
    judged: int  # verdicts that drafting was told of
    first: int  # drafts of which at least one token was accepted
    accepted: int
    rates: tuple[str, ...]  # accepted at each position, over ``judged``, as printed
    draft_s: float | None


def find_statistics(data: bytes, start: int = 0, end: int | None = None) -> list[Statistics]:
    """Return all lines of statistics, in order."""
    if data.find(b"statistics ", start, len(data) if end is None else end) < 0:
        return []
    return [
        Statistics(
            kind=match["kind"].decode(),
            drafting=int(match["drafting"]),
            judged=int(match["judged"]),
            first=int(match["first"]),
            accepted=int(match["accepted"]),
            rates=tuple(match["rates"].decode().split(", ")) if match["rates"] else (),
            draft_s=float(match["ms"]) / 1000 if match["ms"] else None,
        )
        for match in _STATISTICS.finditer(data, start, len(data) if end is None else end)
    ]


def with_rounds(
    sample: Sample, statistics: Sequence[Statistics], target: Clock | None, drafter: Clock | None
) -> Sample:
    """Add a drafting program's rounds, accepted positions and times to its sample.

    ``n_rounds`` follows from the totals: every round of the simple program writes what it accepted and one
    token of the target's own; the tree's first token comes from the prompt.

    Args:
        sample: what the summary says, with the program and the target's devices.
        statistics: all such lines of the closing statement.
        target: the timer of the target's context, if the log has it.
        drafter: the timer of the drafter's.
    """
    if sample.gen_tokens is None or sample.n_accepted is None or sample.program is None:
        return sample
    is_tree = sample.program is Program.TREE
    rounds = sample.gen_tokens - sample.n_accepted - is_tree
    extra = None  # tokens that the target evaluated beyond those that the summary accounts for
    if target is not None and sample.prompt_tokens is not None and sample.n_drafted is not None:
        extra = target.tokens - (sample.prompt_tokens - (not is_tree) + rounds + sample.n_drafted)
    if rounds < 0 or (not is_tree and extra not in {None, 0, _TESTED}):
        return sample  # hybrid models: rounds are evaluated twice, and their own token counts as accepted
    draft_s = verify_s = None
    if is_tree and target is not None and target.whole and extra == 0:
        verify_s = target.seconds - _prompt_seconds(sample)
    if not is_tree and statistics:
        draft_s = statistics[-1].draft_s if len(statistics) == 1 else None
    elif not is_tree and drafter is not None and extra == 0 and sample.devices == ("CPU",):
        draft_s = drafter.seconds
    counts = _counts(statistics[0], sample.n_accepted) if len(statistics) == 1 else None
    missing = (sample.n_draft or 0) - len(counts or ())
    return replace(
        sample,
        n_rounds=rounds,
        accepted_at=None if counts is None else counts + (0,) * missing,
        draft_s=_within(draft_s, sample.gen_s),
        verify_s=_within(verify_s, sample.gen_s),
    )


def with_requests(
    sample: Sample, statistics: Sequence[Statistics], answers: Sequence[int], accepted: Sequence[int]
) -> Sample:
    """Add a server's rounds, accepted positions and drafting time, where its statistics tell them.

    A request's rounds are its tokens without the prompt's own and the accepted ones, unless its last round
    accepted more than the answer took; then all rounds began with drafting, and were counted there.

    Args:
        sample: the totals of all requests.
        statistics: all such lines; each request ends with one.
        answers: the tokens of each request.
        accepted: the accepted tokens of each request that drafted.
    """
    if not statistics or len({line.kind for line in statistics}) > 1:
        return sample
    last = statistics[-1]
    if last.accepted != sample.n_accepted:  # each slot of older servers has statistics of its own
        return sample
    return replace(
        sample,
        n_rounds=_request_rounds(statistics, answers, accepted),
        accepted_at=_counts(last, last.accepted),
        draft_s=_within(last.draft_s, sample.gen_s),
    )


def _request_rounds(
    statistics: Sequence[Statistics], answers: Sequence[int], accepted: Sequence[int]
) -> int | None:
    """Return the rounds of all requests, or None where it is unsure which line belongs to which request."""
    if not len(statistics) == len(answers) == len(accepted):
        return None
    rounds = drafting = before = 0
    for line, tokens, count in zip(statistics, answers, accepted, strict=True):
        if line.accepted - before != count:
            return None
        rounds += max(tokens - 1 - count, line.drafting - drafting)
        drafting, before = line.drafting, line.accepted
    return rounds


def _counts(line: Statistics, n_accepted: int) -> tuple[int, ...] | None:
    """Return how often each position was accepted, or None where the rates allow for more than one answer.

    A rate has three digits: up to 1,000 drafts, just one count makes it.
    """
    if not line.judged:
        return None
    counts: list[int] = []
    for rate in line.rates:
        near = round(float(rate) * line.judged)
        fits = [
            count
            for count in (near - 1, near, near + 1)
            if 0 <= count <= line.judged and f"{count / line.judged:.3f}" == rate
        ]
        if len(fits) != 1:
            return None
        counts += fits
    is_whole = counts and sum(counts) == n_accepted == line.accepted and counts[0] == line.first
    return tuple(counts) if is_whole and counts == sorted(counts, reverse=True) else None


def _prompt_seconds(sample: Sample) -> float:
    """Return the seconds of the prompt's window, which are printed to the millisecond, from its rate."""
    assert sample.prompt_tokens is not None
    return sample.prompt_tokens / sample.prompt_tps if sample.prompt_tps else 0.0


def _within(seconds: float | None, window: float | None) -> float | None:
    """Return a part of a window, or None if it cannot be one."""
    if seconds is None or window is None or not 0 <= seconds <= window * _SLACK:
        return None
    return seconds
