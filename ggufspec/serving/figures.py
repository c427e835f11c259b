"""The records of several users' requests -> a Sample: the steady window and what happened in it. Pure."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from statistics import fmean, median
from typing import NamedTuple, TextIO

import msgspec

from ggufspec import domain
from ggufspec.engines import plausibility
from ggufspec.engines.server import Parsed
from ggufspec.llama.server import Timings


class RequestRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One request. Times are seconds since the first one was sent.

    ``number`` counts the requests of all users, ``user`` the users and ``prompt`` the prompts of ``Traffic``,
    each from 0. ``arrivals`` has the time of each token, or of each event: a token that ends inside a
    character arrives with the next one. ``cpu_s`` is the processor time that the client has used so far.
    """

    number: int
    user: int
    prompt: int
    sent_s: float
    end_s: float
    cpu_s: float
    outcome: domain.RequestOutcome
    reason: str | None = None
    text: str = ""
    arrivals: tuple[float, ...] = ()
    timings: Timings | None = None
    truncated: bool = False

    @property
    def tokens(self) -> int:
        """Tokens that arrived: the server's count of a complete answer, or else the events."""
        counted = self.timings.predicted_n if self.timings is not None else None
        return counted if counted is not None and counted >= 0 else len(self.arrivals)


def encode_record(record: RequestRecord) -> str:
    """Return a record as a line."""
    return msgspec.json.encode(record).decode() + "\n"


def decode_records(lines: Iterable[str]) -> Iterator[RequestRecord]:
    """Yield the records of lines; lines of other kinds, and a torn last line, are skipped."""
    for line in lines:
        if line.startswith(_START) and line.endswith("\n"):
            yield _decoder.decode(line)


def read_records(open_lines: Callable[[], TextIO]) -> Iterator[RequestRecord]:
    """Yield the records of a file."""
    with open_lines() as lines:
        yield from decode_records(lines)


_START = '{"number":'
_decoder = msgspec.json.Decoder(RequestRecord)


BURST_S = 0.0005
"""Seconds between two tokens below which they arrived together, as the tokens of one round do."""


class Window(NamedTuple):
    """The steady window, in seconds since the first request was sent."""

    start_s: float
    end_s: float


class _Sent(NamedTuple):
    """When a request was sent and ended."""

    number: int
    user: int
    sent_s: float
    end_s: float
    cpu_s: float


def find_window(requests: Sequence[_Sent], traffic: domain.Traffic) -> Window | None:
    """Return the time in which all users were served and none waited for the others to begin.

    It begins when every user has had an answer, and ends with the last request that counts. Until then every
    user sends further requests, so that there is no tail. Where requests arrive by themselves, it begins with
    the first one behind as many as there are slots.

    Args:
        requests: of all users.
        traffic: what was to be sent.

    Returns:
        The window; None if a user had no answer, or the last request ended before that.
    """
    if traffic.is_open:
        first = min(traffic.users, traffic.n_requests // 2)  # a short recording has fewer than slots
        started = [request.sent_s for request in requests if request.number == first]
        ended = [request.end_s for request in requests if request.number < traffic.n_requests]
        return Window(started[0], max(ended)) if started else None
    users, n_requests = traffic.users, traffic.n_requests
    first_end: dict[int, float] = {}
    end_s = 0.0
    for request in requests:
        first_end[request.user] = min(request.end_s, first_end.get(request.user, request.end_s))
        if request.number < n_requests:
            end_s = max(end_s, request.end_s)
    if len(first_end) < users or max(first_end.values()) >= end_s:
        return None
    return Window(max(first_end.values()), end_s)


def summarize(spec: domain.RunSpec, read: Callable[[], Iterable[RequestRecord]]) -> Parsed:
    """Return the sample of a run with several users, and a sentence about failed requests.

    The run has failed if no request succeeded, or there was no steady window.

    Args:
        spec: with ``traffic``.
        read: returns the records; called twice, so that not all of them are in memory at once.
    """
    traffic = spec.traffic
    assert traffic is not None
    sent: list[_Sent] = []
    reasons: dict[domain.RequestOutcome, str] = {}
    for record in read():
        sent.append(_Sent(record.number, record.user, record.sent_s, record.end_s, record.cpu_s))
        if record.reason is not None:
            reasons.setdefault(record.outcome, record.reason)
    window = find_window(sent, traffic)
    tally = _Tally(n_requests=traffic.n_requests, window=window, asked=traffic.tokens_of(spec.n_predict))
    for record in read():
        tally.add(record)
    served = sorted(tally.served)
    requests = tuple(request for _, request in served)
    failed = Counter(request.outcome for request in requests)
    failed.pop(domain.RequestOutcome.OK, None)
    sample = tally.to_sample(
        spec,
        requests,
        client_share=_client_share(sent, window),
        saturated=is_saturated(sent, traffic) if traffic.is_open else None,
    )
    if tally.contradiction is not None:
        return Parsed(sample=replace(sample, status=domain.Status.IMPLAUSIBLE), remark=tally.contradiction)
    remark = None
    if failed:
        counts = ", ".join(
            f"{n} {outcome.value}" + (f" ({reasons[outcome]})" if outcome in reasons else "")
            for outcome, n in failed.most_common()
        )
        remark = f"{failed.total()} of {len(requests)} requests failed: {counts}"
    if sample.status is not domain.Status.OK and remark is None:
        remark = "no steady window: a user had no answer before the last request ended"
    return Parsed(sample=sample, remark=remark)


class _Tally:
    """Sums over records, one after the other."""

    def __init__(self, *, n_requests: int, window: Window | None, asked: Sequence[int]) -> None:
        self._n_requests, self._window, self._asked = n_requests, window, asked
        self.contradiction: str | None = None  # the first of a server's account with what its clients saw
        self.served: list[tuple[int, domain.UserRequest]] = []
        self._answers: dict[int, domain.PromptAnswer] = {}
        self._window_tokens = 0.0
        self._followers = self._burst = 0
        self._n_prompt = self._prompt_s = 0.0
        self._generated = self._drafted = self._accepted = self._rounds = 0
        self._reports_drafts = False
        self._truncated = False

    def add(self, record: RequestRecord) -> None:
        """Add one record."""
        if self._window is not None:
            self._window_tokens += tokens_within(record, self._window)
        if record.number >= self._n_requests:
            return
        is_ok = record.outcome is domain.RequestOutcome.OK
        is_steady = self._window is not None and record.sent_s >= self._window.start_s
        first = record.arrivals[0] if record.arrivals else None
        duration_s = record.arrivals[-1] - record.arrivals[0] if record.arrivals else 0.0
        counts = record.timings or Timings()
        if (
            counts.predicted_ms and len(record.arrivals) < record.tokens - 1
        ):  # a call, parts of which never came
            duration_s = counts.predicted_ms / 1000
        request = domain.UserRequest(
            prompt=record.prompt,
            outcome=record.outcome,
            is_steady=is_steady,
            tokens=record.tokens,
            ttft_s=None if first is None else round(first - record.sent_s, 6),
            token_s=round(duration_s / (record.tokens - 1), 9) if is_ok and record.tokens > 1 else None,
            prompt_tokens=_counted(counts.prompt_n),
            cached_tokens=_counted(counts.cache_n),
            drafted=counts.draft_n,
            accepted=counts.draft_n_accepted,
        )
        self.served.append((record.number, request))
        gaps = [later - earlier for earlier, later in pairwise(record.arrivals)]
        self._followers += len(gaps)
        self._burst += sum(gap < BURST_S for gap in gaps)
        if is_ok:
            self._add_answer(record)

    def _add_answer(self, record: RequestRecord) -> None:
        ms = record.timings.predicted_ms if record.timings is not None else None
        self.contradiction = self.contradiction or plausibility.find_contradiction(
            tokens=record.tokens,
            asked=self._asked[record.prompt] if record.prompt < len(self._asked) else None,
            gen_s=None if ms is None else ms / 1000,
            arrivals=record.arrivals,
            end_s=record.end_s - record.sent_s,
        )
        self._truncated = self._truncated or record.truncated
        answer = domain.PromptAnswer(record.prompt, record.text, record.tokens)
        self._answers.setdefault(record.prompt, answer)
        timings = record.timings
        if timings is None:
            return
        self._reports_drafts = self._reports_drafts or timings.draft_n is not None
        n, accepted = timings.predicted_n or 0, timings.draft_n_accepted or 0
        self._generated += n
        self._drafted += timings.draft_n or 0
        self._accepted += accepted
        self._rounds += max(0, n - 1 - accepted)
        if timings.prompt_n and timings.prompt_n > 0 and timings.prompt_per_second:
            self._n_prompt += timings.prompt_n
            self._prompt_s += timings.prompt_n / timings.prompt_per_second

    def to_sample(
        self,
        spec: domain.RunSpec,
        requests: Sequence[domain.UserRequest],
        *,
        client_share: float | None,
        saturated: bool | None,
    ) -> domain.Sample:
        """Return the sample of all records that were added."""
        drafts = spec.drafting is not None or (spec.servers is not None and self._reports_drafts)
        steady = [request for request in requests if request.is_steady]
        ttfts = [request.ttft_s for request in steady if request.ttft_s is not None]
        gaps = [request.token_s for request in steady if request.token_s is not None]
        return domain.Sample(
            status=self._status(spec, requests),
            program=domain.Program.SERVER,
            prompt_tokens=round(self._n_prompt) or None,
            prompt_tps=self._n_prompt / self._prompt_s if self._prompt_s else None,
            gen_tokens=self._generated,
            gen_s=None if self._window is None else self._window.end_s - self._window.start_s,
            n_draft=spec.draft_size,
            n_drafted=self._drafted if drafts else None,
            n_accepted=self._accepted if drafts else None,
            n_rounds=self._rounds,
            ttft_s=median(ttfts) if ttfts else None,
            itl_s=median(gaps) if gaps else None,
            traffic=domain.TrafficSample(
                requests=tuple(requests),
                answers=tuple(self._answers[prompt] for prompt in sorted(self._answers)),
                window_tokens=round(self._window_tokens),
                burst_share=self._burst / self._followers if self._followers else None,
                client_share=client_share,
                is_saturated=saturated,
            ),
        )

    def _status(self, spec: domain.RunSpec, requests: Sequence[domain.UserRequest]) -> domain.Status:
        outcomes = {request.outcome for request in requests}
        if domain.RequestOutcome.OK not in outcomes:
            return (
                domain.Status.TIMED_OUT
                if outcomes == {domain.RequestOutcome.TIMED_OUT}
                else domain.Status.FAILED
            )
        if self._truncated:
            return domain.Status.PROMPT_TOO_LONG
        if self._window is None or not round(self._window_tokens):
            return domain.Status.FAILED
        if spec.drafter is not None and not self._drafted and not (spec.drafting and spec.drafting.p_min):
            return domain.Status.DRAFTING_INACTIVE
        return domain.Status.OK


def _counted(tokens: int | None) -> int | None:
    """Return a count; llama.cpp writes a negative number where it has not counted."""
    return None if tokens is None or tokens < 0 else tokens


def is_saturated(requests: Sequence[_Sent], traffic: domain.Traffic) -> bool:
    """Return whether requests arrived faster than they were answered, so that they piled up.

    At each arrival the requests are counted that have not ended. They pile up if in the last third of the
    arrivals there are on average more than the server has slots, and half as many again as in the first.
    """
    counting = sorted(request for request in requests if request.number < traffic.n_requests)
    ends = sorted(request.end_s for request in requests)
    waiting = [
        place - bisect_right(ends, request.sent_s)  # those that were sent before, less those that have ended
        for place, request in enumerate(counting)
    ]
    third = len(waiting) // 3
    if not third:
        return False
    first, last = fmean(waiting[:third]), fmean(waiting[-third:])
    return last > traffic.users and last > 1.5 * first


def tokens_within(record: RequestRecord, window: Window) -> float:
    """Return how many of a request's tokens arrived in a window, its start excluded.

    Where fewer events arrived than tokens, each event counts for several.
    """
    if not record.arrivals:
        return 0.0
    inside = bisect_right(record.arrivals, window.end_s) - bisect_right(record.arrivals, window.start_s)
    return inside * record.tokens / len(record.arrivals)


def _client_share(sent: Sequence[_Sent], window: Window | None) -> float | None:
    """Return the client's processor time over the window, from the records that ended at its ends."""
    if window is None:
        return None
    ended = sorted((request.end_s, request.cpu_s) for request in sent)
    times = [end_s for end_s, _ in ended]
    first, last = ended[bisect_left(times, window.start_s)], ended[bisect_right(times, window.end_s) - 1]
    return (last[1] - first[1]) / (last[0] - first[0]) if last[0] > first[0] else None
