"""Calibration: a machine in another state than when its costs were timed, and what a few runs tell of it."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from ggufspec import forecast
from ggufspec.forecast import CalibrationRun
from ggufspec.forecast.costs import CostCurve, CurveKind, Point
from ggufspec.forecast.trace import DraftTrace
from ggufspec.stats import Estimate
from tests.support.walks import trace_of, traced_run

N_PREDICT = 100
SIZES = (1, 4, 16)


def _time(seconds: float) -> Estimate:
    return Estimate.around(seconds, seconds * 0.01)


TRACES = tuple(
    trace_of((np.random.default_rng(number).random(N_PREDICT) < chance).tolist(), f"p{number}")
    for number, chance in enumerate((0.6, 0.7, 0.8, 0.9))
)
CURVE = CostCurve(
    verify=tuple(Point(tokens=n, depth=0, seconds=_time(0.01 + 0.001 * n)) for n in range(1, 18)),
    draft=(Point(tokens=1, depth=0, seconds=_time(0.002)),),
    absorb=tuple(Point(tokens=n, depth=0, seconds=_time(0.002 + 0.0001 * n)) for n in range(1, 18)),
    overhead_s=_time(0.0001),
    plain_overhead_s=_time(0.0001),
    choose_s=_time(0.0001),
)


def _alone(curve: CostCurve, trace: DraftTrace) -> forecast.Exposure:
    return forecast.alone(trace, curve, first=1, tokens=N_PREDICT - 1)


def _seconds(curve: CostCurve, exposure: forecast.Exposure) -> float:
    return float(exposure.paid @ curve.times_s)


def _true(machine: float = 1.0, drafter: float = 1.0, batch: float = 1.0, step_s: float = 0.0) -> CostCurve:
    """Return what the engine really takes, where costs were timed as ``CURVE``."""

    def time_s(kind: CurveKind, point: Point) -> float:
        seconds = point.seconds.value + step_s * (kind in {CurveKind.ROUND, CurveKind.PLAIN})
        if kind in {CurveKind.DRAFT, CurveKind.ABSORB}:
            seconds *= drafter
        return machine * seconds * (batch if kind is CurveKind.VERIFY and point.tokens > 1 else 1.0)

    kinds = CURVE.by_kind.items()
    return CURVE.with_times([_time(time_s(kind, point)) for kind, points in kinds for point in points])


def _runs(
    truth: CostCurve,
    noise: float = 0.0,
    sizes: tuple[int, ...] = SIZES,
    seed: int = 1,
    *,
    loads: int = 1,
    between: float | None = None,
    alone: float | None = None,
    curve: CostCurve = CURVE,
) -> list[CalibrationRun]:
    """Return runs whose loads differ by ``between`` and whose runs of a load by ``noise``, as logarithms.

    Loads of the target alone differ by ``alone``, where it is given.
    """
    random, runs = np.random.default_rng(seed), []
    for size in (0, *sizes):
        for load in range(loads):
            spread = noise / 2 if between is None else between
            factor = math.exp(random.normal(0, alone if alone is not None and size == 0 else spread))
            for trace in TRACES:
                exposure = _alone(curve, trace)
                if size:
                    exposure = forecast.drafting(trace, curve, traced_run(n_max=size, n_predict=N_PREDICT))
                seconds = _seconds(truth, exposure) * factor * math.exp(random.normal(0, noise))
                runs.append(CalibrationRun(arm=str(size), exposure=exposure, seconds=seconds, load=load))
    return runs


def _forecast(curve: CostCurve, size: int) -> forecast.Forecast:
    (found,) = forecast.forecasts(TRACES, curve, [traced_run(n_max=size, n_predict=N_PREDICT)])
    return found


def _speedup(curve: CostCurve, size: int) -> Estimate:
    return _forecast(curve, size).speedup


def _rate(curve: CostCurve, size: int) -> Estimate:
    return _forecast(curve, size).tokens_per_s


def test_a_slower_machine_is_one_factor_and_changes_no_speed_up() -> None:
    calibration = forecast.calibrate(CURVE, _runs(_true(machine=1.25)))
    assert calibration.corrections["machine"].value == pytest.approx(
        1.25, rel=0.04
    )  # the prior shares it out
    assert calibration.runs == 16
    for size in (2, 8, 16):
        truth = _true(machine=1.25)
        assert _rate(calibration.curve, size).value == pytest.approx(_rate(truth, size).value, rel=0.01)
        assert _speedup(calibration.curve, size).value == pytest.approx(_speedup(CURVE, size).value, rel=0.01)


@pytest.mark.parametrize(
    "truth",
    [
        _true(machine=0.9, drafter=1.2),
        _true(machine=1.1, batch=1.08),
        _true(machine=1.05, step_s=0.001),
        _true(machine=1.3, drafter=0.9, batch=0.95, step_s=0.0005),
    ],
    ids=["drafter", "batch", "step", "all"],
)
def test_sizes_that_were_not_measured_are_forecast_well_after_calibration(truth: CostCurve) -> None:
    calibrated = forecast.calibrate(CURVE, _runs(truth)).curve
    before, after = (
        max(abs(math.log(_speedup(curve, size).value / _speedup(truth, size).value)) for size in range(1, 17))
        for curve in (CURVE, calibrated)
    )
    assert after < before / 2
    assert after < 0.025  # one load of each leaves as much to the prior


def test_steps_of_a_small_model_may_cost_much_more_than_its_passes() -> None:
    """What a server does between evaluations, 0.2 ms here, is a fifth of a token of 1.1 ms."""
    small = CURVE.with_times([*map(_time, CURVE.times_s / 10)])
    truth = replace(
        small,
        overhead_s=_time(small.overhead_s.value + 0.0002),
        plain_overhead_s=_time(small.plain_overhead_s.value + 0.0002),
    )
    calibrated = forecast.calibrate(small, _runs(truth, noise=0.02, curve=small)).curve
    for size in range(1, 17):
        assert _speedup(calibrated, size).value == pytest.approx(_speedup(truth, size).value, rel=0.01)


def test_one_run_of_the_target_tells_the_machine_and_nothing_of_the_drafter() -> None:
    truth = _true(machine=1.2, drafter=1.3)
    calibration = forecast.calibrate(CURVE, _runs(truth, sizes=())[:1])
    ran, alone = (_seconds(curve, _alone(CURVE, TRACES[0])) for curve in (truth, calibration.curve))
    assert alone == pytest.approx(ran, rel=0.03)
    assert calibration.corrections["machine"].value > 1.1
    assert calibration.corrections["drafter"].value == pytest.approx(1.0, abs=0.01)


def test_one_draft_size_corrects_what_all_draft_sizes_share() -> None:
    """The target alone says nothing of the drafter; so it left nearly all of one shift of all γ."""
    truth = _true(machine=1.1, drafter=1.2)
    runs = [run for run in _runs(truth, sizes=(4,), loads=1) if run.exposure.prompt_id == "p0"]
    alone = [run for run in runs if run.arm == "0"]

    def errors(measured: list[CalibrationRun]) -> list[float]:
        curve = forecast.calibrate(CURVE, measured).curve
        return [abs(math.log(_speedup(curve, size).value / _speedup(truth, size).value)) for size in SIZES]

    left, before = errors(runs), errors(alone)
    assert len(runs) == 2
    assert sum(left) < sum(before) / 2


def test_disturbed_runs_widen_speed_ups() -> None:
    runs = _runs(_true(machine=1.2), noise=0.01)
    quiet, disturbed = (
        _speedup(forecast.calibrate(CURVE, runs, disturbance=share).curve, 4) for share in (0.0, 0.2)
    )
    assert disturbed.hi / disturbed.lo > 1.01 * quiet.hi / quiet.lo
    runs = _runs(CURVE, noise=0.01, loads=30)
    forecasts = [_speedup(forecast.calibrate(CURVE, runs, disturbance=sd).curve, 1) for sd in (0.0, 0.2)]
    narrow, wide = (math.log(value.hi / value.lo) for value in forecasts if value.hi and value.lo)
    assert wide > 1.5 * narrow
    # other programs ran while costs were timed, so that drafting seems to take hardly any time
    runs = _runs(_true(drafter=0.01, batch=0.1))
    corrected = forecast.calibrate(CURVE, runs, disturbance=1.0).curve
    assert all(point.seconds.value > 0 for point in (*corrected.verify, *corrected.draft, *corrected.absorb))
    assert all(_seconds(corrected, run.exposure) > 0 for run in runs)


def test_without_runs_the_times_stay_and_share_an_error() -> None:
    calibration = forecast.calibrate(CURVE, ())
    assert calibration.curve.times_s == pytest.approx(CURVE.times_s)
    assert calibration.runs == 0
    rate, known = _rate(calibration.curve, 4), _rate(CURVE, 4)
    assert rate.relative_half_width > 0.25  # 1.96 of 15 %
    assert rate.relative_half_width > known.relative_half_width


def test_the_shared_error_of_the_machine_cancels_in_a_speed_up() -> None:
    other = replace(CURVE, shared_errors=(tuple(0.2 * CURVE.times_s),))
    assert _speedup(CURVE, 4) == _speedup(other, 4)
    assert _rate(CURVE, 4) != _rate(other, 4)


def test_intervals_hold_the_truth() -> None:
    """Engines drawn from the prior, runs with the noise that is assumed: the costs' part of the interval."""
    assert 0.88 <= _coverage(noise=0.03) <= 1.0
    # loads that differ by 8 %, as on a shared host, are taken for what they are once there are several
    one, three = (_coverage(noise=0.02, loads=loads, between=0.12) for loads in (1, 3))
    assert one < 0.75
    assert three >= 0.88
    assert _coverage(noise=0.02, loads=3, drift=0.08) >= 0.9
    few, many = (forecast.calibrate(CURVE, _runs(_true(), loads=loads)).curve for loads in (3, 12))
    halves = [float(np.linalg.norm(_forecast(curve, 4).speedup_errors)) for curve in (few, many)]
    assert halves[1] == pytest.approx(halves[0], rel=0.25)
    # its short steps suffer most from others on a shared host
    assert _coverage(noise=0.02, loads=3, between=0.02, alone=0.12) >= 0.85


def test_runs_without_a_common_load_tell_of_each() -> None:
    """A fresh process for each run: their spread holds that of loads and that of runs."""
    runs = [replace(run, load=None) for run in _runs(_true(), noise=0.05)]
    together, apart = (
        forecast.calibrate(CURVE, of).corrections["machine"].value
        for of in (_runs(_true(), noise=0.05), runs)
    )
    assert apart == pytest.approx(together, rel=0.05)


def _coverage(drift: float = 0.0, **noise: Any) -> float:
    """Return the share of the true speed-ups that lie in the intervals of forecasts.

    After the runs, batches drift against single tokens by a factor whose standard deviation is ``drift``.
    """
    held = tried = 0
    for seed in range(25):
        random = np.random.default_rng(seed)
        machine = math.exp(random.normal(0, 0.15))
        drafter, batch = 1 + random.normal(0, 0.15), 1 + random.normal(0, 0.1)
        step_s = random.normal(0, 0.05) * 0.011
        truth = _true(machine, drafter, batch, step_s)
        calibrated = forecast.calibrate(CURVE, _runs(truth, seed=seed, **noise)).curve
        truth = _true(machine, drafter, batch * math.exp(random.normal(0, drift)), step_s)
        for size in (2, 7, 12):
            found = _forecast(calibrated, size)
            error = math.log(found.speedup.value / _speedup(truth, size).value)
            held += abs(error) <= 1.96 * float(np.linalg.norm(found.speedup_errors))
            tried += 1
    return held / tried


def test_the_result_does_not_depend_on_the_order_of_the_runs() -> None:
    runs = _runs(_true(machine=1.1, drafter=1.1), noise=0.02)
    one, other = (forecast.calibrate(CURVE, order).corrections for order in (runs, runs[::-1]))
    for name, estimate in one.items():
        assert other[name].value == pytest.approx(estimate.value)


def test_a_corrected_curve_covers_what_the_timed_one_covered() -> None:
    calibrated = forecast.calibrate(CURVE, _runs(_true(machine=2.0))).curve
    assert calibrated.most_tokens == CURVE.most_tokens
    assert len(calibrated.shared_errors[0]) == len(calibrated.points)
    assert {type(point.seconds.value) for point in calibrated.points} == {float}  # they are stored
    assert calibrated.seconds(CurveKind.DRAFT).value > CURVE.seconds(CurveKind.DRAFT).value


def test_an_engine_that_is_nothing_like_the_timed_costs_gives_times_all_the_same() -> None:
    """A hundred times as fast, and a batch costs as much as a token: far beyond what the prior expects."""
    flat = tuple(replace(point, seconds=_time(0.0001)) for point in CURVE.verify)
    truth = replace(CURVE, verify=flat, draft=(replace(CURVE.draft[0], seconds=_time(0.000001)),))
    calibrated = forecast.calibrate(CURVE, _runs(truth)).curve
    assert min(point.seconds.value for point in (*calibrated.verify, *calibrated.draft)) > 0
    assert _rate(calibrated, 1).value > 10 * _rate(CURVE, 1).value
