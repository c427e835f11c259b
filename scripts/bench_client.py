"""How many tokens/s the client of `--parallel` can take, so that it is not what a bench measures.

    python scripts/bench_client.py [REQUESTS]

A server in a process of its own answers at once: 4,096 tokens to each of 64 clients, with bytes that were
built before. It sends an answer in one piece ("blocks"), or as llama-server does each token in an HTTP chunk
of its own ("chunks"). Beside it the ceiling: the same bytes from memory through the same parser, without a
network. If they are installed in environments of their own, whose Pythons GUIDELLM_PYTHON and
LLAMA_BENCHY_PYTHON name, the clients of guidellm and llama-benchy take the same answers in OpenAI's format.

Tokens/s are per second of the client's processor time, so that other programs on the machine count less; all
are measured in turn, and the medians of three rounds are printed. The last line is the cost of a short
request and the growth of memory over REQUESTS requests (default: 10,000). Wanted: at least 80 % of the
ceiling with "blocks", ahead of both others, at most 50 MiB more, and no request unaccounted for.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import aclosing, contextmanager
from functools import partial
from statistics import median

import httpx2
import psutil
import stream_server
import terminal

from ggufspec.domain import Prompt, RequestOutcome, Traffic
from ggufspec.llama.server import LoadClient
from ggufspec.serving import RequestRecord, TrafficRun, UserReply
from ggufspec.serving.client import take_event

USERS = 64
TOKENS = 4096
ANSWERS = 2 * USERS
ROUNDS = 3
MIB = 1 << 20

BENCHY = """
from llama_benchy.client import LLMClient
import aiohttp
client = LLMClient(url + "/v1", "", "fake")
async def run():
    connector = aiohttp.TCPConnector(limit=users, force_close=True)
    async with aiohttp.ClientSession(connector=connector) as session:
        async def act():
            while next(numbers) < answers:
                result = await client.run_generation(session, "", "x" * 64, tokens, True)
                assert result.error is None, result.error
                totals.append(result.total_tokens)
        await asyncio.gather(*(act() for _ in range(users)))
"""
GUIDELLM = """
from guidellm.backends.openai import OpenAIHTTPBackend
from guidellm.schemas import GenerationRequest, RequestInfo
from guidellm.schemas.backends.openai_http import OpenAIHTTPBackendArgs
backend = OpenAIHTTPBackend(
    OpenAIHTTPBackendArgs(target=url, model="fake", request_format="/v1/completions", stream=True)
)
async def run():
    await backend.process_startup()
    async def act():
        while next(numbers) < answers:
            request = GenerationRequest(columns={"text_column": ["x" * 64]})
            async for response, info in backend.resolve(request, RequestInfo()):
                pass
            totals.append(info.timings.token_iterations)
    await asyncio.gather(*(act() for _ in range(users)))
"""
DRIVER = """
import asyncio, itertools, json, sys, time
url, users, answers, tokens = sys.argv[1], *map(int, sys.argv[2:])
numbers, totals = itertools.count(), []
{client}
before = time.process_time()
asyncio.run(run())
print(json.dumps([sum(totals), time.process_time() - before]))
"""
OTHERS = {"guidellm": GUIDELLM, "llama-benchy": BENCHY}


def main() -> None:
    n_requests: int = _arguments().requests
    rates: dict[str, list[float]] = {}
    failures: dict[str, str] = {}
    for _ in range(ROUNDS):
        rates.setdefault("parser alone", []).append(measure_ceiling())
        for layout in ("blocks", "chunks"):
            with started(TOKENS, layout) as url:
                rates.setdefault(f"ggufspec, {layout}", []).append(measure_client(url))
                for name in OTHERS:
                    measured = measure_other(name, url)
                    if isinstance(measured, str):
                        failures[name] = measured
                    else:
                        rates.setdefault(f"{name}, {layout}", []).append(measured)
    ceiling = median(rates["parser alone"])
    for name, measured_rates in rates.items():
        rate = median(measured_rates)
        print(f"{name:24} {rate:10,.0f} tokens/s, {rate / ceiling:.0%} of the parser")
    for name, reason in failures.items():
        print(f"{name:24} {reason}")
    with started(4, "blocks") as url:
        before = time.process_time()
        grown, outcomes = measure_memory(url, n_requests)
        request_ms = (time.process_time() - before) * 1000 / n_requests
    ended = ", ".join(f"{count:,} {outcome}" for outcome, count in outcomes.items())
    print(
        f"{n_requests:,} requests of {USERS} clients: {ended}; {request_ms:.1f} ms each; "
        f"{grown / MIB:.1f} MiB more"
    )
    sys.exit(
        median(rates["ggufspec, blocks"]) < 0.8 * ceiling
        or grown > 50 * MIB
        or outcomes.total() != n_requests
    )


@contextmanager
def started(tokens: int, layout: str) -> Iterator[str]:
    """Run the server; yield its address."""
    argv = [sys.executable, stream_server.__file__, str(tokens), layout]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        yield f"http://127.0.0.1:{server.stdout.readline().strip()}"
        server.terminate()


def measure_ceiling() -> float:
    """Return tokens/s of the parser alone."""
    answer = b"".join(stream_server.events(TOKENS))

    async def parse() -> None:
        headers = {"Content-Type": "text/event-stream"}
        transport = httpx2.MockTransport(lambda _: httpx2.Response(200, headers=headers, content=answer))
        async with aclosing(LoadClient("http://x", transport=transport)) as client:
            for _ in range(ANSWERS):
                await client.stream_events("/", {}, partial(take_event, UserReply()))

    before = time.process_time()
    asyncio.run(parse())
    return ANSWERS * TOKENS / (time.process_time() - before)


def measure_client(url: str) -> float:
    """Return tokens/s of ggufspec's client."""
    totals: list[int] = []
    asyncio.run(send(url, USERS, lambda _: None))  # what is imported late is not part of it
    before = time.process_time()
    asyncio.run(send(url, ANSWERS, lambda record: totals.append(len(record.arrivals))))
    return sum(totals) / (time.process_time() - before)


async def send(url: str, n_requests: int, write: Callable[[RequestRecord], None]) -> None:
    """Send requests of all users."""
    traffic = Traffic(users=USERS, prompts=(Prompt(id="p", text="x" * 64),), n_requests=n_requests)
    async with aclosing(LoadClient(url)) as client:
        await TrafficRun(
            client=client, traffic=traffic, make_body=lambda prompt: {"prompt": prompt.text}, write=write
        ).run()


def measure_other(name: str, url: str) -> float | str:
    """Return tokens/s of another client, or why that is not known."""
    variable = f"{name.upper().replace('-', '_')}_PYTHON"
    python = os.environ.get(variable)
    if python is None:
        return f"not measured: {variable} names no Python that has it"
    argv = [python, "-c", DRIVER.format(client=OTHERS[name]), url, *map(str, (USERS, ANSWERS, TOKENS))]
    finished = subprocess.run(argv, capture_output=True, text=True, check=False)
    if finished.returncode:
        return f"failed: {finished.stderr.strip().splitlines()[-1]}"
    tokens, seconds = json.loads(finished.stdout.splitlines()[-1])
    return float(tokens) / float(seconds)


def measure_memory(url: str, n_requests: int) -> tuple[int, Counter[str]]:
    """Return the bytes by which this process grew over so many requests, and how these ended."""
    outcomes: Counter[str] = Counter()

    def count(record: RequestRecord) -> None:
        if record.number < n_requests:
            outcomes[RequestOutcome(record.outcome).value] += 1

    process = psutil.Process()
    asyncio.run(send(url, 5 * USERS, lambda _: None))
    before = process.memory_info().rss
    asyncio.run(send(url, n_requests, count))
    return process.memory_info().rss - before, outcomes


def _arguments() -> argparse.Namespace:
    parser = terminal.parser(__doc__)
    parser.add_argument(
        "requests", nargs="?", type=int, default=10_000, help="of the last line, by default 10,000"
    )
    return parser.parse_args()


if __name__ == "__main__":
    main()
