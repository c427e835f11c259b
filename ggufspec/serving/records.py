"""The raw record of several users' requests: one line of JSON for each request, written when it ends."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from ggufspec.domain import RequestOutcome
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
    outcome: RequestOutcome
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


_START = '{"number":'
_decoder = msgspec.json.Decoder(RequestRecord)
