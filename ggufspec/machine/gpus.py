"""GPUs and their memory, as NVIDIA's driver reports them; llama.cpp's own list is read in ``llama/``."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass

from ggufspec import proc

_QUERY = ("--query-gpu=uuid,memory.total,memory.free,name", "--format=csv,noheader,nounits")
_TIMEOUT_S = 20.0  # the first call may have to load the driver


@dataclass(frozen=True, kw_only=True)
class Gpu:
    """One GPU; ``free_bytes`` is the memory that was free when the driver was asked."""

    name: str
    total_bytes: int
    free_bytes: int


def nvidia_smi() -> tuple[Gpu, ...]:
    """Return the GPUs that nvidia-smi lists and CUDA_VISIBLE_DEVICES allows; none without nvidia-smi.

    GPUs that share the host's memory report no memory and are left out.
    """
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return ()
    completed, out, _ = proc.capture([tool, *_QUERY], timeout_s=_TIMEOUT_S)
    if completed.returncode != 0:
        return ()
    rows = [row for line in out.splitlines() if len(row := line.split(", ", 3)) == 4]
    chosen = [rows[index] for index in visible([row[0] for row in rows])]
    return tuple(
        Gpu(name=name.strip(), total_bytes=int(total) << 20, free_bytes=int(free) << 20)
        for _, total, free, name in chosen
        if total.isdecimal() and free.isdecimal()
    )


def visible(uuids: Sequence[str]) -> tuple[int, ...]:
    """Return the indices of the GPUs that CUDA_VISIBLE_DEVICES lists by number or by UUID (or its beginning).

    As in CUDA, the first invalid entry ends the list. Numbers are in the driver's order; CUDA's order differs
    only on machines with different models of GPU.
    """
    wanted = os.environ.get("CUDA_VISIBLE_DEVICES")
    if wanted is None:
        return tuple(range(len(uuids)))
    indices: list[int] = []
    for entry in map(str.strip, wanted.split(",")):
        matches = [
            index
            for index, uuid in enumerate(uuids)
            if entry == str(index) or (entry.startswith("GPU-") and uuid.startswith(entry))
        ]
        if len(matches) != 1:
            break
        indices += matches
    return tuple(indices)
