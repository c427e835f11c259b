"""A bench of several users at once: what they send, and how its runs differ from those of single prompts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product

from ggufspec.domain import ENGINES, Chain, Program, Prompt, Runtime, Traffic
from ggufspec.errors import GgufspecError
from ggufspec.forecast.concurrency import BATCH, most_rows
from ggufspec.llama.command import LEARNING_METHODS
from ggufspec.measure.runplan import RunPlan
from ggufspec.options import BenchOptions
from ggufspec.prompts import Recording
from ggufspec.serving import plan_traffic
from ggufspec.units import counted, format_duration

PROMPT = Prompt(id="traffic", text="")
"""Stands for the prompts of ``RunSpec.traffic`` in the runs of several users."""


def check_engine(users: Sequence[int], engine: str) -> None:
    """Make sure that an engine can measure several users, or one with text before the prompts.

    Raises:
        GgufspecError: it cannot.
    """
    if users and ENGINES[engine] is not Program.SERVER:
        raise GgufspecError(
            f"the engine {engine} measures neither several users nor other text before prompts",
            "add --engine server for --parallel and --depth",
        )


def check_batches(users: Sequence[int], longest_draft: int, runtimes: Sequence[Runtime]) -> None:
    """Make sure that the drafts of all users fit into a batch: llama-server ends where they do not.

    Args:
        users: the numbers of users; empty for one request after another.
        longest_draft: tokens of the longest draft of all arms.
        runtimes: llama.cpp's settings; the smallest ``-b`` counts.

    Raises:
        GgufspecError: they do not fit.
    """
    if not users:
        return
    batch = min(runtime.batch or BATCH for runtime in runtimes)
    rows = most_rows(max(users), longest_draft)
    if rows > batch:
        raise GgufspecError(
            f"{max(users)} users with drafts of {longest_draft} tokens have batches of {rows:,} tokens, "
            f"and -b allows {batch:,}",
            f"use -b {rows} or more, shorter drafts or fewer users",
        )


def plan_traffics(
    request: BenchOptions,
    sent: Mapping[int, Sequence[Prompt]],
    recording: Recording | None,
    *,
    keeps_turns: bool = False,
) -> Iterator[Traffic]:
    """Yield the traffic of each number of users at each depth and rate; none for one request after another.

    Args:
        request: has the axes.
        sent: what users send, by the number of tokens before each prompt; recorded requests at 0.
        recording: says when these are sent.
        keeps_turns: as for ``plan_traffic``.

    Raises:
        GgufspecError: there is a service level, and requests do not arrive at a rate.
    """
    if recording is not None:
        lengths = [recorded.answer_tokens or request.n_predict for recorded in recording.requests]
        for users in request.users:
            yield Traffic(
                users=users,
                prompts=tuple(sent[0]),
                n_requests=len(sent[0]),
                service_level=request.slo,
                arrivals=tuple(recorded.at_s for recorded in recording.requests),
                answer_tokens=tuple(min(length, request.n_predict) for length in lengths),
            )
        return
    rates = request.rate or (None,)  # None: users wait for their answers
    if request.slo is not None and None in rates:
        raise GgufspecError(
            "users who wait for their answers have no goodput", "add --rate or --replay, or leave --slo out"
        )
    for (depth, prompts), users, rate in product(sent.items(), request.users, rates):
        yield plan_traffic(
            prompts,
            users,
            seed=request.seed,
            depth=depth,
            rate=rate,
            service_level=request.slo,
            keeps_turns=keeps_turns,
        )


def describe_replay(recording: Recording | None, n_predict: int) -> Iterator[str]:
    """Yield notes about recorded requests; none without them."""
    if recording is None:
        return
    duration = format_duration(recording.duration_s)
    requests = counted(len(recording.requests), "request")
    yield f"replay: {requests} over {duration}; each run takes at least as long"
    if recording.left_out:
        others = counted(recording.left_out, "other request")
        yield f"replay: {others} left out, such as those with pictures"
    longer = sum((request.answer_tokens or 0) > n_predict for request in recording.requests)
    if longer:
        yield f"replay: {counted(longer, 'answer')} longer than {n_predict} tokens are cut there (-n)"
    yield "replay: the texts are stored with the results on this machine, and `publish` leaves them out"


def send_together(suite: RunPlan) -> RunPlan:
    """Return the runs of a bench with traffic: one run is one load of the models with all its requests.

    It needs no warm-ups, because the requests before the steady window are left out, and no anchors, because
    each would take as long as an arm.
    """
    return replace(suite, prompts=(PROMPT,), warmup_prompts=(), warmups=0, has_anchors=False)


def describe(traffics: Sequence[Traffic], ways: Sequence[Chain] = ()) -> Iterator[str]:
    """Yield notes about the traffic of a bench.

    Args:
        traffics: all of them; empty for one request after another.
        ways: what drafts, if it is known.
    """
    if not traffics:
        return
    closed = [traffic for traffic in traffics if not traffic.arrivals]
    for users, requests in {traffic.users: traffic.n_requests for traffic in closed}.items():
        yield (
            f"traffic: {counted(users, 'user')}, {requests} requests of "
            f"{counted(len(traffics[0].prompts), 'prompt')} in each run; the first of each user is left out"
        )
    learning = [str(way) for way in ways if not LEARNING_METHODS.isdisjoint(way.methods)]
    if learning and any(traffic.n_requests > len(traffic.prompts) for traffic in traffics):
        yield (
            f"traffic: {', '.join(learning)} learns from earlier requests and drafts its earlier answers, "
            "because prompts are sent more than once: give as many prompts as requests"
        )
