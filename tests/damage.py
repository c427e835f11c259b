"""Stored benches with checksums that are right, whatever was changed; and other ways to change them."""

from __future__ import annotations

import re
from pathlib import Path

from ggufspec.results import seals

_SEAL = re.compile(rb'(,"joined":true)?,"crc32":\["[0-9a-f]{8}","[0-9a-f]{8}"\]\}$')


def reseal_runs(file: Path, content: bytes, bench: str | None = None) -> None:
    """Write lines of runs.jsonl, each an append of its own with checksums that are right.

    Args:
        file: is replaced.
        content: the lines.
        bench: the bench's id, where it is not its folder's name.
    """
    checksum, lines = seals.start(bench or file.parent.name), []
    for line in content.splitlines():
        sealed, checksum = seals.seal(_SEAL.sub(b"}", line), checksum)
        lines.append(sealed)
    file.write_bytes(b"".join(lines))


def reseal_meta(file: Path, content: bytes) -> None:
    """Write a meta.json with a checksum that is right."""
    file.write_bytes(seals.seal(_SEAL.sub(b"}", content.strip()), 0)[0])


def flip(content: bytes, bit: int) -> bytes:
    """Return a text with one bit changed."""
    changed = bytearray(content)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)
