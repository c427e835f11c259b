"""Damage to stored benches and model files: what is changed, and checksums that fit all the same."""

from __future__ import annotations

import random
import re
import struct
from pathlib import Path

from ggufspec.results import seals

_NUMBERS = (0, 1, 2, 31, 255, 2**16, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**60, 2**63 - 1, 2**63, 2**64 - 1)
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


def falsify_first_run(bench: Path) -> None:
    """Change a digit of the first run in the folder of a bench."""
    file = bench / "runs.jsonl"
    file.write_bytes(file.read_bytes().replace(b'"program_s":2.4', b'"program_s":9.4', 1))


def cut_end(bench: Path) -> None:
    """Cut the last line in the folder of a bench short, as a power cut does."""
    file = bench / "runs.jsonl"
    file.write_bytes(file.read_bytes()[:-30])


def mutate(content: bytes, rng: random.Random) -> bytes:
    """Return a header with one to four kinds of damage, most of it near the front, where the counts are."""
    damaged = bytearray(content)
    for _ in range(rng.randint(1, 4)):
        at = int(len(damaged) * rng.random() ** 3)
        match rng.randrange(7):
            case 0:
                damaged[at : at + 1] = bytes([rng.randrange(256)])
            case 1:
                damaged[at : at + 8] = struct.pack("<Q", rng.choice(_NUMBERS))
            case 2:
                damaged[at : at + 4] = struct.pack("<I", rng.choice(_NUMBERS) & 0xFFFFFFFF)
            case 3:
                del damaged[at:]
            case 4:
                del damaged[at : at + rng.randint(1, 64)]
            case 5:
                damaged[at:at] = damaged[at : at + rng.randint(1, 4096)]
            case _:
                other = rng.randrange(len(damaged) + 1)
                damaged[at : at + 64] = damaged[other : other + 64]
    return bytes(damaged)
