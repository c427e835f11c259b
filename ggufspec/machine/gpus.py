"""GPUs and their memory, as NVIDIA's driver reports them; llama.cpp's own list is read in ``llama/``."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass

from ggufspec import proc

_QUERY = ("--query-gpu=uuid,memory.total,memory.free,name", "--format=csv,noheader,nounits")
_TIMEOUT_S = 20.0  # the driver is loaded first where nothing keeps it loaded


@dataclass(frozen=True, kw_only=True)
class Gpu:
    """One GPU, and how much of its memory was free when it was asked."""

    name: str
    total_bytes: int
    free_bytes: int


def nvidia_smi() -> tuple[Gpu, ...]:
    """Return the GPUs that nvidia-smi lists and CUDA_VISIBLE_DEVICES allows; none without the tool.

    Those that share the host's memory report none of their own and are left out.
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
    """Return the places of those GPUs that CUDA_VISIBLE_DEVICES allows, by number or by (start of) UUID.

    As in CUDA, the first entry that names no GPU ends the list. Numbers count in the driver's order; CUDA's
    differs from it only where GPUs of several kinds are mixed.
    """
    wanted = os.environ.get("CUDA_VISIBLE_DEVICES")
    if wanted is None:
        return tuple(range(len(uuids)))
    found: list[int] = []
    for word in map(str.strip, wanted.split(",")):
        places = [
            place
            for place, uuid in enumerate(uuids)
            if word == str(place) or (word.startswith("GPU-") and uuid.startswith(word))
        ]
        if len(places) != 1:
            break
        found += places
    return tuple(found)
