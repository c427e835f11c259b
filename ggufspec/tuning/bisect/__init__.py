"""Find the version of llama.cpp at which drafting became slower, or accepted less."""

from __future__ import annotations

from ggufspec.stats import ERROR, schedule_looks
from ggufspec.tuning.bisect.bisecting import BisectedBench, bisect, is_bisection, read_bisected, read_trial
from ggufspec.tuning.bisect.decisions import (
    BisectFinding,
    Bisection,
    Measure,
    Side,
    Trial,
    Verdict,
    VersionDifference,
    choose_next,
)
