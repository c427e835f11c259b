"""Rounds, accepted positions, and the split of a run's time, as far as a log has them.

Values are exact or absent. What the timers of each program measure:

- A context's timer runs from the start of an evaluation until the program reads its result. The tree program
  reads the target's at once, so its target block is the prompt's evaluation and all verification. It reads
  the drafter's last evaluation of a round one round later, so that block includes waits for the target.
- From December 2025 on (#17974), a context's timer misses every evaluation that needs a larger output buffer
  than those before, such as the first verification. Such blocks are printed by ``common_perf_print`` (b7115
  on) and are not used for a tree's verification.
- The simple program waits for the target's prompt in the first verification, after the first drafting, so its
  target block cannot be split. It reads the drafter's results at once (b4159 to b9108), so the drafter's
  block is its evaluations while drafting, prompt included. It is not used on a GPU, where the target's prompt
  may still run.
- A ``statistics`` line (b7864 on) has the seconds of drafting: evaluations and sampling of the drafter,
  without its second evaluation of the target's batches (b9109 on).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import zip_longest
from typing import NamedTuple

from ggufspec.domain import Method, MethodCounts, Program, Round, Sample

_STATISTICS = re.compile(
    rb"statistics {1,20}(?P<method>[\w-]{1,40}): "
    rb"#calls\(b,g,a\) = +\d{1,12} +(?P<drafting>\d{1,12}) +(?P<judged>\d{1,12}), "
    rb"#gen drafts = +(?P<drafts>\d{1,12}), #acc drafts = +(?P<first>\d{1,12}), "
    rb"#gen tokens = +(?P<drafted>\d{1,12}), #acc tokens = +(?P<accepted>\d{1,12})"
    rb"(?:, #mean acc len = +[\d.]{1,12}, #acc rate/pos = \((?P<rates>\d\.\d{3}(?:, \d\.\d{3}){0,999})?\))?"
    rb"(?:, dur\(b,g,a\) = +[\d.]{1,16}, +(?P<ms>\d{1,12}\.\d{3}), +[\d.]{1,16} ms)?"
)
_NAMES = {method.stage: method.value for method in Method if method.is_head}
"""What ik_llama.cpp calls heads in its statistics -> llama.cpp's names; its n-grams differ in underscores."""
_ROUND = re.compile(
    rb"\| task (?P<task>\d{1,12}) \| "
    rb"accepted +(?P<accepted>\d{1,6})/ *(?P<drafted>\d{1,6}) draft tokens(?P<restores> \(restore)?"
)
_TESTED = 2  # tokens that builds from b8889 on evaluate first, to test whether a cache can be shortened
_CHAIN = 2  # methods, at least
_SLACK = 1.02  # of a window that is printed to the millisecond


class Clock(NamedTuple):
    """The timer of one model's context: tokens evaluated, and the seconds they took."""

    tokens: int
    seconds: float
    complete: bool  # no evaluation is missed, see the module's docstring


_COUNTED = ("drafting", "judged", "drafts", "drafted", "first", "accepted")


class Statistics(NamedTuple):
    """A ``statistics`` line: counts of drafting since the program started."""

    method: str
    drafting: int  # calls to draft, each before one evaluation of the target
    judged: int  # drafts whose verification was reported to the drafting method
    drafts: int
    drafted: int  # tokens of all drafts
    first: int  # drafts of which at least one token was accepted
    accepted: int
    rates: tuple[str, ...]  # accepted at each position, over ``judged``, as printed
    draft_s: float | None


def find_rounds(data: bytes) -> list[tuple[Round, ...]]:
    """Return the rounds of each request of a llama-server that ran with LLAMA_TRACE=1, in their order.

    Requests that restored a checkpoint are left out: they replay what was accepted as a round of its own.
    """
    by_task: dict[int, list[Round]] = {}
    restored = set()
    for match in _ROUND.finditer(data):
        task, entry = int(match["task"]), Round(int(match["drafted"]), int(match["accepted"]))
        if match["restores"]:
            restored.add(task)
        elif entry.accepted <= entry.drafted:
            by_task.setdefault(task, []).append(entry)
    return [tuple(rounds) for task, rounds in by_task.items() if task not in restored]


def find_statistics(data: bytes, start: int = 0, end: int | None = None) -> list[Statistics]:
    """Return all lines of statistics, in order."""
    return [
        Statistics(
            method=_NAMES.get(name := match["method"].decode().replace("_", "-"), name),
            **{name: int(match[name]) for name in _COUNTED},
            rates=tuple(match["rates"].decode().split(", ")) if match["rates"] else (),
            draft_s=float(match["ms"]) / 1000 if match["ms"] else None,
        )
        for match in find_statistics_lines(data, start, end)
    ]


def find_statistics_lines(data: bytes, start: int = 0, end: int | None = None) -> list[re.Match[bytes]]:
    """Return the matches of all lines of statistics, in order."""
    end = len(data) if end is None else end
    if data.find(b"statistics ", start, end) < 0:
        return []
    return list(_STATISTICS.finditer(data, start, end))


def total_by_method(
    statistics: Sequence[Statistics], n_accepted: int | None = None
) -> tuple[MethodCounts, ...] | None:
    """Return what each method of a chain drafted since the program started; None if only one method drafts.

    Args:
        statistics: all such lines; a server prints those of all its methods after every request.
        n_accepted: what the methods must add up to, if that is known; None is returned if they do not.
    """
    last = {line.method: line for line in statistics}
    if len(last) < _CHAIN or n_accepted not in {None, sum(line.accepted for line in last.values())}:
        return None
    return tuple(
        MethodCounts(method, line.drafts, line.drafted, line.accepted) for method, line in last.items()
    )


def with_rounds(
    sample: Sample, statistics: Sequence[Statistics], target: Clock | None, drafter: Clock | None
) -> Sample:
    """Add a drafting program's rounds, accepted positions and times to its sample.

    ``n_rounds`` follows from the totals: every round of the simple program writes what it accepted and one
    token of the target's own; the tree's first token comes from the prompt.

    Args:
        sample: the summary's figures, with the program and the target's devices.
        statistics: all such lines of the closing statement.
        target: the timer of the target's context, if the log has it.
        drafter: the timer of the drafter's context, likewise.
    """
    if sample.gen_tokens is None or sample.n_accepted is None or sample.program is None:
        return sample
    is_tree = sample.program is Program.TREE
    rounds = sample.gen_tokens - sample.n_accepted - is_tree
    extra = None  # tokens that the target evaluated beyond those that the summary accounts for
    if target is not None and sample.prompt_tokens is not None and sample.n_drafted is not None:
        extra = target.tokens - (sample.prompt_tokens - (not is_tree) + rounds + sample.n_drafted)
    if rounds < 0 or (not is_tree and extra not in {None, 0, _TESTED}):
        return sample  # hybrid models evaluate rounds twice and count the target's token as accepted
    draft_s = verify_s = None
    if is_tree and target is not None and target.complete and extra == 0:
        # of the prompt, from its rate: its seconds are printed only to the millisecond
        assert sample.prompt_tokens is not None
        verify_s = target.seconds - (sample.prompt_tokens / sample.prompt_tps if sample.prompt_tps else 0.0)
    if not is_tree and statistics:
        seconds = [line.draft_s for line in statistics if line.draft_s is not None]
        draft_s = sum(seconds) if len(seconds) == len(statistics) else None
    elif not is_tree and drafter is not None and extra == 0 and sample.devices == ("CPU",):
        draft_s = drafter.seconds
    counts = _sum_counts(statistics, sample.n_accepted)
    missing = (sample.n_draft or 0) - len(counts or ())
    return replace(
        sample,
        n_rounds=rounds,
        accepted_at=None if counts is None else counts + (0,) * missing,
        by_method=total_by_method(statistics, sample.n_accepted),
        draft_s=_within(draft_s, sample.gen_s),
        verify_s=_within(verify_s, sample.gen_s),
    )


def with_requests(
    sample: Sample, statistics: Sequence[Statistics], answers: Sequence[int], accepted: Sequence[int]
) -> Sample:
    """Add a server's rounds, accepted positions and drafting time, if its statistics have them.

    A request's rounds are its tokens minus the first and the accepted ones, unless its last round accepted
    more tokens than the answer used; then the calls to draft are its rounds.

    Args:
        sample: the totals of all requests.
        statistics: all such lines; each request ends with one.
        answers: the tokens of each request.
        accepted: the accepted tokens of each request that drafted.
    """
    if not statistics:
        return sample
    if len({line.method for line in statistics}) >= _CHAIN:
        return replace(sample, by_method=total_by_method(statistics, sample.n_accepted))
    last = statistics[-1]
    if last.accepted != sample.n_accepted:  # in older servers each slot has its own statistics
        return sample
    return replace(
        sample,
        n_rounds=_request_rounds(statistics, answers, accepted),
        accepted_at=_counts(last),
        draft_s=_within(last.draft_s, sample.gen_s),
    )


def _request_rounds(
    statistics: Sequence[Statistics], answers: Sequence[int], accepted: Sequence[int]
) -> int | None:
    """Return the rounds of all requests; None if lines cannot be assigned to requests."""
    if not len(statistics) == len(answers) == len(accepted):
        return None
    rounds = drafting = before = 0
    for line, tokens, count in zip(statistics, answers, accepted, strict=True):
        if line.accepted - before != count:
            return None
        rounds += max(tokens - 1 - count, line.drafting - drafting)
        drafting, before = line.drafting, line.accepted
    return rounds


def _sum_counts(statistics: Sequence[Statistics], n_accepted: int) -> tuple[int, ...] | None:
    """Return how often each position was accepted, whatever method drafted it; None where that is unknown."""
    counts = [_counts(line) for line in statistics if line.judged]
    counted = [positions for positions in counts if positions is not None]
    if not counted or len(counted) < len(counts) or sum(map(sum, counted)) != n_accepted:
        return None
    return tuple(map(sum, zip_longest(*counted, fillvalue=0)))


def _counts(line: Statistics) -> tuple[int, ...] | None:
    """Return how often each position was accepted; None if the rates fit more than one count.

    A rate has three digits, so for up to 1,000 drafts only one count fits.
    """
    if not line.judged:
        return None
    if not line.accepted:
        return ()
    counts: list[int] = []
    for rate in line.rates:
        # the rate is rounded to 0.0005, so the count is off by one at most up to 2,000 drafts; of more,
        # several counts print the same rate, and none is taken
        near = round(float(rate) * line.judged)
        fits = [
            count
            for count in (near - 1, near, near + 1)
            if 0 <= count <= line.judged and f"{count / line.judged:.3f}" == rate
        ]
        if len(fits) != 1:
            return None
        counts += fits
    is_consistent = counts and sum(counts) == line.accepted and counts[0] == line.first
    return tuple(counts) if is_consistent and counts == sorted(counts, reverse=True) else None


def _within(seconds: float | None, window: float | None) -> float | None:
    """Return seconds that lie within a window; None for others."""
    if seconds is None or window is None or not 0 <= seconds <= window * _SLACK:
        return None
    return seconds
