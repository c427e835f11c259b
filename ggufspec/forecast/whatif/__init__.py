"""What would drafting gain? From rates or headers and an acceptance, or from a server that runs."""

from __future__ import annotations

from ggufspec.forecast.whatif.asking import WhatIf, whatif
from ggufspec.forecast.whatif.cost_sources import CostSource, list_profiles
from ggufspec.forecast.whatif.outlooks import Network, WhatIfProjection, best, implied_verify_ratio, outlook
from ggufspec.forecast.whatif.places import (
    MachineMemory,
    Machines,
    PlacedPair,
    Places,
    describe_device,
    expert_pattern,
    forecast_rate,
    parts_of,
    shape,
)
from ggufspec.forecast.whatif.served import ServedForecast, traffic_runs, weigh_tokens, whatif_served
