"""Forecasts and projections as tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd

from ggufspec.forecast import Forecast
from ggufspec.forecast.whatif import Steady, WhatIf
from ggufspec.report.frames.bench import SETTING_COLUMNS, settings
from ggufspec.report.frames.tables import attributes, frame
from ggufspec.tuning import Prospect

_FORECAST = (
    *(
        "method",
        "draft",
        "p_min",
        "category",
        "prompts",
        "n_rounds",
        "n_rounds_lo",
        "n_rounds_hi",
        "sure_texts",
        "n_drafted",
        "n_accepted",
        "accept_rate",
    ),
    *("mean_accepted_length", "break_even_accept_rate", "closed_form_speedup"),
    *("draft_share", "verify_share", "rest_share"),
)
_ESTIMATES = ("tokens_per_s", "target_tokens_per_s", "speedup")
FORECAST_COLUMNS = (
    *_FORECAST,
    *(f"{name}{end}" for name in _ESTIMATES for end in ("", "_lo", "_hi")),
)
PROSPECT_COLUMNS = (
    *SETTING_COLUMNS,
    *(name for name in FORECAST_COLUMNS if name not in {"method", "draft", "p_min"}),
)
OUTLOOK_COLUMNS = (
    *("draft", "alpha", "accept_rate", "mean_accepted_length", "tokens_per_s", "speedup"),
    *("break_even_accept_rate", "break_even_alpha", "verify_ratio", "draft_share", "users", "costs"),
)


def forecasts(forecasts: Sequence[Forecast]) -> pd.DataFrame:
    """Return one row per forecast; ``category`` is null over all prompts."""
    return frame([_row(forecast) for forecast in forecasts], FORECAST_COLUMNS)


def prospects(configurations: Sequence[Prospect]) -> pd.DataFrame:
    """Return one row per forecast configuration, and one more for each category of prompts."""
    rows = [
        {**_row(forecast), **settings(prospect.arm).cells()}
        for prospect in configurations
        for forecast in (prospect.overall, *prospect.by_category.values())
    ]
    return frame(rows, PROSPECT_COLUMNS)


def _row(forecast: Forecast) -> dict[str, Any]:
    rounds = forecast.round_range
    row = {
        **attributes(forecast, _FORECAST),
        "draft": forecast.n_max,
        "n_rounds_lo": None if rounds is None else rounds.fewest,
        "n_rounds_hi": None if rounds is None else rounds.most,
        "sure_texts": None if rounds is None else rounds.sure_texts,
    }
    for name in _ESTIMATES:
        estimate = getattr(forecast, name)
        row |= {name: estimate.value, f"{name}_lo": estimate.lo, f"{name}_hi": estimate.hi}
    return row


def outlooks(answer: WhatIf) -> pd.DataFrame:
    """Return one row per γ and acceptance; ``alpha`` is null where acceptance was given by position.

    ``costs`` says where the costs come from. With ``roofline``, tokens/s are estimates.
    """
    rows = [
        {
            **attributes(projection, OUTLOOK_COLUMNS),
            "draft": projection.n_max,
            "costs": answer.costs.value,
            "alpha": projection.acceptance.alpha if isinstance(projection.acceptance, Steady) else None,
        }
        for projection in answer.projections
    ]
    return frame(rows, OUTLOOK_COLUMNS)
