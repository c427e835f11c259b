"""Damage a header in the ways that transfers, other tools and strangers do."""

from __future__ import annotations

import random
import struct

_NUMBERS = (0, 1, 2, 31, 255, 2**16, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**60, 2**63 - 1, 2**63, 2**64 - 1)


def mutate(content: bytes, rng: random.Random) -> bytes:
    """Return a copy with one to four kinds of damage, most of it near the front, where the counts are."""
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
