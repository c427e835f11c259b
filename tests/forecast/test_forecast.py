"""Forecasts: by hand, against the closed form, and what is advised."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import validate_forecast
from hypothesis import given, strategies as st

from ggufspec import forecast, stats
from ggufspec.domain import Method, Program
from ggufspec.forecast import Forecast, Reason, costs, trace
from ggufspec.forecast.costs import CostCurve, Point
from ggufspec.forecast.trace import DraftTrace
from ggufspec.report.frames import forecasts as table
from ggufspec.report.rows.plans import ForecastRow
from ggufspec.stats import Estimate
from tests.support.walks import RECORDED, read_trace, trace_of, traced_run

GAMMAS = tuple(range(1, 13))


def _curve(
    verify: tuple[float, ...], draft: float = 0.1, overhead: float = 0.0, spread: float | None = None
) -> CostCurve:
    times = [Estimate.around(time, spread) for time in verify]
    return CostCurve(
        verify=tuple(Point(tokens=n, depth=0, seconds=time) for n, time in enumerate(times, 1)),
        draft=(Point(tokens=1, depth=0, seconds=Estimate.around(draft)),),
        overhead_s=Estimate.around(overhead),
    )


def _forecasts(
    traces: list[DraftTrace],
    curve: CostCurve,
    sizes: tuple[int, ...] = GAMMAS,
    p_mins: tuple[float, ...] = (0.0,),
    text_sd: float = 0.0,
    disturbance: float = 0.0,
    **asked: Any,
) -> list[Forecast]:
    """Forecast runs for as many tokens as the shortest trace allows at the largest γ."""
    spare = trace.needed(0, max(sizes), asked.get("program", Program.SERVER))
    asked.setdefault("n_predict", min(len(traced.tokens) for traced in traces) - spare)
    runs = [traced_run(n_max=size, p_min=p_min, **asked) for size in sizes for p_min in p_mins]
    return list(forecast.forecasts(traces, curve, runs, text_sd=text_sd, disturbance=disturbance))


def _one(traces: list[DraftTrace], curve: CostCurve, n_max: int, **more: Any) -> Forecast:
    return _forecasts(traces, curve, (n_max,), **more)[0]


def test_by_hand() -> None:
    """Nine tokens after the prompt's own, in the server's rounds (2, 1), (2, 2), (2, 2), (0, 0)."""
    found = _one([trace_of("1101111111")], _curve((1.0, 1.2, 1.5), draft=0.1, overhead=0.05), 2)
    assert (found.n_rounds, found.n_drafted, found.n_accepted) == (4, 6, 5)
    seconds = 3 * 1.5 + 1.0 + 6 * 0.1 + 4 * 0.05
    assert found.round_s == pytest.approx(seconds / 4)
    assert found.tokens_per_s.value == pytest.approx(9 / seconds)
    assert found.target_tokens_per_s.value == pytest.approx(1.0)
    assert found.speedup.value == pytest.approx(9 / seconds)
    assert found.speedup.lo is None  # one prompt tells no spread
    assert found.accept_rate == pytest.approx(5 / 6)
    assert found.mean_accepted_length == pytest.approx(9 / 4)
    assert found.draft_share == pytest.approx(0.6 / seconds)
    assert found.rest_share == pytest.approx(0.2 / seconds)
    assert found.verify_share == pytest.approx(5.5 / seconds)
    assert found.break_even_accept_rate == pytest.approx((seconds / 4 - 1) * 4 / 6)
    assert found.closed_form_speedup == pytest.approx((1 - 0.9**3) / (0.1 * (2 * 0.1 + 1)))


def test_a_prompt_with_two_texts_counts_as_their_mean_and_widens_the_intervals() -> None:
    """Batches of another size may write another text: then nobody knows which one a run will write."""
    curve = _curve((1.0, 1.2, 1.5))
    good, bad = "1111111111", "1000000000"
    sure = [trace_of(good), trace_of("1101111111", "q")]
    doubtful = [trace_of(good, other=trace_of(bad)), sure[1]]
    one, two, both = (_one([trace], curve, 2) for trace in (trace_of(good), trace_of(bad), doubtful[0]))
    assert both.tokens_per_s.value == pytest.approx((one.tokens_per_s.value * two.tokens_per_s.value) ** 0.5)
    assert both.n_rounds == pytest.approx((one.n_rounds + two.n_rounds) / 2)
    assert both.prompts == 1
    for name in ("tokens_per_s", "speedup"):
        found = _one(doubtful, curve, 2)
        spread = forecast.forecasting.estimate(found.rates, np.zeros(1))
        assert _width(getattr(found, name)) > _width(spread)
    assert _one(sure, curve, 2).cost_errors[-1] == 0.0
    assert _one(sure, curve, 2, text_sd=0.2).cost_errors[-1] == pytest.approx(0.2 / 2**0.5)


def test_what_other_programs_do_to_drafting_alone_is_an_error_of_the_speedup() -> None:
    traces, curve = [trace_of("1011011111"), trace_of("1101111111", "q")], _curve((1.0, 1.2, 1.5))
    quiet, busy = (_one(traces, curve, 2, disturbance=sd) for sd in (0.0, 0.2))
    for name in ("cost_errors", "speedup_errors"):
        before, after = (np.square(getattr(found, name)).sum() for found in (quiet, busy))
        assert after - before == pytest.approx(0.2**2)
    assert busy.target_tokens_per_s == quiet.target_tokens_per_s


def _width(estimate: Estimate) -> float:
    return estimate.hi / estimate.lo


def test_a_round_chooses_one_token_more_than_it_accepts_and_pays_for_another_batch_size() -> None:
    """The server's rounds (2, 1), (2, 2), (2, 2), (0, 0): nine tokens, and one batch of another size."""
    curve = replace(_curve((1.0, 1.2, 1.5)), choose_s=Estimate.around(0.01), resize_s=Estimate.around(0.2))
    with_both = _one([trace_of("1101111111")], curve, 2)
    without = _one([trace_of("1101111111")], _curve((1.0, 1.2, 1.5)), 2)
    assert with_both.round_s * 4 == pytest.approx(without.round_s * 4 + 9 * 0.01 + 0.2)
    assert with_both.target_s == pytest.approx(1.01)


def test_programs_pay_for_what_their_drafters_do() -> None:
    absorb = tuple(Point(tokens=n, depth=0, seconds=Estimate.around(n / 100)) for n in (1, 2, 3))
    curve = replace(_curve((1.0, 1.0, 1.0)), absorb=absorb)

    def drafting_s(program: Program, build: int | None = None) -> float:
        found = _one([trace_of("1" * 20)], curve, 2, program=program, n_predict=13, build=build)
        return found.draft_share * found.round_s

    assert drafting_s(Program.TREE) == pytest.approx(0.3)  # the target's own token, too
    assert drafting_s(Program.SERVER) == pytest.approx(0.23)  # and the batch of three again
    assert drafting_s(Program.SERVER, build=9102) == pytest.approx(0.2)
    # what is looked at is paid for, but the last token is not even drafted for
    found = _one([trace_of("1" * 10, confidence=0.2)], _curve((1.0, 1.1, 1.2)), 2, p_mins=(0.5,))
    assert (found.accept_rate, found.break_even_accept_rate) == (None, None)
    assert found.round_s == pytest.approx(1.1 - 0.1 / 9)


def test_deeper_contexts_cost_what_they_cost() -> None:
    verify = tuple(
        Point(tokens=n, depth=depth, seconds=Estimate.around(1 + depth / 100))
        for n in (1, 2, 3)
        for depth in (0, 100)
    )
    curve = CostCurve(verify=verify, draft=(Point(tokens=1, depth=0, seconds=Estimate.around(0.1)),))
    found = _one([trace_of("0" * 11, n_prompt=50)], curve, 2)
    mean_depth = 50 + sum(range(10)) / 10  # rounds begin after 1 to 10 tokens, at the one before
    assert found.target_s == pytest.approx(1 + mean_depth / 100)
    assert not found.clamped
    beyond = _one([trace_of("0" * 11, n_prompt=1000)], curve, 2)
    assert beyond.clamped
    assert beyond.target_s == pytest.approx(2.0)


@pytest.mark.parametrize("alpha", [0.5, 0.9])
@pytest.mark.parametrize("n_max", [1, 4, 8])
def test_independent_matches_tend_to_the_closed_form(alpha: float, n_max: int) -> None:
    random = np.random.default_rng(1)
    traces = [trace_of((random.random(20_000) < alpha).tolist(), overlap=(alpha,) * 20_000)]
    curve = _curve((1.0,) * (n_max + 1), draft=0.07)
    greedy = _one(traces, curve, n_max)
    assert greedy.speedup.value == pytest.approx(greedy.closed_form_speedup, rel=0.02)
    sampled = _one(traces, curve, n_max, samples_exactly=True)
    assert sampled.speedup.value == pytest.approx(forecast.closed_form(alpha, n_max, 0.07), rel=1e-3)


@pytest.mark.parametrize(
    ("alpha", "n_max", "cost", "speedup"),
    [
        *((0.0, 4, 0.1, 1 / 1.4), (1.0, 4, 0.1, 5 / 1.4), (0.5, 4, 0.1, 1.9375 / 1.4), (0.8, 0, 0.1, 1.0)),
        *((0.6, 2, 0.0, 1.96), (0.8, 5, 0.0, 3.69), (0.9, 10, 0.0, 6.86)),  # the paper's table 1
    ],
)
def test_the_theorem(alpha: float, n_max: int, cost: float, speedup: float) -> None:
    assert forecast.closed_form(alpha, n_max, cost) == pytest.approx(speedup, abs=0.005)


def test_categories_are_told_apart() -> None:
    traces = [
        trace_of("1" * 40, "a", "code"),
        trace_of("0" * 40, "b", "prose"),
        trace_of("1" * 40, "c", "code"),
    ]
    found = _forecasts(traces, _curve((1.0,) * 5), (1, 4))
    assert [(each.category, each.drafting.n_max, each.prompts) for each in found] == [
        *((None, 1, 3), (None, 4, 3)),
        *(("code", 1, 2), ("code", 4, 2)),
        *(("prose", 1, 1), ("prose", 4, 1)),
    ]
    code, prose = found[3], found[5]
    overall = found[1]
    assert prose.speedup.value < 1 < code.speedup.value
    assert overall.speedup.value == pytest.approx(
        (code.speedup.value**2 * prose.speedup.value) ** (1 / 3)
    )  # the geometric mean over prompts
    rows = table(found)
    assert tuple(rows.columns) == ForecastRow.names()
    assert rows["category"].isna().sum() == 2


def test_intervals_hold_prompts_and_costs() -> None:
    traces = [trace_of("1" * 20 + "0" * size + "1" * (40 - size), f"p{size}") for size in range(6)]
    exact = _one(traces, _curve((1.0, 1.1, 1.2, 1.3)), 3).tokens_per_s
    unsure = _one(traces, _curve((1.0, 1.1, 1.2, 1.3), spread=0.2), 3).tokens_per_s
    assert exact.lo < exact.value == pytest.approx(unsure.value)
    assert unsure.lo < exact.lo
    assert unsure.value * unsure.value == pytest.approx(unsure.lo * (unsure.hi or 0))


def test_cost_errors_are_those_of_random_costs() -> None:
    traces = [trace_of("1101110111" * 6, "a"), trace_of("1111111110" * 6, "b")]
    curve = _curve((1.0, 1.1, 1.3, 1.4), spread=0.04)
    found = _one(traces, curve, 3)
    random = np.random.default_rng(2)
    logs = []
    for _ in range(400):
        drawn = tuple(
            Point(
                tokens=point.tokens,
                depth=0,
                seconds=Estimate.around(point.seconds.value + random.normal() * 0.04 / 1.96),
            )
            for point in curve.verify
        )
        logs.append(np.log(_one(traces, replace(curve, verify=drawn), 3).speedup.value))
    assert np.linalg.norm(found.speedup_errors) == pytest.approx(np.std(logs), rel=0.12)


def test_ties_go_to_the_smaller_size() -> None:
    traces = [trace_of("1110" * 20, f"p{number}") for number in range(3)]  # no draft longer than three pays
    found = _forecasts(traces, _curve((1.0,) * 13, draft=0.0001))
    assert max(found, key=lambda each: each.tokens_per_s.value).drafting.n_max >= 3
    assert forecast.best(found).drafting.n_max == 3


def test_what_the_costs_leave_open_is_a_tie() -> None:
    traces = [trace_of("1" * 60, f"p{number}") for number in range(3)]
    sure, unsure = (
        _forecasts(traces, _curve((1.0, 1.3, 1.82, 2.39), spread=spread), (1, 2, 3)) for spread in (None, 0.3)
    )
    assert forecast.best(sure).drafting.n_max == 2
    assert forecast.best(unsure).drafting.n_max == 1
    ratio = forecast.ratio(unsure[1], unsure[0])
    assert ratio.lo < 1 < ratio.value


@pytest.mark.parametrize("spread", [1e2, 1e4, 1e8])
def test_costs_that_a_busy_machine_left_open_have_finite_intervals(spread: float) -> None:
    traces = [trace_of("1101110111" * 6, "a"), trace_of("1111111110" * 6, "b")]
    found = _forecasts(traces, _curve((1.0,) * 13, spread=spread))
    for rate in (it for each in found for it in (each.tokens_per_s, each.target_tokens_per_s, each.speedup)):
        assert 0 < rate.lo < rate.value < rate.hi < math.inf
    assert forecast.best(found).drafting.n_max == 1  # nothing tells them apart


@pytest.mark.parametrize(
    ("match", "verify", "draft", "reason"),
    [
        ("1110" * 15, (1.0, 1.05, 1.1, 1.15), 0.05, None),
        ("0001" * 15, (1.0, 1.05, 1.1, 1.15), 0.4, Reason.ACCEPTANCE_TOO_LOW),
        ("1111" * 15, (1.0, 1.05, 1.1, 1.15), 1.1, Reason.DRAFTER_TOO_SLOW),
        ("1111" * 15, (1.0, 2.0, 3.0, 4.0), 0.05, Reason.VERIFICATION_TOO_DEAR),
    ],
)
def test_the_advice_names_its_reason(
    match: str, verify: tuple[float, ...], draft: float, reason: Reason | None
) -> None:
    found = _forecasts([trace_of(match)], _curve(verify, draft), (1, 2, 3))
    advice = forecast.choose_draft_size(found)
    assert advice.reason is reason
    assert (advice.needs is None) == (reason is None)


def test_needs_are_where_nothing_is_gained() -> None:
    match, verify, draft = "0100" * 30, (1.0, 1.1, 1.15), 0.12
    found = _one([trace_of(match)], _curve(verify, draft), 2)
    assert found.speedup.value < 1
    needs = forecast.needs(found)
    faster = _one([trace_of(match)], _curve(verify, draft / needs.drafter_factor), 2)
    assert faster.speedup.value == pytest.approx(1.0)
    scale = needs.verify_ratio / (found.verify_share * found.round_s)
    cheaper = _one([trace_of(match)], _curve((1.0, *(time * scale for time in verify[1:])), draft), 2)
    assert cheaper.speedup.value == pytest.approx(1.0, abs=2e-3)  # one round verifies a single token
    assert needs.accept_rate > found.accept_rate


def test_what_could_not_be_enough_is_not_needed() -> None:
    hopeless = _one([trace_of("1" * 60)], _curve((1.0, 2.5, 4.0), 2.0), 2)
    needs = forecast.needs(hopeless)
    assert (needs.accept_rate, needs.drafter_factor, needs.verify_ratio) == (None, None, None)


bits = st.text("01", min_size=30, max_size=60)


@given(match=bits, n_max=st.integers(1, 8), faster=st.floats(0.1, 0.99), dear=st.floats(0.0, 0.5))
def test_faster_drafters_and_batches_never_hurt(match: str, n_max: int, faster: float, dear: float) -> None:
    verify = tuple(1 + dear * n for n in range(n_max + 1))
    here = _one([trace_of(match)], _curve(verify), n_max).speedup.value
    assert _one([trace_of(match)], _curve(verify, 0.1 * faster), n_max).speedup.value > here
    cheaper = tuple(1 + dear * faster * n for n in range(n_max + 1))
    assert _one([trace_of(match)], _curve(cheaper), n_max).speedup.value >= here - 1e-12


@given(match=bits, n_max=st.integers(1, 8), draft=st.floats(0.01, 0.5), dear=st.floats(0.0, 0.5))
def test_break_even_says_whether_it_pays(match: str, n_max: int, draft: float, dear: float) -> None:
    found = _one([trace_of(match)], _curve(tuple(1 + dear * n for n in range(n_max + 1)), draft), n_max)
    assert found.draft_share + found.verify_share + found.rest_share == pytest.approx(1)
    if found.accept_rate is not None and abs(found.speedup.value - 1) > 1e-9:
        assert (found.speedup.value > 1) == (found.accept_rate > found.break_even_accept_rate)


def test_no_trace_is_stretched() -> None:
    with pytest.raises(ValueError, match="goes beyond"):
        _one([trace_of("1" * 10)], _curve((1.0,) * 4), 3, n_predict=11)
    with pytest.raises(ValueError, match="decodes nothing"):
        _one([trace_of("1")], _curve((1.0,) * 4), 3)
    with pytest.raises(ValueError, match="were measured"):
        _one([trace_of("1" * 10)], _curve((1.0,) * 3), 3)


def test_a_real_trace_gives_every_draft_size() -> None:
    traced, _ = read_trace(RECORDED / "odd-rome.json")
    curve = costs.flat_curve(230, 3500, ratios=[1 + 0.1 * n for n in range(13)])
    found = _forecasts([traced], curve, p_mins=(0.0, 0.6), program=Program.SIMPLE)
    assert len(found) == 24
    lengths = [each.mean_accepted_length for each in found if each.drafting.p_min == 0]
    assert lengths == sorted(lengths)
    assert forecast.choose_draft_size(found).reason is None


def test_near_ties_say_how_many_rounds_there_may_be() -> None:
    """The drafter's fourth choice is a near-tie, the target's choices are clear; by hand."""
    leads = (5.0, 5.0, 5.0, 0.01, 5.0, 5.0, 5.0, 5.0, -5.0)
    bits, clear = "1" * 8 + "0", (5.0,) * 9
    traced = [trace_of(bits, "a", leads=leads, text_leads=clear, text_spread=0.1, spread=0.1)]
    one = _one(traced, _curve((1.0,) * 4), 3, n_predict=9)
    assert (one.n_rounds, one.n_accepted) == (2, 6)  # 0 | 1 2 3 4 | 5 6 7 8
    ranged = forecast.round_range(traced, one)
    assert ranged == forecast.RoundRange(fewest=2, most=3, sure_texts=1)  # 0 | 1 2 3 | 4 5 6 7 | 8
    assert replace(one, round_range=ranged).mean_accepted_range == (8 / 3, 4)
    unsure = replace(traced[0], text_leads=(5.0,) * 8 + (0.1,))
    ranged = forecast.round_range([*traced, unsure], one)
    assert ranged == forecast.RoundRange(fewest=4, most=6, sure_texts=1)
    unknown = replace(unsure, spread=None)
    assert forecast.round_range([*traced, unknown], one) is None


def test_drafts_from_the_text_have_no_near_ties_but_the_texts() -> None:
    text = (1, 2, 3, 4) * 3
    traced = trace_of("0" * 12, tokens=text, prompt_tokens=text, text_leads=(5.0,) * 12, text_spread=0.1)
    method, program = Method.NGRAM_SIMPLE, Program.SERVER
    one = _one([traced], _curve((1.0,) * 9), 8, method=method, program=program, n_predict=12)
    rounds = int(one.n_rounds)
    ranged = forecast.round_range([traced], one)
    assert ranged == forecast.RoundRange(fewest=rounds, most=rounds, sure_texts=1)
    unsure = replace(traced, text_leads=(5.0,) * 11 + (0.1,))
    ranged = forecast.round_range([unsure], one)
    assert ranged == forecast.RoundRange(fewest=rounds, most=rounds, sure_texts=0)


# The errors of forecasts without the noise of the bench that they are compared with


PROMPTS, REPEATS = ("a", "b", "c"), 4


def _rates(random: np.random.Generator, true: float, load_sd: float) -> stats.Rates:
    """Return the rates of a bench whose loads differ; prompts differ much, and always in the same way."""
    factors = np.exp(random.normal(0, load_sd, REPEATS))
    return stats.Rates.of(
        {
            (prompt, repeat): true * (1 + row) * factors[repeat]
            for row, prompt in enumerate(PROMPTS)
            for repeat in range(REPEATS)
        }
    )


def test_noise_is_the_variance_of_the_mean_over_loads_and_prompts_add_nothing() -> None:
    random = np.random.default_rng(1)
    found = [validate_forecast.noise(_rates(random, 10.0, 0.04)) for _ in range(400)]
    assert np.mean(found) == pytest.approx(0.04**2 / REPEATS, rel=0.1)
    both = [
        validate_forecast.noise(_rates(random, 10.0, 0.04), _rates(random, 5.0, 0.03)) for _ in range(400)
    ]
    assert np.mean(both) == pytest.approx((0.04**2 + 0.03**2) / REPEATS, rel=0.1)
    assert validate_forecast.noise(_rates(random, 10.0, 0.0)) == pytest.approx(0.0)


def test_a_forecast_of_the_truth_has_hardly_an_error_left_and_a_wrong_one_keeps_its_own() -> None:
    random = np.random.default_rng(2)
    left: dict[float, list[float]] = {0.0: [], 0.08: []}
    for _ in range(400):
        rates = _rates(random, 10.0, 0.04)
        means = [math.log(rates[cell] / (1 + PROMPTS.index(cell[0]))) for cell in rates]
        for error, errors in left.items():
            raw = math.log(10.0) + error - float(np.mean(means))
            errors.append(validate_forecast.without_noise(raw, validate_forecast.noise(rates)))
    assert validate_forecast.percentiles(left[0.0])[0] < 0.01
    assert validate_forecast.percentiles(left[0.08])[0] == pytest.approx(0.08, rel=0.1)
