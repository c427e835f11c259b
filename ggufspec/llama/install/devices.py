"""The GPUs that a llama.cpp program lists (``--list-devices``, b4167 and newer), and their memory."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from ggufspec.machine import Gpu, nvidia_smi

FLAG = "--list-devices"
_DEVICE = re.compile(r"^ +([A-Za-z]+\d+|Metal): (.*?)(?: \((\d+) MiB, (\d+) MiB free\))?$", re.MULTILINE)
_BACKENDS = {"CUDA": "cuda", "ROCm": "hip", "Vulkan": "vulkan", "Metal": "metal", "MTL": "metal"}


@dataclass(frozen=True, kw_only=True)
class ListedDevice:
    """One line of the list, such as ``CUDA0: NVIDIA H200``; ``gpu`` is None if its memory is not listed."""

    name: str
    gpu: Gpu | None


def parse_devices(text: str) -> tuple[ListedDevice, ...]:
    """Parse the list; entries with neither a number nor memory, such as BLAS, are not GPUs."""
    return tuple(
        ListedDevice(
            name=f"{device}: {name}",
            gpu=Gpu(name=name, total_bytes=int(total) << 20, free_bytes=int(free) << 20) if total else None,
        )
        for device, name, total, free in _DEVICE.findall(text)
    )


def backend(devices: Sequence[ListedDevice] | None) -> str | None:
    """Return the backend of a llama.cpp, from its first device; None if it cannot list devices."""
    if devices is None:
        return None
    first = devices[0].name if devices else ""
    return next((name for prefix, name in _BACKENDS.items() if first.startswith(prefix)), "cpu")


def gpus(devices: Sequence[ListedDevice] | None, made_for: str | None) -> tuple[Gpu, ...]:
    """Return the GPUs that a build can use; from the driver if the build is too old to list them."""
    if devices is None:
        return () if made_for == "cpu" else nvidia_smi()
    return tuple(device.gpu for device in devices if device.gpu is not None)
