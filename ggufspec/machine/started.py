"""When this process was started."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path

import psutil

_START_TICKS = 19  # the place of ``starttime`` after the name, in /proc/self/stat; see proc_pid_stat(5)


def process_age_s() -> float | None:
    """Return the seconds since this process was started; None where the system does not tell.

    Linux counts them on the clock of the boot. psutil adds the time of the boot, which it knows to a second.
    """
    with suppress(OSError, ValueError, IndexError, AttributeError):
        _, _, after_name = Path("/proc/self/stat").read_text().rpartition(")")
        ticks = int(after_name.split()[_START_TICKS])
        return time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    with suppress(psutil.Error):
        return time.time() - psutil.Process().create_time()
    return None
