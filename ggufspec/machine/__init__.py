"""This machine: hardware, GPUs, and its load, temperature and energy while a run is measured."""

from __future__ import annotations

from ggufspec.machine.hardware import (
    Room,
    count_listeners,
    last_cache_bytes,
    memory,
    read_bandwidth,
    snapshot,
    usable_cores,
    usable_threads,
)
from ggufspec.machine.nvml import SLOWDOWNS, Gpu, nvidia_gpus
from ggufspec.machine.sampling import LoadWatch, Watch, busy_cores
