"""The engine ``running``: servers that run already, measured as their clients see them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import msgspec

from ggufspec import domain
from ggufspec.engines import Engine, Measurement
from ggufspec.engines.server import Parsed, TokenCandidate, candidates, question, response
from ggufspec.errors import NoInstallError
from ggufspec.llama import server
from ggufspec.redaction import redact
from ggufspec.serving.client import send_traffic
from ggufspec.serving.figures import RequestRecord, decode_records, summarize
from ggufspec.units import counted

COMPLETIONS = "/v1/completions"
NO_COUNTS = "the server does not report how many tokens it generated (usage), and an event may hold several"


def make_body(spec: domain.RunSpec, prompt: domain.Prompt) -> dict[str, Any]:
    """Return the request for an answer to a prompt.

    Samplers that are off are left out, because some servers refuse names beyond OpenAI's own. Only
    llama-server is asked not to use its prompt cache but in later turns; the others have no such field.

    Args:
        spec: with ``servers``.
        prompt: a message to the server's chat template, or a text to continue.
    """
    endpoint, servers, sampling = spec.endpoint, spec.servers, spec.sampling
    assert endpoint is not None
    assert servers is not None
    body: dict[str, Any] = {
        "model": endpoint.model,
        "max_tokens": spec.n_predict,
        "temperature": 0.0 if sampling.greedy else sampling.temperature,
        "seed": sampling.seed,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    request = spec.asking.change(prompt.request)
    body |= {} if request is None else request.fields
    if servers.chat and not prompt.is_chat:
        body["messages"] = _messages(servers, prompt)
    elif not prompt.is_chat:
        body["prompt"] = prompt.text
    if not sampling.greedy:
        limits = {"top_k": sampling.top_k, "min_p": sampling.min_p}
        body |= {name: value for name, value in limits.items() if value > 0}
        body |= {"top_p": sampling.top_p} if sampling.top_p < 1 else {}
    if endpoint.is_llama_server:
        body["cache_prompt"] = prompt.history > 0
    return body


def _messages(servers: domain.RunningServers, prompt: domain.Prompt) -> list[dict[str, Any]]:
    if prompt.request is not None and prompt.is_chat:
        return prompt.request.messages
    system = [] if servers.system is None else [{"role": "system", "content": servers.system}]
    return [*system, {"role": "user", "content": prompt.text}]


class CounterPair(msgspec.Struct, frozen=True):
    """The counters before and after a run; None where they could not be read."""

    before: server.ServerCounters | None = None
    after: server.ServerCounters | None = None

    @property
    def difference(self) -> server.ServerCounters:
        """What was counted meanwhile; None if it was not counted, or the server was started anew."""
        before, after = self.before, self.after
        if before is None or after is None:
            return server.ServerCounters()
        names = ("rounds", "drafted", "accepted", "generated", "requests")
        counts = {name: _difference(getattr(before, name), getattr(after, name)) for name in names}
        earlier = before.accepted_at or (0,) * len(after.accepted_at)
        accepted_at = [b - a for a, b in zip(earlier, after.accepted_at, strict=False)]
        is_known = len(earlier) == len(after.accepted_at)
        return server.ServerCounters(**counts, accepted_at=tuple(accepted_at) if is_known else ())


def _difference(before: int | None, after: int | None) -> int | None:
    return None if before is None or after is None or after < before else after - before


def with_counters(
    parsed: Parsed, spec: domain.RunSpec, counters: CounterPair, *, received: float = 0
) -> Parsed:
    """Return what a run with a running server shows, with the acceptance that its counters tell.

    llama-server reports drafts with each answer, so its counters are not used. The counters include requests
    that only kept the others company, so the generated tokens beside them do, too. SGLang counts rounds and
    tokens: each round gives its accepted tokens and one more, and the first token of an answer is that of the
    prompt.

    Args:
        parsed: from the records of all requests.
        spec: with ``servers``.
        counters: before and after the run.
        received: tokens of all answers of the run, those included that were cut off.
    """
    sample, endpoint, counted = parsed.sample, spec.endpoint, counters.difference
    if sample.traffic is not None and counted.generated and received:  # the rest was for other clients
        others_share = max(0.0, 1 - received / counted.generated)
        sample = replace(sample, traffic=replace(sample.traffic, others_share=others_share))
    if spec.role is not domain.Role.DRAFTING or endpoint is None or sample.n_drafted is not None:
        return replace(parsed, sample=sample)
    rounds, drafted, accepted = counted.rounds, counted.drafted, counted.accepted
    if rounds is None:
        return replace(parsed, sample=replace(sample, n_rounds=None))
    if accepted is None and None not in {counted.generated, counted.requests} and endpoint.draft_size:
        accepted = max(0, (counted.generated or 0) - (counted.requests or 0) - rounds)
        drafted = rounds * endpoint.draft_size
    sample = replace(
        sample,
        n_rounds=rounds,
        n_drafted=drafted,
        n_accepted=accepted,
        accepted_at=counted.accepted_at or None,
        gen_tokens=sample.gen_tokens if counted.generated is None else counted.generated,
    )
    if sample.status is domain.Status.OK and not rounds:
        reason = "the server's counters show no drafts"
        return Parsed(sample=replace(sample, status=domain.Status.DRAFTING_INACTIVE), remark=reason)
    return replace(parsed, sample=sample)


RankServed = Callable[[domain.Prompt, str, Sequence[int]], tuple[TokenCandidate, ...]]
"""Returns the target's likeliest tokens after a prompt, a text, and further tokens."""


class _TemplatedPrompt(msgspec.Struct, frozen=True):
    """What /apply-template makes of messages."""

    prompt: str


RUNNING = "running"
"""The engine's name in results. It is not a row of ENGINES, because nothing of llama.cpp is run."""


@dataclass(kw_only=True)
class RunningEngine(Engine):
    """Sends the requests of a run to a server that runs already.

    Attributes:
        name: see ``RUNNING``.
        keys: the key for each address that needs one.
        timeout_s: time limit for a run.
    """

    name: str = RUNNING
    keys: Mapping[str, str] = field(default_factory=dict, repr=False)
    timeout_s: float | None = None

    @property
    def hides_text(self) -> bool:
        """Whether the server's template may hide text from the target that it wrote; see ``Judge``."""
        return True

    def argv(self, spec: domain.RunSpec) -> tuple[str, ...]:
        """Return the method and the address of the requests."""
        assert spec.endpoint is not None
        is_chat = spec.servers is not None and spec.servers.chat
        return ("POST", f"{spec.endpoint.url}{server.CHAT_PATH if is_chat else COMPLETIONS}")

    def measure(self, spec: domain.RunSpec, log: Path) -> Measurement:
        """Send all requests of the users; ``log`` with ``.out`` has a line for each, and the counters."""
        endpoint = spec.endpoint
        assert endpoint is not None
        out, key = log.with_suffix(".out"), self.keys.get(endpoint.url)
        log.with_suffix(".err").write_bytes(b"")
        started = time.perf_counter()
        with (
            out.open("w", encoding="utf-8", newline="\n") as record,
            server.connect(endpoint.url, key) as client,
        ):
            before = server.read_counters(server.read_metrics(client) or "")
            make = partial(make_body, spec)
            how: dict[str, Any] = {"path": COMPLETIONS, "timeout_s": self.timeout_s}
            outcomes = send_traffic(endpoint.url, key, spec, make, record, **how)
            after = server.read_counters(server.read_metrics(client) or "")
            pair = msgspec.to_builtins(CounterPair(before=before, after=after))
            response.note(record, counters=pair)
        wall_s = time.perf_counter() - started
        with out.open(encoding="utf-8", newline="\n") as lines:
            parsed = read_record(spec, [*lines])
        if outcomes[domain.RequestOutcome.TIMED_OUT]:
            late = counted(outcomes[domain.RequestOutcome.TIMED_OUT], "request")
            parsed = Parsed(
                sample=replace(parsed.sample, status=domain.Status.TIMED_OUT),
                remark=f"{late} unanswered when the time was over",
            )
        return Measurement(sample=parsed.sample, argv=self.argv(spec), wall_s=wall_s, error=parsed.remark)

    @contextmanager
    def ranker(self, spec: domain.RunSpec, *, timeout_s: float | None = None) -> Iterator[RankServed]:
        """Yield a function that asks the server with the target alone for its likeliest next tokens.

        Raises:
            Failure: it is not llama-server, refuses the question, or does not answer.
        """
        servers = spec.servers
        endpoint = None if servers is None else servers.alone
        assert servers is not None
        assert endpoint is not None, "without it, no text parts from the target's own"
        if not endpoint.is_llama_server:
            reason = f"{endpoint.url} is not llama-server, whose /completion tells the likeliest tokens"
            raise domain.Failure(domain.Status.FAILED, reason)
        with server.connect(endpoint.url, self.keys.get(endpoint.url)) as client:

            def ask(path: str, body: Mapping[str, Any]) -> bytes:
                try:
                    answer = client.ask(path, body, timeout_s=timeout_s)
                except server.RequestError as error:
                    raise domain.Failure(
                        domain.Status.FAILED, f"{endpoint.url}: {redact(error.reason)}"
                    ) from error
                if not answer.is_ok:
                    raise server.answers.refused(answer.code, answer.error)
                return answer.content

            def rank(prompt: domain.Prompt, beginning: str, ids: Sequence[int]) -> tuple[TokenCandidate, ...]:
                text = prompt.text
                if servers.chat:
                    templated = ask("/apply-template", {"messages": _messages(servers, prompt)})
                    text = server.answers.decode(templated, _TemplatedPrompt).prompt
                return candidates(ask("/completion", question(text + beginning, ids)))

            yield rank

    def find_library(self) -> NoReturn:
        """Raise: servers that run already have no library here.

        Raises:
            NoInstallError: in any case.
        """
        raise NoInstallError("servers that run already have no library here", "name a llama.cpp")

    def ranks(self, spec: domain.RunSpec) -> bool:
        """Whether the server with the target alone tells the likeliest tokens, as llama-server does."""
        alone = None if spec.servers is None else spec.servers.alone
        return alone is not None and alone.is_llama_server


class _CountersLine(msgspec.Struct, frozen=True):
    counters: CounterPair = CounterPair()


def read_record(spec: domain.RunSpec, lines: Sequence[str]) -> Parsed:
    """Return the sample of the lines of a record that ``RunningEngine`` wrote."""
    records = [*decode_records(lines)]
    parsed = summarize(spec, records)
    if any(record.outcome is domain.RequestOutcome.OK and record.timings is None for record in records):
        failed = domain.Sample(
            status=domain.Status.FAILED, program=domain.Program.SERVER, traffic=parsed.sample.traffic
        )
        return Parsed(sample=failed, remark=NO_COUNTS)
    last = [line for line in lines if line.startswith('{"counters":')][-1:]
    counters = msgspec.json.decode(last[0], type=_CountersLine).counters if last else CounterPair()
    parsed = with_counters(parsed, spec, counters, received=_count_received(records))
    sample, endpoint = parsed.sample, spec.endpoint
    if sample.status is not domain.Status.OK:
        return parsed
    if spec.role is domain.Role.TARGET and sample.n_drafted:
        reason = "the server drafts, so it does not show the target alone: give it with --url-drafting"
        return Parsed(sample=replace(sample, status=domain.Status.FAILED), remark=reason)
    is_llama = endpoint is not None and endpoint.is_llama_server
    if spec.role is domain.Role.DRAFTING and is_llama and not sample.n_drafted:
        reason = "the server reported no drafted tokens"
        return Parsed(sample=replace(sample, status=domain.Status.DRAFTING_INACTIVE), remark=reason)
    return parsed


def _count_received(records: Iterable[RequestRecord]) -> float:
    """Return the tokens of all answers; an event of one that was cut off holds as many as of the others."""
    tokens = events = cut_off = 0
    for record in records:
        if record.outcome is domain.RequestOutcome.OK:
            tokens, events = tokens + record.tokens, events + len(record.arrivals)
        else:
            cut_off += len(record.arrivals)
    return tokens + cut_off * (tokens / events if events else 1.0)
