"""The engine ``server`` for several users: one run is one load of the models under their requests.

The records of such runs are read again here, and those of servers that run already.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TextIO

import msgspec

from ggufspec.domain import Failure, Prompt, RequestOutcome, RunResult, RunSpec, Sample, Status
from ggufspec.engines import rereading
from ggufspec.engines.server import LoadedServer, Parsed, ServerEngine, response
from ggufspec.errors import LogError
from ggufspec.serving.client import send_traffic
from ggufspec.serving.figures import decode_records, summarize
from ggufspec.serving.running import RUNNING, read_record
from ggufspec.units import counted

_FOR_ROUNDS = ("return_tokens", "timings_per_token")
"""What costs the server time at each token, and only tables about single runs need."""

_NOTES = ('{"run":', '{"reads_zeros":')
"""How the lines about a run begin, which are the first ones and the last one of a record."""


@dataclass(kw_only=True)
class TrafficEngine(ServerEngine):
    """The engine ``server``, which also measures specifications with ``traffic``."""

    def _ask(self, loaded: LoadedServer, spec: RunSpec, record: TextIO) -> None:
        """Send all requests of the users; the record has a line for each.

        Raises:
            Failure: the server died, did not answer all requests in time, or does not draft.
        """
        if spec.traffic is None:
            super()._ask(loaded, spec, record)
            return
        self._note_run(loaded, spec, record)
        if loaded.capabilities.caches_to_draft:
            raise Failure(
                Status.DRAFTING_INACTIVE,
                "this llama-server drafts only with its prompt cache, which several users would share: use "
                "b6723 or later",
            )
        loaded.runs += 1
        client, make_body = loaded.server.client, partial(make_request, spec, loaded)
        outcomes = send_traffic(client.url, client.key, spec, make_body, record, timeout_s=self.timeout_s)
        death = loaded.server.await_death() if outcomes[RequestOutcome.DISCONNECTED] else None
        if death is not None:
            raise death
        if outcomes[RequestOutcome.TIMED_OUT]:
            late = counted(outcomes[RequestOutcome.TIMED_OUT], "request")
            raise Failure(
                Status.TIMED_OUT, f"{late} unanswered when the time was over; the server was killed"
            )

    def _parse(self, spec: RunSpec, out: Path) -> Parsed:
        if spec.traffic is None:
            return super()._parse(spec, out)
        with out.open(encoding="utf-8", newline="\n") as lines:
            return read_server_record(spec, [*lines])


def make_request(spec: RunSpec, loaded: LoadedServer, prompt: Prompt) -> dict[str, Any]:
    """Return the body of one user's request: that of a run, without what costs time at each token."""
    body = response.body(
        replace(spec, prompt=prompt), per_request=loaded.capabilities.per_request, caches=prompt.history > 0
    )
    return {name: value for name, value in body.items() if name not in _FOR_ROUNDS}


def reread_run(run: RunResult, out: bytes, err: bytes) -> Sample:
    """Return the sample that a run's raw logs show; see ``engines.rereading.reread_run``.

    Under traffic, everything follows from the record of the requests: the window, the tokens and times in it,
    acceptance, and of a server that runs already what its counters say.

    Raises:
        LogError: the engine is unknown, or its record is not what it writes.
    """
    if run.spec.traffic is None:
        return rereading.reread_run(run, out, err)
    lines = io.StringIO(out.decode(errors="replace"), newline="\n").readlines()
    try:
        read = read_record if run.engine == RUNNING else read_server_record
        return read(run.spec, lines).sample
    except (ValueError, TypeError, ArithmeticError, LookupError) as error:
        raise LogError("a record of requests is not what ggufspec writes", "the file was changed") from error


def read_server_record(spec: RunSpec, lines: Sequence[str]) -> Parsed:
    """Return what the record of several users' requests to our own server shows.

    Args:
        spec: the run.
        lines: of the record. Some of its own say the draft size, which a head may have lowered, and whether
            the drafter was given zeros for images.
    """
    notes = [msgspec.json.decode(line, type=response.RecordLine) for line in lines if line.startswith(_NOTES)]
    n_draft = next((note.run.n_draft for note in notes if note.run is not None), None)
    reads_zeros = any(note.reads_zeros for note in notes) or None
    parsed = summarize(spec, [*decode_records(lines)])
    return replace(parsed, sample=replace(parsed.sample, n_draft=n_draft, reads_zeros=reads_zeros))
