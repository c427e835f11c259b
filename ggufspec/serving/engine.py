"""The engine ``server`` for several users: one run is one load of the models under their requests."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TextIO

from ggufspec.domain import Failure, Prompt, RequestOutcome, RunSpec, Status
from ggufspec.engines.server import LoadedServer, Parsed, ServerEngine, response
from ggufspec.serving.client import send_traffic
from ggufspec.serving.rereading import read_server_record
from ggufspec.units import counted

_FOR_ROUNDS = ("return_tokens", "timings_per_token")
"""What costs the server time at each token, and only tables about single runs need."""


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
        capabilities = loaded.capabilities
        self._note_run(loaded, spec, record)
        if capabilities is not None and capabilities.caches_to_draft:
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
    capabilities = loaded.capabilities
    body = response.body(
        replace(spec, prompt=prompt),
        may_draft=capabilities is not None,
        per_request=capabilities is not None and capabilities.per_request,
        caches=prompt.history > 0,
    )
    return {name: value for name, value in body.items() if name not in _FOR_ROUNDS}
