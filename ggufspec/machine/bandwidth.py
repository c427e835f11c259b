"""How fast this machine reads its memory: what limits tokens/s on a processor."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from time import perf_counter

_BLOCK_BYTES = 32 << 20  # of each thread; together more than caches hold
_MOST_THREADS = 16
_ROUNDS = 4


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
