"""The rows of forecasts, plans, tunings, crossovers, bisections and lists of benches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ggufspec import units
from ggufspec.analysis import models_of
from ggufspec.domain import Estimate, Steady
from ggufspec.forecast import Forecast
from ggufspec.forecast.costs import PublishedFigure
from ggufspec.report.columns import Row, column, shown
from ggufspec.report.rows.benches import BenchArm, SettingsRow, SummaryRow, two_digits

if TYPE_CHECKING:  # slow to import, and most tables need none of them
    from ggufspec.forecast.planning import Planned
    from ggufspec.tuning import Tuned
    from ggufspec.tuning.bisect import Bisection, Verdict

_ACCEPTANCE = "Acceptance rate at which drafting takes as long as the target alone; above 1 none is enough."


def break_even(rate: float) -> str:
    """Return the acceptance rate above which drafting pays; ``never`` where none is high enough."""
    return "never" if rate > 1 else units.format_percent(max(rate, 0))


class RoundsRow(Row):
    """How many rounds are forecast, and how many there may be where near-ties fall otherwise."""

    n_rounds: float
    n_rounds_lo: int | None = column(
        of="round_range.fewest",
        help="The fewest; null where that was not asked for: of slower configurations, and for several users "
        "or sampled texts.",
    )
    n_rounds_hi: int | None = column(of="round_range.most", help="The most.")
    sure_texts: int | None = column(
        of="round_range.sure_texts", help="Prompts whose text no near-tie of the target can change."
    )


class CategoryForecastRow(Row):
    """The forecast of a configuration; ``category`` is null over all prompts."""

    category: str | None
    prompts: int
    rounds: RoundsRow = column(of=lambda forecast: forecast)
    n_drafted: float
    n_accepted: float
    accept_rate: float | None = column("accepted", units.format_percent)
    mean_accepted_length: float = column("tokens/round", two_digits)
    break_even_accept_rate: float | None = column("break-even", break_even, help=_ACCEPTANCE)
    closed_form_speedup: float | None = column(show=units.format_factor)
    draft_share: float | None = column(show=units.format_percent)
    verify_share: float | None = column(show=units.format_percent)
    rest_share: float | None = column(show=units.format_percent)
    tokens_per_s: Estimate = column("tokens/s", units.format_rate)
    target_tokens_per_s: Estimate = column("target alone, tokens/s", units.format_rate)
    speedup: Estimate = column("speed-up", units.format_factor)


class ForecastRow(Row):
    """The forecast of a draft size."""

    method: str = column(of="drafting.method")
    draft: int = column("γ", of="drafting.n_max")
    p_min: float = column("p-min", of="drafting.p_min")
    figures: CategoryForecastRow = column(of=lambda forecast: forecast)


def tokens_per_round(forecast: Forecast) -> str:
    """Return the mean with the least and the most that near-ties allow, where these differ."""
    mean = two_digits(forecast.mean_accepted_length)
    ends = [two_digits(end) for end in forecast.mean_accepted_range or ()]
    return mean if {*ends} <= {mean} else f"{mean} ({'–'.join(ends)})"


def _layers(item: Mapping[str, Any]) -> str:
    target = item["prospect"].arm.offload.target
    kept = "" if target.cpu_moe is None else f", --n-cpu-moe {target.cpu_moe}"
    return "" if target.layers == "auto" else f"{target.layers}{kept}"


class ProspectRow(Row):
    """The forecast of a configuration of a tuning, over all prompts or those of a category."""

    drafts: str = shown("drafts", of=lambda item: models_of(item["prospect"].arm)[-1])
    spec: SettingsRow = column(of="prospect.arm")
    layers: str = shown("GPU layers", of=_layers)
    figures: CategoryForecastRow = column(of="forecast")
    length: str = shown("tokens/round", of=lambda item: tokens_per_round(item["forecast"]))


class OutlookRow(Row):
    """What drafting would do at a γ and an acceptance; costs from ``headers`` have 90 % intervals."""

    draft: int = column("γ", of="projection.n_max")
    alpha: float | None = column(
        of=lambda item: (
            item["projection"].acceptance.alpha if isinstance(item["projection"].acceptance, Steady) else None
        ),
        help="Null where acceptance was given by position.",
    )
    accept_rate: float = column("accepted", units.format_percent, of="projection.accept_rate")
    mean_accepted_length: float = column("tokens/round", two_digits, of="projection.mean_accepted_length")
    tokens_per_s: Estimate = column(
        "tokens/s",
        units.format_rate,
        of=lambda item: item["costs"].estimate(item["projection"].tokens_per_s, PublishedFigure.DRAFTING),
    )
    speedup: Estimate = column(
        "speed-up",
        units.format_factor,
        of=lambda item: item["costs"].estimate(item["projection"].speedup, PublishedFigure.SPEEDUP),
    )
    break_even_accept_rate: float = column(
        "break-even", break_even, of="projection.break_even_accept_rate", help=_ACCEPTANCE
    )
    break_even_alpha: float | None = column(of="projection.break_even_alpha")
    verify_ratio: float = column("verification", units.format_factor, of="projection.verify_ratio")
    draft_share: float = column("drafter's share", units.format_percent, of="projection.draft_share")
    users: int = column(of="projection.users")
    places: str | None = column(
        of="projection.places.words", help="Options for the fastest places at this γ; null without --vram."
    )
    costs: str = column(of="costs")


class FinalistRow(Row):
    """An arm that a tuning measured, with its forecast; only the confirmation's figures are a verdict."""

    tuning: str = column(of="tuned.results.meta.id")
    stage: str = column(help="confirmation or selection")
    recommended: bool = column(help="What to run over all prompts, which may be the target alone.")
    forecast_tps: float | None = column("forecast", units.format_rate, of="forecast.tokens_per_s.value")
    forecast_speedup: float | None = column(show=units.format_factor, of="forecast.speedup.value")
    serve_context: int | None = column(of="tuned.serving.context")
    serve_slots: int | None = column(of="tuned.serving.slots")
    summary: SummaryRow = column(of="measured")


def list_finalists(tuned: Tuned) -> Iterator[Mapping[str, Any]]:
    """Yield the arms that a tuning measured: those of the confirmation, then those of the selection."""
    for stage, results in (("confirmation", tuned.results), ("selection", tuned.selection.results)):
        for measured in BenchArm.list(results):
            prospect = tuned.outlook.prospect(measured.arm.spec)
            yield {
                "tuned": tuned,
                "stage": stage,
                "recommended": stage == "confirmation" and measured.arm.spec == tuned.overall.spec,
                "forecast": prospect and prospect.overall,
                "measured": measured,
            }


class PlanRow(Row):
    """Memory for a number of layers on the GPU."""

    requested_ngl: int = column("target layers on the GPU", of="plan.target.gpu_layers")
    requested_ngld: int | None = column(of="plan.draft.gpu_layers")
    gpu_bytes: int = column("GPU", units.format_bytes, of="plan.gpu_bytes")
    host_bytes: int = column("host", units.format_bytes, of="plan.host_bytes")
    fits: bool | None = column(help="Null where the GPU's memory is not known.")
    forecast_tps: Estimate | None = column(
        "forecast tokens/s",
        units.format_rate,
        help="Of the target without drafting, with a 90 % interval; null without machines.",
    )
    target_gpu_weights_bytes: int = column(of="plan.target.gpu.weights")
    target_gpu_cache_bytes: int = column(of="plan.target.gpu.cache")
    target_gpu_compute_bytes: int = column(of="plan.target.gpu.compute")
    target_host_weights_bytes: int = column(of="plan.target.host.weights")
    target_host_cache_bytes: int = column(of="plan.target.host.cache")
    target_host_compute_bytes: int = column(of="plan.target.host.compute")
    drafter_gpu_weights_bytes: int | None = column(of="plan.draft.gpu.weights")
    drafter_gpu_cache_bytes: int | None = column(of="plan.draft.gpu.cache")
    drafter_gpu_compute_bytes: int | None = column(of="plan.draft.gpu.compute")
    drafter_host_weights_bytes: int | None = column(of="plan.draft.host.weights")
    drafter_host_cache_bytes: int | None = column(of="plan.draft.host.cache")
    drafter_host_compute_bytes: int | None = column(of="plan.draft.host.compute")


def list_plans(planned: Planned) -> Iterator[Mapping[str, object]]:
    """Yield the plan for each number of the target's layers."""
    for plan in planned.plans:
        yield {"plan": plan, "fits": planned.fits(plan), "forecast_tps": planned.rate(plan)}


class PlaceRow(Row):
    """The fastest places that fit, for a draft size."""

    draft: str = column("γ", of=lambda place: str(place.n_max or "none"))
    words: str = column("places")
    gpu_bytes: int = column("GPU", units.format_bytes, of="plan.gpu_bytes")
    host_bytes: int = column("host", units.format_bytes, of="plan.host_bytes")
    round_s: float = column(
        "a round", lambda seconds: f"{units.format_number(seconds * 1000)} ms", help="By forecast."
    )


class DeviceRow(Row):
    """The memory of a model on a device."""

    name: str = column("memory of")
    weights: int = column(show=units.format_bytes, of="footprint.weights")
    cache: int = column(show=units.format_bytes, of="footprint.cache")
    compute: int = column(show=units.format_bytes, of="footprint.compute")
    total: int = column(show=units.format_bytes, of="footprint.total")


class CrossoverRow(Row):
    """A number of users at a depth, with the fastest draft size there; tokens/s are of all users together."""

    users: int
    depth: int
    source: str = column(help="measured, forecast or unknown")
    draft: int | None = column("γ", of="best.draft")
    gen_tps: float | None = column("tokens/s", units.format_rate, of="best.tokens_per_s")
    target_gen_tps: float | None = column(show=units.format_rate, of="target_tokens_per_s")
    speedup: Estimate | None = column("speed-up", units.format_factor, of="best.speedup")
    verdict: str = column(help="faster, slower, same or undecided")
    repeats: int


def _version(item: Mapping[str, Any], step: Any, end: str) -> str | None:
    versions: Sequence[str] = item["bisection"].versions
    return None if step is None else versions[getattr(step, end)]


class BisectionRow(Row):
    """A compared pair of versions.

    ``loss`` is what is lost from one version to the other: of speeds the natural logarithm of their ratio, of
    acceptance rates the difference as a fraction. Its interval is that of the trial.
    """

    trial: int
    bench: str
    from_version: str = column(of=lambda item: _version(item, item["difference"], "first"))
    to_version: str = column(of=lambda item: _version(item, item["difference"], "second"))
    quantity: str = column(of="bisection.quantity")
    loss: float = column(of="difference.value")
    loss_lo: float = column(of="difference.lo")
    loss_hi: float = column(of="difference.hi")
    repeats: int = column(of=lambda item: len(item["judged"].trial.repeats))
    middle_is: str | None = column("the middle one is", of="judged.side")
    finding: str = column(of="verdict.finding.value")
    step_from: str | None = column(of=lambda item: _version(item, item["verdict"].step, "first"))
    step_to: str | None = column(of=lambda item: _version(item, item["verdict"].step, "second"))


def list_trials(bisection: Bisection, verdict: Verdict) -> Iterator[Mapping[str, object]]:
    """Yield each compared pair of versions."""
    for number, judged in enumerate(verdict.judgements):
        for difference in judged.differences:
            yield {
                "trial": number,
                "bench": bisection.bench(number, judged.trial.places),
                "bisection": bisection,
                "verdict": verdict,
                "judged": judged,
                "difference": difference,
            }


class PlannedArmRow(Row):
    """An arm of a planned sweep, with its expected seconds."""

    spec: SettingsRow
    runs: int
    expected_s: float = column(of=lambda item: round(item["expected_s"], 1))


class PlannedBlockRow(Row):
    """A block of a fleet's plan: who would measure it, from when to when."""

    machine: str
    host: str
    block: str
    from_s: float
    until_s: float
