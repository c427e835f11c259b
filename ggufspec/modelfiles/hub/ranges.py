"""Which part of a file an HTTP response carries, as its Content-Range states it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

_CONTENT_RANGE = re.compile(r"bytes\s+(\d{1,19})-(\d{1,19})/(\d{1,19}|\*)", re.ASCII)


@dataclass(frozen=True, kw_only=True)
class Part:
    """The bytes from ``first`` to ``last`` of a file; its size where the server knows it."""

    first: int
    last: int
    total_bytes: int | None


def stated_part(headers: Mapping[str, str]) -> Part | None:
    """Return what Content-Range states (RFC 9110, section 14.4); None where it is missing or malformed."""
    match = _CONTENT_RANGE.fullmatch(headers.get("Content-Range", "").strip())
    if match is None:
        return None
    first, last = int(match[1]), int(match[2])
    total = None if match[3] == "*" else int(match[3])
    if first > last or (total is not None and last >= total):
        return None
    return Part(first=first, last=last, total_bytes=total)
