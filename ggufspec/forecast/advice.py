"""Which draft size to take, or why to draft nothing, and what would have to change."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from ggufspec.forecast.forecasting import Forecast
from ggufspec.stats import WIDEST, Z95, Estimate


class Reason(StrEnum):
    """Why drafting does not pay."""

    DRAFTER_TOO_SLOW = "the drafter is too slow"  # even if all that it drafts were accepted
    ACCEPTANCE_TOO_LOW = "too little is accepted"
    VERIFICATION_TOO_DEAR = "verifying a draft is no cheaper than decoding"  # even a free drafter's


@dataclass(frozen=True, kw_only=True)
class Needs:
    """What alone would have to change for drafting at one γ to pay; None where it could not be enough.

    Attributes:
        n_max: γ.
        accept_rate: accepted over drafted tokens, above which it pays.
        drafter_factor: how many times as fast the drafter would have to be.
        verify_ratio: the target's time per round over its time for one token, below which it pays.
    """

    n_max: int
    accept_rate: float | None
    drafter_factor: float | None
    verify_ratio: float | None


@dataclass(frozen=True, kw_only=True)
class Advice:
    """The draft size to take, or with ``reason`` none; ``needs`` are those of the size nearest to paying."""

    forecast: Forecast
    reason: Reason | None = None
    needs: Needs | None = None


def ratio(a: Forecast, b: Forecast) -> Estimate:
    """Return the rate of ``a`` over that of ``b`` on the same prompts.

    Its interval is for choosing, not a test: normal quantiles of the standard error over prompts (none with
    a single one) and of the costs, where errors that both share cancel.
    """
    logs = np.array([math.log(a.rates[name] / b.rates[name]) for name in a.rates])
    spread = float(np.std(logs, ddof=1)) / math.sqrt(len(logs)) if len(logs) > 1 else 0.0
    costs = float(np.linalg.norm(np.subtract(a.cost_errors, b.cost_errors)))
    half, middle = min(Z95 * math.hypot(spread, costs), WIDEST), float(logs.mean())
    return Estimate.around_log(middle, half)


def best(forecasts: Sequence[Forecast], *, threshold: float = 0.01) -> Forecast:
    """Return the fastest forecast; among those that tie with it the smallest γ, then the smallest p_min.

    A tie is within the threshold, or is one that the interval of their ratio does not tell apart.

    Args:
        forecasts: of the same prompts, at least one.
        threshold: the smallest gain that matters.
    """
    fastest = max(forecasts, key=lambda forecast: forecast.tokens_per_s.value)
    ties = [forecast for forecast in forecasts if _ties(ratio(fastest, forecast), threshold)]
    return min(ties, key=lambda forecast: (forecast.drafting.n_max, forecast.drafting.p_min))


def choose_draft_size(forecasts: Sequence[Forecast], *, threshold: float = 0.01) -> Advice:
    """Return the advice: the best draft size, or none where it gains no more than the threshold.

    Args:
        forecasts: of the same prompts, at least one; each drafts.
        threshold: the smallest gain that matters.
    """
    chosen = best(forecasts, threshold=threshold)
    if chosen.speedup.value > 1 + threshold:
        return Advice(forecast=chosen)
    nearest = max(forecasts, key=lambda forecast: forecast.speedup.value)
    return Advice(forecast=nearest, reason=_reason(forecasts), needs=needs(nearest))


def needs(forecast: Forecast) -> Needs:
    """Return what would have to change, one thing at a time, for a forecast to break even.

    The others stay as they are: γ, the drafts' lengths, and of the round's seconds the other parts.

    Args:
        forecast: that knows its shares of the time.
    """
    # what the target alone would take for a round's tokens
    earned = forecast.mean_accepted_length * forecast.target_s
    draft_s, verify_s, rest_s = (
        (share or 0.0) * forecast.round_s
        for share in (forecast.draft_share, forecast.verify_share, forecast.rest_share)
    )
    left_to_draft, left_to_verify = earned - verify_s - rest_s, earned - draft_s - rest_s
    accept_rate = forecast.break_even_accept_rate
    return Needs(
        n_max=forecast.drafting.n_max,
        accept_rate=accept_rate if accept_rate is not None and accept_rate <= 1 else None,
        drafter_factor=max(1.0, draft_s / left_to_draft) if left_to_draft > 0 and draft_s else None,
        verify_ratio=left_to_verify / forecast.target_s if left_to_verify >= forecast.target_s else None,
    )


def _reason(forecasts: Sequence[Forecast]) -> Reason:
    """Return the reason: whether some size would pay if all were accepted, else if drafting cost nothing."""
    if any((forecast.break_even_accept_rate or 0.0) < 1 for forecast in forecasts):
        return Reason.ACCEPTANCE_TOO_LOW
    for forecast in forecasts:
        most = (1 + forecast.n_drafted / forecast.n_rounds) * forecast.target_s
        if most > forecast.round_s * (1 - (forecast.draft_share or 0.0)):
            return Reason.DRAFTER_TOO_SLOW
    return Reason.VERIFICATION_TOO_DEAR


def _ties(leads: Estimate, threshold: float) -> bool:
    return leads.value <= 1 + threshold or (leads.lo is not None and leads.lo <= 1)
