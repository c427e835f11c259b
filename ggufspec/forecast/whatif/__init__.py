"""What would drafting gain? From rates or headers and an acceptance alone; no weights, nothing is run."""

from __future__ import annotations

from ggufspec.forecast.whatif.acceptances import Acceptance, AcceptanceRate, Positions, Steady
from ggufspec.forecast.whatif.outlooks import WhatIfProjection, best, implied_verify_ratio, outlook
from ggufspec.forecast.whatif.shapes import shape

__all__ = [
    "Acceptance",
    "AcceptanceRate",
    "Positions",
    "Steady",
    "WhatIfProjection",
    "best",
    "implied_verify_ratio",
    "outlook",
    "shape",
]
