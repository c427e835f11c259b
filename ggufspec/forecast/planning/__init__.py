"""How many layers of a pair fit on the GPU, and the tokens/s to expect at most? From headers alone."""

from __future__ import annotations

from ggufspec.forecast.planning.plans import (
    CONTEXT,
    FetchState,
    PairFit,
    Planned,
    Site,
    detect_site,
    fit_pair,
    plan,
)
