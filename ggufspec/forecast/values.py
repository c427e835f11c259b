"""Forecast: what one draft size does on some prompts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ggufspec.domain import Method
from ggufspec.stats import Estimate


@dataclass(frozen=True, kw_only=True)
class RoundRange:
    """How many rounds there may be where near-ties fall otherwise, as on another processor.

    Attributes:
        fewest: the least, over all prompts together, with the texts of the traces.
        most: the most.
        sure_texts: the prompts whose text no near-tie of the target can change.
    """

    fewest: int
    most: int
    sure_texts: int


@dataclass(frozen=True, kw_only=True)
class Forecast:
    """What one draft size does on some prompts.

    Rates are geometric means over prompts, as in a bench; counts and times are those of all prompts together.
    Their 95 % intervals hold what other prompts of this kind and other measurements of the costs would give.

    Attributes:
        method: where drafts come from.
        n_max: γ.
        p_min: as asked for.
        category: of the prompts, or None for all of them.
        prompts: how many there are.
        n_drafted: tokens.
        n_accepted: tokens.
        n_rounds: evaluations of the target.
        round_range: how many of them there may be; None where that was not asked for, or is not known.
        tokens_per_s: decoded tokens per second.
        target_tokens_per_s: those of the target alone on the same text.
        speedup: one over the other.
        break_even_accept_rate: accepted over drafted tokens at which a run takes as long as without
            drafting; above 1 no acceptance is enough. None where nothing is drafted.
        closed_form_speedup: theorem 3.8 of Leviathan et al. with this text's α and one token's costs: every
            token accepted with the same chance, a batch at the cost of one token, and no other costs.
        draft_share: the drafter's share of the time, 0 to 1.
        verify_share: the target's.
        rest_share: that of neither.
        round_s: mean seconds per round.
        target_s: mean seconds per token of the target alone.
        rates: each prompt's tokens per second.
        cost_errors: the standard error of log tokens/s that each point of the cost curve contributes, and
            each error that its points share.
        speedup_errors: the same of the log speed-up.
        clamped: whether some depth lies outside what the curve was measured at.
    """

    n_max: int
    method: Method = Method.DRAFT_MODEL
    p_min: float = 0.0
    category: str | None = None
    prompts: int
    n_drafted: float
    n_accepted: float
    n_rounds: float
    tokens_per_s: Estimate
    target_tokens_per_s: Estimate
    speedup: Estimate
    break_even_accept_rate: float | None
    closed_form_speedup: float | None
    draft_share: float
    verify_share: float
    rest_share: float
    round_s: float
    target_s: float
    rates: Mapping[str, float] = field(repr=False)
    cost_errors: tuple[float, ...] = field(default=(), repr=False)
    speedup_errors: tuple[float, ...] = field(default=(), repr=False)
    clamped: bool = False
    round_range: RoundRange | None = None

    @property
    def accept_rate(self) -> float | None:
        """Accepted over drafted tokens; None when nothing was drafted."""
        return self.n_accepted / self.n_drafted if self.n_drafted else None

    @property
    def mean_accepted_length(self) -> float:
        """Tokens per round with the target's own."""
        return 1 + self.n_accepted / self.n_rounds

    @property
    def mean_accepted_range(self) -> tuple[float, float] | None:
        """The least and the most tokens per round, with the rounds of ``round_range``."""
        if self.round_range is None:
            return None
        tokens = self.n_rounds + self.n_accepted
        return tokens / self.round_range.most, tokens / self.round_range.fewest
