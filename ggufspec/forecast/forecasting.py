"""Traces × a cost curve -> forecasts: what draft sizes do on some prompts, which to take, or why none.

How often a run pays each of a curve's times is its exposure: seconds are then one product with its points.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from statistics import fmean

import numpy as np
from numpy.typing import NDArray

from ggufspec import stats
from ggufspec.domain import Drafting, Program, Steady
from ggufspec.forecast.costs import CostCurve, CurveKind
from ggufspec.forecast.trace import Counts, DraftTrace, TracedRun, TraceStep, certainty, count, walk
from ggufspec.stats import WIDEST, Z95, Estimate

Values = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, eq=False)
class Exposure:
    """One run as a cost curve sees it.

    Attributes:
        prompt_id: whose run it is.
        counts: rounds, drafted and accepted tokens.
        tokens: those decoded after the prompt's own evaluation, as ``Sample.decode_tps`` counts them.
        drafting: for each of the curve's points, how often its time is paid to the drafter.
        verifying: the same, to the target.
        besides: the same, to neither.
        clamped: whether some depth lies outside what was measured; the nearest one stood in.
    """

    prompt_id: str
    counts: Counts
    tokens: float
    drafting: Values
    verifying: Values
    besides: Values
    clamped: bool = False

    @property
    def paid(self) -> Values:
        """How often each point's time is paid at all."""
        return self.drafting + self.verifying + self.besides


def drafting(trace: DraftTrace, curve: CostCurve, run: TracedRun) -> Exposure:
    """Return what a drafting run pays; see ``trace.walk``.

    The tree program's drafter reads the token that the target chose in an evaluation of its own, at which
    nothing is proposed; server and simple program of today read the whole verified batch again.

    Raises:
        ValueError: the trace is too short, or the curve knows no such batch.
    """
    taken = walk(trace, run)
    n_max, extra = run.drafting.n_max, 1 if run.program is Program.TREE else 0
    absorbs = run.drafting.method.drafts_with_model and bool(curve.absorb) and run.absorbs
    evaluations = _EvaluationCounts(curve, trace.n_prompt)
    before: int | None = None
    for step in taken:
        evaluations.add("verifying", CurveKind.VERIFY, step, 1 + step.drafted)
        evaluations.add("verifying", CurveKind.CHOOSE, step, 1, times=1 + step.accepted)
        if before is not None and step.drafted != before and not run.samples_exactly:
            evaluations.add("besides", CurveKind.RESIZE, step, 1)
        before = step.drafted
        if curve.drafts_blocks:
            evaluations.add("drafting", CurveKind.DRAFT, step, n_max, times=min(1, step.proposals))
        elif curve.draft and step.proposals + extra:
            evaluations.add("drafting", CurveKind.DRAFT, step, 1, times=step.proposals + extra)
        if absorbs:
            evaluations.add("drafting", CurveKind.ABSORB, step, 1 + step.drafted)
        evaluations.add("besides", CurveKind.ROUND, step, 1)
    return evaluations.total(trace.prompt_id, taken)


def alone(trace: DraftTrace, curve: CostCurve, *, first: int, tokens: int) -> Exposure:
    """Return what the target alone pays for ``tokens`` tokens from the place ``first`` of a trace on."""
    taken = [TraceStep(at, 1.0, 0, 0.0, 0) for at in range(first, first + tokens)]
    evaluations = _EvaluationCounts(curve, trace.n_prompt)
    for step in taken:
        evaluations.add("verifying", CurveKind.VERIFY, step, 1)
        evaluations.add("verifying", CurveKind.CHOOSE, step, 1)
        evaluations.add("besides", CurveKind.PLAIN, step, 1)
    return evaluations.total(trace.prompt_id, taken)


class _EvaluationCounts:
    """How often each point of a curve is evaluated; costs are linear in depth, so the mean depth counts."""

    def __init__(self, curve: CostCurve, n_prompt: int) -> None:
        self._curve, self._n_prompt, self._clamped = curve, n_prompt, False
        self._depths = sorted({point.depth for point in (*curve.verify, *curve.draft, *curve.absorb)})
        self._counts: dict[tuple[str, CurveKind, int, int], tuple[float, float]] = {}

    def add(self, to: str, part: CurveKind, step: TraceStep, tokens: int, *, times: float = 1) -> None:
        before = self._n_prompt + step.at - 1  # the token before it is the first of the batch
        self._clamped |= not self._curve.covers(before)
        depth = self._curve.nearest_depth(before)
        key = to, part, tokens, bisect_right(self._depths, depth)
        often, deep = self._counts.get(key, (0.0, 0.0))
        self._counts[key] = often + step.chance * times, deep + step.chance * times * depth

    def total(self, prompt_id: str, taken: Iterable[TraceStep]) -> Exposure:
        counts = count(taken)
        paid = {to: np.zeros(len(self._curve.points)) for to in ("drafting", "verifying", "besides")}
        for (to, part, tokens, _), (often, deep) in self._counts.items():
            if not often:
                continue
            depth = round(deep / often, 6)  # the mean of equal depths is theirs again
            for index, share in self._curve.weights(part, tokens, depth).items():
                paid[to][index] += often * share
        return Exposure(
            prompt_id=prompt_id,
            counts=counts,
            tokens=counts.n_rounds + counts.n_accepted,
            clamped=self._clamped,
            **paid,
        )


_TextTokens = tuple[str, tuple[int, ...], int]  # a text, and how much of it is decoded

_NEW_TEXT = 0.75
"""Variance of the mean of two texts about a third, over the square of their difference: (1/2 + 1) / 2."""


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
        run: what drafts, and how much.
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
        draft_share: the drafter's share of the time, 0 to 1; None, as are the others, where only whole rounds
            were timed.
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

    run: TracedRun
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
    draft_share: float | None
    verify_share: float | None
    rest_share: float | None
    round_s: float
    target_s: float
    rates: Mapping[str, float] = field(repr=False)
    cost_errors: tuple[float, ...] = field(default=(), repr=False)
    speedup_errors: tuple[float, ...] = field(default=(), repr=False)
    clamped: bool = False
    round_range: RoundRange | None = None

    @property
    def drafting(self) -> Drafting:
        """What drafts, and how much."""
        return self.run.drafting

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


def forecasts(
    traces: Sequence[DraftTrace],
    curve: CostCurve,
    runs: Sequence[TracedRun],
    *,
    text_sd: float = 0.0,
    disturbance: float = 0.0,
) -> Iterator[Forecast]:
    """Yield the forecast of every run: over all traces, then by category where there are several.

    A prompt with two texts counts as their mean, and what they differ by widens the intervals.

    Args:
        traces: of one pair under one sampler.
        curve: of that pair; a run needs batches of one token more than it drafts.
        runs: of one program.
        text_sd: standard deviation of a prompt's log rate where runs may write another text than its trace.
        disturbance: standard deviation of the log speed-up that other programs cause, see
            ``stats.unequal_slowdown``.

    Raises:
        ValueError: a trace is too short, or the curve knows no such batch.
    """
    plain: dict[_TextTokens, Exposure] = {}  # runs of all γ decode about as many tokens

    def run_twice(trace: DraftTrace, run: TracedRun) -> tuple[Exposure, Exposure]:
        """Return a drafting run, and the target alone over the same text."""
        drafted = drafting(trace, curve, run)
        if drafted.tokens <= 0:
            raise ValueError(f"trace {trace.prompt_id} decodes nothing after its prompt")
        key = (trace.prompt_id, trace.tokens, max(1, round(drafted.tokens)))
        if key not in plain:
            plain[key] = alone(trace, curve, first=run.first, tokens=key[-1])
        return drafted, plain[key]

    by_category: dict[str | None, list[DraftTrace]] = {}
    for trace in traces:
        by_category.setdefault(trace.category, []).append(trace)
    groups = {None: list(traces), **(by_category if len(by_category) > 1 else {})}
    walked = [
        {trace.prompt_id: [run_twice(text, run) for text in trace.texts] for trace in traces} for run in runs
    ]
    for category, chosen in groups.items():
        for run, exposures in zip(runs, walked, strict=True):
            alpha = _alpha(chosen, run) if run.drafting.method.drafts_with_model else None
            picked = [exposures[trace.prompt_id] for trace in chosen]
            text_error = max(_text_error(picked, curve.times_s), text_sd / math.sqrt(len(picked)))
            errors = (disturbance, text_error)
            yield _join(picked, curve, alpha, run=run, category=category, drafting_errors=errors)


def round_range(traces: Sequence[DraftTrace], forecast: Forecast) -> RoundRange | None:
    """Return how many rounds a forecast's runs may have; None where the traces do not tell.

    It takes about two milliseconds a trace, too long for every draft size of a search.

    Args:
        traces: those of the forecast.
        forecast: of greedy runs, one request at a time.
    """
    candidates = [certainty(trace, forecast.run) for trace in traces]
    ranges = [bounds for bounds in candidates if bounds is not None]
    if len(ranges) < len(candidates):
        return None
    return RoundRange(
        fewest=sum(bounds.fewest for bounds in ranges),
        most=sum(bounds.most for bounds in ranges),
        sure_texts=sum(bounds.keeps_text for bounds in ranges),
    )


def _join(
    prompts: Sequence[Sequence[tuple[Exposure, Exposure]]],
    curve: CostCurve,
    alpha: float | None,
    *,
    run: TracedRun,
    category: str | None,
    drafting_errors: Sequence[float],
) -> Forecast:
    """Join prompts, each with the runs of one or more texts: a prompt counts as the mean of its texts.

    ``drafting_errors`` are standard errors of the log rate of the drafting runs alone.
    """
    runs, plain = ([pair[which] for pairs in prompts for pair in pairs] for which in (0, 1))
    weights = [1 / len(pairs) for pairs in prompts for _ in pairs]
    costs, errors = curve.times_s, np.array(curve.errors_s)

    def total(of_run: Callable[[Exposure], float], exposures: Sequence[Exposure] = runs) -> float:
        return sum(weight * of_run(run) for weight, run in zip(weights, exposures, strict=True))

    n_rounds, n_drafted, n_accepted = (
        total(lambda run, name=name: getattr(run.counts, name))  # type: ignore[misc]
        for name in ("n_rounds", "n_drafted", "n_accepted")
    )
    time = total(lambda run: float(run.paid @ costs))
    target_s = total(lambda run: float(run.paid @ costs), plain) / total(lambda run: run.tokens, plain)
    rates, plain_rates = rates_of(runs, costs), rates_of(plain, costs)
    sensitive, plain_sensitive = (
        np.append(sensitivity(of_runs, costs, errors, curve.shared_errors), own_errors)
        for of_runs, own_errors in ((runs, drafting_errors), (plain, np.zeros(len(drafting_errors))))
    )
    round_s = time / n_rounds
    return Forecast(
        run=run,
        category=category,
        prompts=len(prompts),
        n_drafted=n_drafted,
        n_accepted=n_accepted,
        n_rounds=n_rounds,
        tokens_per_s=estimate(rates, sensitive),
        target_tokens_per_s=estimate(plain_rates, plain_sensitive),
        speedup=estimate(
            {name: rates[name] / plain_rates[name] for name in rates}, sensitive - plain_sensitive
        ),
        break_even_accept_rate=(round_s / target_s - 1) * n_rounds / n_drafted if n_drafted else None,
        closed_form_speedup=None if alpha is None else _theorem(alpha, curve, run.drafting.n_max),
        draft_share=total(lambda run: float(run.drafting @ costs)) / time,
        verify_share=total(lambda run: float(run.verifying @ costs)) / time,
        rest_share=total(lambda run: float(run.besides @ costs)) / time,
        round_s=round_s,
        target_s=target_s,
        rates=rates,
        cost_errors=tuple(map(float, sensitive)),
        speedup_errors=tuple(map(float, sensitive - plain_sensitive)),
        clamped=any(run.clamped for run in runs),
    )


def _text_error(prompts: Sequence[Sequence[tuple[Exposure, Exposure]]], costs: Values) -> float:
    """Return the standard error of the mean log rate that stems from near-ties of the text.

    A run writes one of a prompt's possible texts, and it may be a third one. Where batches of another size
    write the same text, all runs are taken to write it.
    """
    squares = 0.0
    for pairs in prompts:
        logs = [math.log(run.tokens / float(run.paid @ costs)) for run, _ in pairs]
        squares += _NEW_TEXT * (max(logs) - min(logs)) ** 2
    return math.sqrt(squares) / len(prompts)


def closed_form(alpha: float, n_max: int, cost: float) -> float:
    """Return the speed-up of theorem 3.8 (Leviathan et al. 2023), (1 − α^(γ+1)) / ((1 − α)(γc + 1)).

    Args:
        alpha: the chance that a token is accepted, 0 to 1.
        n_max: γ.
        cost: c, the drafter's time for a token over the target's.
    """
    return (1 + Steady(alpha).accepted(n_max)) / (n_max * cost + 1)


def _alpha(traces: Sequence[DraftTrace], run: TracedRun) -> float | None:
    by_token = ((trace.overlap or ()) if run.samples_exactly else trace.match for trace in traces)
    entries = [value for values in by_token for value in values]
    return sum(entries) / len(entries) if entries else None


def _theorem(alpha: float, curve: CostCurve, n_max: int) -> float | None:
    if not curve.draft or curve.drafts_blocks:
        return None  # the theorem is for a drafter that takes as long for each token
    depth = curve.depths[0]
    cost = curve.seconds(CurveKind.DRAFT, 1, depth).value / curve.seconds(CurveKind.VERIFY, 1, depth).value
    return closed_form(alpha, n_max, cost)


def rates_of(runs: Sequence[Exposure], costs: Values) -> dict[str, float]:
    """Return each prompt's tokens per second, the geometric mean over its texts."""
    logs: dict[str, list[float]] = {}
    for run in runs:
        logs.setdefault(run.prompt_id, []).append(math.log(run.tokens / float(run.paid @ costs)))
    return {prompt_id: math.exp(fmean(of_texts)) for prompt_id, of_texts in logs.items()}


def sensitivity(
    runs: Sequence[Exposure], costs: Values, errors: Values, shared_errors: Sequence[Sequence[float]] = ()
) -> Values:
    """Return each point's contribution to the standard error of the mean log rate, to first order.

    Those of the errors that points share follow. A rate's logarithm falls by a point's share of the time for
    every per cent that the point is larger, so contributions of the same point to two rates may be subtracted
    before they are squared.
    """
    gradient = np.mean([run.paid / float(run.paid @ costs) for run in runs], axis=0)
    shared = [float(gradient @ np.array(error)) for error in shared_errors]
    return np.array([*(gradient * errors), *shared], dtype=np.float64)


def estimate(rates: Mapping[str, float], contributions: Values) -> Estimate:
    """Join the spread over prompts, as a bench without repeats has it, with that of the costs.

    A single prompt tells no spread, and then there is no interval.
    """
    costs = Z95 * float(np.linalg.norm(contributions))
    return stats.mean_over_prompts(rates).widened(costs, WIDEST)


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
