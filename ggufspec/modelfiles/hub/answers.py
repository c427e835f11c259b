"""Answers as they come: JSON of a limited size, and bodies that must not come too slowly."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import msgspec
from huggingface_hub import utils

from ggufspec import hosts
from ggufspec.errors import HubServerError
from ggufspec.units import format_bytes, format_duration

if TYPE_CHECKING:
    import httpx2

T = TypeVar("T")

MOST_ANSWER_BYTES = 64 << 20
"""Of an answer of the API. The longest, a list of a repository's files, has about 1 MB."""
SLOW_S = 60.0
LEAST_BYTES_PER_S = 1 << 10
"""The least rate of a body over ``SLOW_S`` seconds: a model of 1 GB would take eleven days."""

_MOST_REASON_BYTES = 64 << 10  # gzip expands it a thousandfold at most
_CONTENT_RANGE = re.compile(r"bytes\s+(\d{1,19})-(\d{1,19})/(\d{1,19}|\*)", re.ASCII)


@contextmanager
def open_answer(
    address: str,
    headers: Mapping[str, str],
    *,
    silent_s: float,
    query: Mapping[str, str | int | list[str]] | None = None,
) -> Iterator[httpx2.Response]:
    """Ask for an address, and yield the answer when its headers are here; its body is still to be read.

    The headers of a login stay at the host for which they are: the HTTP library drops them where a redirect
    leads to another one.

    Args:
        address: of the API, or of a file.
        headers: of the request.
        silent_s: how long nothing may come.
        query: parameters that are added to the address.
    """
    session = utils.get_session()
    request = session.build_request("GET", address, params=query, headers=headers, timeout=silent_s)
    hosts.watch(request)
    with closing(session.send(request, stream=True, follow_redirects=True)) as response:
        utils.hf_raise_for_status(_shortened(response) if response.is_error else response)
        yield response


def _shortened(refusal: httpx2.Response) -> httpx2.Response:
    """Return a refusal with the beginning of its body, which huggingface_hub reads for a reason."""
    body = next(refusal.iter_raw(_MOST_REASON_BYTES), b"")
    return type(refusal)(refusal.status_code, headers=refusal.headers, content=body, request=refusal.request)


def read_json(
    address: str,
    headers: Mapping[str, str],
    answer: type[T],
    query: Mapping[str, str | int | list[str]] | None = None,
) -> T:
    """Return an answer of the API. huggingface_hub's own calls read an answer of any length.

    Raises:
        HubServerError: it is too large.
        msgspec.DecodeError: it is not complete JSON, or not of the type ``answer``.
    """
    body = bytearray()
    with open_answer(address, headers, silent_s=hosts.SILENT_S, query=query) as response:
        for chunk in response.iter_bytes():
            body += chunk
            if len(body) > MOST_ANSWER_BYTES:
                raise HubServerError(
                    f"{response.url.host} answers with more than {format_bytes(MOST_ANSWER_BYTES)}",
                    "is HF_ENDPOINT a Hub?",
                )
    return msgspec.json.decode(body, type=answer)


def at_least_rate(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the parts of a body; a connection that sends a byte a second never times out by itself.

    Raises:
        SlowAnswerError: too little came for the time that it took.
    """
    began_s, n_bytes = time.monotonic(), 0
    for chunk in chunks:
        n_bytes += len(chunk)
        elapsed_s = time.monotonic() - began_s
        if elapsed_s >= SLOW_S:
            if n_bytes < LEAST_BYTES_PER_S * elapsed_s:
                raise hosts.SlowAnswerError(f"{n_bytes} bytes in {format_duration(elapsed_s)}")
            began_s, n_bytes = time.monotonic(), 0
        yield chunk


class ContentRange(NamedTuple):
    """The first byte of a part of a file, and the file's size where the server knows it."""

    first: int
    total_bytes: int | None


def read_content_range(response: httpx2.Response) -> ContentRange | None:
    """Return which part of a file an answer has (RFC 9110, section 14.4).

    None where it is all of the file, or where it does not say which part.
    """
    match = _CONTENT_RANGE.fullmatch(response.headers.get("Content-Range", "").strip())
    if match is None or response.status_code != 206:
        return None
    first, last = int(match[1]), int(match[2])
    total = None if match[3] == "*" else int(match[3])
    if first > last or (total is not None and last >= total):
        return None
    return ContentRange(first, total)
