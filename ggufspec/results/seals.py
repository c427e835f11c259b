"""Checksums in stored JSON: each object ends with two CRC-32s, which detect damage.

{"kind":"run",…,"crc32":["1a2b3c4d","5e6f7a8b"]}
{"kind":"run",…,"joined":true,"crc32":["…","…"]}

The first is the checksum of the file up to the object, the second that of the file up to this second
checksum. So a line can be checked on its own, a file by its last line, and lost, moved or repeated lines are
detected, too. The checksum of a file starts with that of the bench's id, so that lines of another bench are
detected. ``joined`` marks a line that was written together with the line before it.

A CRC-32 detects every flipped bit, every burst of up to 32 bits, and other changes except one in four
billion.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple
from zlib import crc32

_JOINED = b',"joined":true'
_SEAL = re.compile(rb'(,"joined":true)?,"crc32":\["([0-9a-f]{8})","([0-9a-f]{8})"\]\}\n')
_TAIL_BYTES = len('01234567"]}\n')
_SEAL_BYTES = len(_JOINED) + len(',"crc32":["01234567","') + _TAIL_BYTES


class Seal(NamedTuple):
    """The end of an undamaged line: checksums of the file before it and after it."""

    before: int
    after: int
    joined: bool


def start(name: str) -> int:
    """Return the checksum with which the file of a bench starts."""
    return crc32(name.encode())


def seal(content: bytes, before: int, *, joined: bool = False) -> tuple[bytes, int]:
    """Return a JSON object as a line with its checksums, and the checksum of the file after it."""
    head = b'%s%s,"crc32":["%08x","' % (content[:-1], _JOINED if joined else b"", before)
    checksum = crc32(head, before)
    tail = b'%08x"]}\n' % checksum
    return head + tail, crc32(tail, checksum)


def seal_all(contents: Iterable[bytes], before: int) -> tuple[bytes, int]:
    """Return JSON objects as lines that are written together, and the checksum of the file after them."""
    lines: list[bytes] = []
    for content in contents:
        line, before = seal(content, before, joined=bool(lines))
        lines.append(line)
    return b"".join(lines), before


def follow(lines: bytes, before: int) -> int | None:
    """Return the checksum of a file after some lines; None if they are damaged.

    Only the last line's checksum is compared: it covers all bytes before it.
    """
    head, tail = lines[:-_TAIL_BYTES], lines[-_TAIL_BYTES:]
    checksum = crc32(head, before)
    return crc32(tail, checksum) if tail == b'%08x"]}\n' % checksum else None


def check_seal(line: bytes) -> Seal | None:
    """Return the checksums of a line; None if it is damaged or has none."""
    match = _SEAL.search(line, max(0, len(line) - _SEAL_BYTES))
    if match is None or match.end() < len(line):
        return None
    before = int(match[2], 16)
    after = follow(line, before)
    return None if after is None else Seal(before=before, after=after, joined=match[1] is not None)
