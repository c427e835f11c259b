"""Find the version of llama.cpp at which drafting became slower, or accepted less."""

from __future__ import annotations

from ggufspec.stats import ERROR, schedule_looks
from ggufspec.tuning.bisect.bisecting import Bisected, bisect
from ggufspec.tuning.bisect.decisions import (
    BisectFinding,
    Judgement,
    Measure,
    Side,
    Trial,
    Verdict,
    VersionDifference,
    choose_next,
)
from ggufspec.tuning.bisect.running import (
    is_stored,
    load_bisection,
    prepare_trial,
    read_trial,
    save_bisection,
)
from ggufspec.tuning.bisect.values import Bisection, find_versions

__all__ = [
    "ERROR",
    "BisectFinding",
    "Bisected",
    "Bisection",
    "Judgement",
    "Measure",
    "Side",
    "Trial",
    "Verdict",
    "VersionDifference",
    "bisect",
    "choose_next",
    "find_versions",
    "is_stored",
    "load_bisection",
    "prepare_trial",
    "read_trial",
    "save_bisection",
    "schedule_looks",
]
