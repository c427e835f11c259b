"""Users who send requests at once: which ones, in which order, and what arrives when. One thread, asyncio."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import aclosing, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count, islice
from typing import Any, TextIO

from ggufspec.domain import Failure, Prompt, RequestOutcome, RunSpec, ServiceLevel, Traffic
from ggufspec.llama.server import (
    END,
    AnswerEvent,
    AnswerText,
    LoadClient,
    RequestError,
    Timings,
    decode,
    path_of,
)
from ggufspec.prompts import recorded_turns
from ggufspec.serving.figures import RequestRecord, encode_record

REQUESTS_PER_USER = 5
"""The least number of requests that count, by user: the first one of each precedes the steady window."""


LEAST_ARRIVALS = 20
"""The least number of requests that count where they arrive at a rate."""


def plan_traffic(
    prompts: Sequence[Prompt],
    users: int,
    *,
    seed: int,
    depth: int = 0,
    rate: float | None = None,
    service_level: ServiceLevel | None = None,
    keeps_turns: bool = False,
) -> Traffic:
    """Return the requests of several users.

    Prompts are dealt in an order that the seed fixes, the same for any number of users. Every prompt is dealt
    equally often, so that all numbers of users are measured on the same texts. Recorded turns of
    conversations are requests of their own.

    Args:
        prompts: at least one.
        users: who send requests at once.
        seed: fixes the order.
        depth: tokens of other text before each prompt, already part of its text.
        rate: requests that arrive in a second; None for users who wait for their answers.
        service_level: which requests count as good.
        keeps_turns: whether later turns of conversations stay, which need the answers to earlier ones.
    """
    turns = (turn for prompt in prompts for turn in recorded_turns(prompt))
    sent = [*prompts] if keeps_turns else [replace(turn, turn=0) for turn in turns]
    order = random.Random(f"{seed}/deal").sample(sent, len(sent))  # noqa: S311  # an order, not a secret
    return Traffic(
        users=users,
        prompts=tuple(order),
        n_requests=count_requests(len(order), users, least=0 if rate is None else LEAST_ARRIVALS),
        depth=depth,
        rate=rate,
        service_level=service_level,
    )


def count_requests(prompts: int, users: int, *, least: int = 0) -> int:
    """Return how many requests count: the least number with which every prompt is dealt equally often.

    Args:
        prompts: how many there are.
        users: who send requests at once.
        least: requests, if that is more than each user needs.
    """
    return -(-max(REQUESTS_PER_USER * users, least) // prompts) * prompts


def arrival_times(rate: float, *, seed: int) -> Iterator[float]:
    """Yield, without end, when requests arrive: seconds of a Poisson process that the seed fixes.

    Args:
        rate: mean number of requests in a second.
        seed: fixes the times, for all arms alike.
    """
    chance, at_s = random.Random(f"{seed}/arrivals"), 0.0  # noqa: S311  # times, not secrets
    while True:
        yield at_s
        at_s += chance.expovariate(rate)


_BROKEN = {RequestOutcome.CUT_OFF, RequestOutcome.DISCONNECTED}
"""How connections end that break."""


@dataclass(kw_only=True)
class UserReply:
    """What arrived of one user's answer; ``arrivals`` are seconds on the clock of ``time.perf_counter``."""

    outcome: RequestOutcome = RequestOutcome.CUT_OFF
    reason: str | None = None
    texts: list[str] = field(default_factory=list)
    writer: AnswerText = field(default_factory=AnswerText)
    arrivals: list[float] = field(default_factory=list)
    timings: Timings | None = None
    truncated: bool = False

    def fail(self, outcome: RequestOutcome, reason: object) -> None:
        """Say how the request failed."""
        self.outcome, self.reason = outcome, " ".join(str(reason).split())[:300] or None

    def fail_by(self, error: Failure | RequestError) -> None:
        """Say how the request failed, unless the connection only broke behind a complete answer."""
        if isinstance(error, Failure):
            self.fail(RequestOutcome.UNREADABLE, error.reason)
        elif self.outcome is not RequestOutcome.OK or error.outcome not in _BROKEN:
            self.fail(
                error.outcome, error.reason if error.code is None else f"HTTP {error.code}: {error.reason}"
            )


def take_event(reply: UserReply, data: str, arrived_at: float) -> bool:
    """Add an event, which arrived at a time, to a reply; return whether more may follow.

    An event with several tokens is one arrival. In OpenAI's format, the number of all tokens comes last.

    Raises:
        RequestError: the server reports an error.
        Failure: the event cannot be read.
    """
    if data == END:
        return False
    event = decode(data, AnswerEvent)
    if event.failure is not None:
        raise RequestError(RequestOutcome.SERVER_ERROR, event.failure.reason)
    text = reply.writer.add(event)
    reply.texts.append(text)
    if not event.stop and (text or event.content is not None):
        reply.arrivals.append(arrived_at)
    if event.stop or event.finish_reason is not None:
        reply.outcome = RequestOutcome.OK
    reply.truncated = reply.truncated or event.truncated
    if event.timings is not None:
        reply.timings = event.timings
    elif event.usage is not None and (reply.timings is None or reply.timings.predicted_ms is None):
        reply.timings = event.usage.timings
    return not event.stop


@dataclass(kw_only=True)
class TrafficRun:
    """Users who send requests until enough of them have ended.

    Each sends the next request when the last one was answered; with a rate or recorded times, requests arrive
    by themselves. Further ones are sent until the last one that counts has ended, so that it has company, but
    none after recorded ones; those that are cut off at the end have the outcome STOPPED. Each request is
    written when it ends, whatever its outcome.

    Attributes:
        client: sends the requests.
        traffic: what to send.
        make_body: returns the body of a request for a prompt; a chat is sent to the path of chats.
        write: stores a record.
        path: where other requests are sent.
        seed: fixes the times at which requests arrive.
        timeout_s: time limit for everything; None for none.
    """

    client: LoadClient
    traffic: Traffic
    make_body: Callable[[Prompt], Mapping[str, Any]]
    write: Callable[[RequestRecord], None]
    path: str = "/completion"
    seed: int = 1
    timeout_s: float | None = None
    _numbers: Iterator[int] = field(default_factory=count)
    _ended: int = 0  # of the requests that count
    _finished: asyncio.Event = field(default_factory=asyncio.Event)
    _started: float = 0.0  # on the clock of time.perf_counter
    _cpu_before: float = 0.0
    _deadline: float | None = None  # on the clock of the event loop

    async def run(self) -> None:
        """Send all requests.

        Raises:
            OSError: a record cannot be written.
        """
        self._started = time.perf_counter()
        self._cpu_before = time.thread_time()
        if self.timeout_s is not None:
            self._deadline = asyncio.get_running_loop().time() + self.timeout_s
        try:
            async with asyncio.TaskGroup() as group:
                if self.traffic.is_open:
                    await self._receive(group)
                    return
                users = [group.create_task(self._act(user)) for user in range(self.traffic.users)]
                await self._finished.wait()
                for task in users:
                    task.cancel()
        except ExceptionGroup as errors:  # one user's error ends all of them
            raise errors.exceptions[0] from None

    async def _act(self, user: int) -> None:
        """Send one request after the other."""
        while True:
            number = next(self._numbers)
            outcome = await self._ask(number, user)
            self._count(number)
            if self._finished.is_set():
                return
            if number >= self.traffic.n_requests and outcome is not RequestOutcome.OK:
                return  # no other request needs it to run beside, and it would fail again at once

    async def _receive(self, group: asyncio.TaskGroup) -> None:
        """Send each request when it arrives; at random times, at most as many again as count."""
        sent = []
        traffic = self.traffic
        arrivals: Iterable[float] = traffic.arrivals
        if traffic.rate is not None:
            arrivals = islice(arrival_times(traffic.rate, seed=self.seed), 2 * traffic.n_requests)
        for number, at_s in enumerate(arrivals):
            wait_s = self._started + at_s - time.perf_counter()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._finished.wait(), max(0.0, wait_s))
            if self._finished.is_set():
                break
            sent.append(group.create_task(self._serve(number)))
        await self._finished.wait()
        for task in sent:
            task.cancel()

    async def _serve(self, number: int) -> None:
        """Send one request that has arrived."""
        await self._ask(number, number)
        self._count(number)

    def _count(self, number: int) -> None:
        """Count a request that has ended; the last one that counts ends the run."""
        self._ended += number < self.traffic.n_requests
        if self._ended == self.traffic.n_requests:
            self._finished.set()

    async def _ask(self, number: int, user: int) -> RequestOutcome:
        """Send one request and write its record."""
        place = number % len(self.traffic.prompts)
        body = self.make_body(self.traffic.prompts[place])
        if self.traffic.answer_tokens:
            limit = "max_tokens" if "max_tokens" in body else "n_predict"  # OpenAI's name, llama.cpp's name
            body = {**body, limit: self.traffic.answer_tokens[place]}
        reply, sent_at = UserReply(), time.perf_counter()
        try:
            async with asyncio.timeout_at(self._deadline):
                await self.client.stream_events(path_of(body, self.path), body, partial(take_event, reply))
        except (Failure, RequestError) as error:
            reply.fail_by(error)
        except TimeoutError:
            reply.fail(RequestOutcome.TIMED_OUT, f"no complete answer within {self.timeout_s:g} s")
        except asyncio.CancelledError:
            reply.fail(RequestOutcome.STOPPED, "")
            raise
        finally:
            self.write(
                RequestRecord(
                    number=number,
                    user=user,
                    prompt=place,
                    sent_s=self._since(sent_at),
                    end_s=self._since(time.perf_counter()),
                    cpu_s=round(time.thread_time() - self._cpu_before, 6),
                    outcome=reply.outcome,
                    reason=reply.reason,
                    text="".join([*reply.texts, reply.writer.end()]),
                    arrivals=tuple([round(at - self._started, 6) for at in reply.arrivals]),
                    timings=reply.timings,
                    truncated=reply.truncated,
                )
            )
        return reply.outcome

    def _since(self, at: float) -> float:
        return round(at - self._started, 6)


def send_traffic(
    url: str,
    key: str | None,
    spec: RunSpec,
    make_body: Callable[[Prompt], Mapping[str, Any]],
    record: TextIO,
    *,
    timeout_s: float | None,
    path: str = "/completion",
) -> Counter[RequestOutcome]:
    """Send all requests of a run, write a line for each, and return how they ended; see ``TrafficRun``.

    Raises:
        OSError: a line cannot be written.
    """
    assert spec.traffic is not None
    outcomes: Counter[RequestOutcome] = Counter()
    sent: dict[str, Any] = {
        "traffic": spec.traffic,
        "make_body": make_body,
        "path": path,
        "seed": spec.sampling.seed,
    }

    def store(ended: RequestRecord) -> None:
        outcomes[ended.outcome] += 1
        record.write(encode_record(ended))

    async def send_all() -> None:
        async with aclosing(LoadClient(url, key)) as client:
            await TrafficRun(client=client, write=store, timeout_s=timeout_s, **sent).run()

    run_in_loop(send_all())
    return outcomes


def run_in_loop(main: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine to its end; in another thread if this one has a running event loop, as in notebooks."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        asyncio.run(main)
        return
    started: Future[Callable[[], object]] = Future()

    async def run_cancellable() -> None:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None
        started.set_result(lambda: loop.call_soon_threadsafe(task.cancel))
        await main

    with ThreadPoolExecutor(max_workers=1) as executor:
        job = executor.submit(asyncio.run, run_cancellable())
        try:
            job.result()
        except BaseException:
            if not job.done():
                started.result()()
            raise
