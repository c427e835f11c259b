"""How fast this machine reads its memory, and what its caches hold: what limits tokens/s on a processor."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import perf_counter

_BLOCK_BYTES = 32 << 20  # of each thread; together more than caches hold
_MOST_THREADS = 16
_ROUNDS = 4


def last_cache_bytes(root: Path = Path("/")) -> int | None:
    """Return the size of the processor's largest cache; None where the system does not state it.

    Linux does: /sys/devices/system/cpu/cpu0/cache, Documentation/ABI/testing/sysfs-devices-system-cpu. A
    processor with several such caches reads its own one fastest, so they are not added.
    """
    sizes = root.glob("sys/devices/system/cpu/cpu0/cache/index*/size")
    texts = (file.read_text(encoding="utf-8").strip() for file in sizes)
    kibibytes = (int(text.removesuffix("K")) for text in texts if text.removesuffix("K").isdecimal())
    return max((number << 10 for number in kibibytes), default=None)


def read_bandwidth(threads: int) -> float:
    """Return bytes/s of reading memory with some threads at once; takes some 0.1 s.

    It is the fastest of several rounds, as other programs only slow them.
    """
    import numpy as np  # most commands need none of it

    blocks = [np.ones(_BLOCK_BYTES // 8) for _ in range(max(1, min(threads, _MOST_THREADS)))]
    with ThreadPoolExecutor(len(blocks)) as pool:

        def read_all() -> float:
            started = perf_counter()
            for _ in pool.map(np.sum, blocks):
                pass
            return len(blocks) * _BLOCK_BYTES / (perf_counter() - started)

        return max(read_all() for _ in range(_ROUNDS))
