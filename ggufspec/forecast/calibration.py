"""A cost curve and a few measured runs -> the curve that explains these runs best, and what is left unknown.

Costs are timed in another process than the one that users run, and the machine has another state then. Most
of a forecast's error is therefore one factor that all times share. Measured runs tell it, by a Bayesian
linear regression of log seconds on what each run paid (Gelman et al. 2013, "Bayesian Data Analysis",
chapter 14), with the curve as it was timed for the prior mean.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ggufspec.forecast.costs import CostCurve, CurveKind
from ggufspec.forecast.forecasting import Exposure, Values
from ggufspec.stats import Z95, Estimate

_PRIOR_SD = {
    "machine": 0.15,  # of all times: published forecasts without calibration were off by 11 to 19 %
    "drafter": 0.15,  # of the drafter's times beyond that: costs may be stored ones
    "batch": 0.1,  # of the target's batches beyond its single tokens
    "step": 0.05,  # of the target's time for a token, per step: what the engine does between evaluations
    "token": 0.02,  # of the same, per token that is written
}
# Assumed beside these shares, because it does not shrink with the model: a step of a server samples, writes
# JSON and wakes the client that reads the stream, which takes a core where all of them compute.
_PRIOR_SD_S = {"step": 200e-6, "token": 50e-6}  # seconds
_SHOWN: Mapping[str, Callable[[float], float]] = {
    "machine": math.exp,
    "drafter": lambda share: 1 + share,
    "batch": lambda share: 1 + share,
    "step": float,
    "token": float,
}
_LOAD_SD = 0.015  # of log seconds, at least, between loads of the same models: 1 to 8 % in docs/
_ONE_LOAD_SD = 0.03  # the same where no arm has several loads to tell
_DISTURBED = {"drafter", "batch"}  # corrections of times that other programs change otherwise than a token's
_POOLED_FREEDOM = 2  # degrees, as which the variance of all arms' loads counts: as three loads of one
_RUN_SD = 0.05  # of log seconds, between runs of one load, where they do not show it
# What is calibrated drifts until it is used: on a shared host the target alone changes by up to 20 % within
# minutes, and what drafts by less. In 12 comparisons of docs/forecasting.md the error that all draft sizes
# share was 8 % (root mean square), and the calibration of the largest of them stated 6 %. Chosen for the
# rest, as standard deviations.
_DRIFT_SD = {"machine": 0.04, "drafter": 0.04, "batch": 0.08}
_FARTHEST = 4  # standard deviations: all times stay positive, and the machine's factor takes the rest
_STEPS = 5  # of Gauss and Newton; the factors are close to 1, so that two would do


@dataclass(frozen=True, kw_only=True)
class CalibrationRun:
    """One measured run.

    Attributes:
        arm: the arm that it is of.
        exposure: what it paid, by its counts.
        seconds: what it took.
        load: the engine's load that it shared with others; None for a load of its own.
    """

    arm: str
    exposure: Exposure
    seconds: float
    load: int | None = None


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """How a measured engine differs from a cost curve.

    Attributes:
        curve: the curve with the corrected times. Its shared errors are what is not known of the corrections.
        runs: how many measured runs it rests on.
        corrections: by name, each with its 95 % interval: ``machine``, ``drafter`` and ``batch`` are factors;
            ``step`` and ``token`` are shares of the target's time for one token that are added.
    """

    curve: CostCurve
    runs: int
    corrections: Mapping[str, Estimate]


def calibrate(curve: CostCurve, runs: Sequence[CalibrationRun], *, disturbance: float = 0.0) -> Calibration:
    """Correct a curve by measured runs; without any, add only the errors that all its times share.

    Loads of the same models differ in speed, so the runs of a load count as one mean.

    Args:
        curve: as it was timed.
        runs: with exposures by that curve.
        disturbance: standard deviation of log seconds that other programs caused, in each load of the runs
            and in the timed costs.
    """
    costs = curve.times_s
    directions = _directions(curve)
    token_s = curve.seconds(CurveKind.VERIFY, 1, curve.depths[0]).value
    sds = {name: math.hypot(sd, _PRIOR_SD_S.get(name, 0.0) / token_s) for name, sd in _PRIOR_SD.items()}
    deviations = np.array([math.hypot(sd, disturbance * (name in _DISTURBED)) for name, sd in sds.items()])
    farthest = _FARTHEST * np.array([*_PRIOR_SD.values()])  # wider ones would make times negative
    prior = np.diag(deviations**-2)
    corrections = np.zeros(len(_PRIOR_SD))
    precision = prior
    if runs:
        paid, seconds, variances = _means(runs, costs)
        weights = np.diag(1 / (variances + disturbance**2))
        corrections[0] = np.log(seconds / (paid @ costs)).mean()  # all that a machine-wide factor explains
        for _ in range(_STEPS):  # Gauss–Newton: log seconds bend little within the prior, so few steps do
            factor, times = _corrected(costs, directions, corrections)
            # derivatives of log(factor x paid times): 1 by log factor, the paid share by each other
            rows = np.column_stack([np.ones(len(paid)), paid @ directions[1:].T / (paid @ times)[:, None]])
            # "+ rows @ corrections": the solution is the corrections themselves, which the prior holds near
            # 0, and not their change since the last step
            residuals = np.log(seconds) - corrections[0] - np.log(paid @ times) + rows @ corrections
            precision = prior + rows.T @ weights @ rows
            corrections = np.linalg.solve(precision, rows.T @ weights @ residuals)
            corrections[1:] = np.clip(corrections[1:], -farthest[1:], farthest[1:])
    factor, times = _corrected(costs, directions, corrections)
    # what is forecast is disturbed anew by other programs, and differs from the runs as they from each other
    again = dict.fromkeys(_DISTURBED, disturbance)
    drift = np.array([math.hypot(_DRIFT_SD.get(name, 0.0), again.get(name, 0.0)) for name in _PRIOR_SD])
    covariance = np.linalg.inv(precision) + np.diag(drift**2) * bool(runs)  # as a Kalman filter predicts
    errors = np.linalg.cholesky(covariance)
    shared_errors = errors.T @ np.vstack([times, directions[1:]])
    corrected = curve.with_times(
        [point.seconds.moved_to(time) for point, time in zip(curve.points, times.tolist(), strict=True)],
        shared_errors=tuple(tuple(map(float, row)) for row in shared_errors),
    )
    return Calibration(
        curve=corrected.scaled(factor),
        runs=len(runs),
        corrections=_estimates(corrections, np.sqrt(np.diag(covariance))),
    )


def _directions(curve: CostCurve) -> Values:
    """Return the seconds by which one unit of each correction changes each point: (corrections, points)."""
    points = [(kind, point.tokens) for kind, points in curve.by_kind.items() for point in points]
    token_s = curve.seconds(CurveKind.VERIFY, 1, curve.depths[0]).value

    def of(*kinds: CurveKind) -> Values:
        return np.array([float(kind in kinds) for kind, _ in points])

    batch = [kind is CurveKind.VERIFY and tokens > 1 for kind, tokens in points]
    return np.vstack(
        [
            curve.times_s,
            curve.times_s * of(CurveKind.DRAFT, CurveKind.ABSORB),
            curve.times_s * np.array(batch),
            token_s * of(CurveKind.ROUND, CurveKind.PLAIN),
            token_s * of(CurveKind.CHOOSE),
        ]
    )


def _means(runs: Sequence[CalibrationRun], costs: Values) -> tuple[Values, Values, Values]:
    """Return what each load paid, its seconds, and the variance of their logarithm."""
    by_load: dict[tuple[str, int], list[CalibrationRun]] = {}
    for number, run in enumerate(runs):
        by_load.setdefault((run.arm, -1 - number if run.load is None else run.load), []).append(run)
    logs = {
        load: np.log([run.seconds / float(run.exposure.paid @ costs) for run in load_runs])
        for load, load_runs in by_load.items()
    }
    run_variance = _pooled([*logs.values()])
    run_variance = _RUN_SD**2 if run_variance is None else run_variance
    load_variances = _between(logs, run_variance)
    paid, seconds, variances = [], [], []
    for load, load_runs in by_load.items():
        total = np.sum([run.exposure.paid for run in load_runs], axis=0)
        paid.append(total)
        seconds.append(float(total @ costs) * math.exp(float(logs[load].mean())))
        variances.append(load_variances[load[0]] + run_variance / len(load_runs))
    return np.array(paid), np.array(seconds), np.array(variances)


def _between(logs: Mapping[tuple[str, int], Values], run_variance: float) -> dict[str, float]:
    """Return the variance between loads of each arm, without what runs add to it.

    Arms differ in it: on a shared machine the target alone, with its many short steps, scatters more than
    what drafts. Few loads tell the variance of one arm badly. So each has the mean of its own and the pooled
    variance, weighted by their degrees of freedom (Smyth 2004).
    """
    by_arm: dict[str, list[float]] = {}
    for (arm, _), values in logs.items():
        by_arm.setdefault(arm, []).append(float(values.mean()))
    pooled = _pooled([np.array(means) for means in by_arm.values()])
    if pooled is None:
        return dict.fromkeys(by_arm, _ONE_LOAD_SD**2)
    of_runs = run_variance * float(np.mean([1 / len(values) for values in logs.values()]))
    return {
        arm: max(
            _LOAD_SD**2,
            float(_POOLED_FREEDOM * pooled + np.sum((np.array(means) - np.mean(means)) ** 2))
            / (_POOLED_FREEDOM + len(means) - 1)
            - of_runs,
        )
        for arm, means in by_arm.items()
    }


def _pooled(groups: Sequence[Values]) -> float | None:
    """Return the variance within groups; None where none has several values."""
    freedom = sum(len(values) - 1 for values in groups)
    squares = sum(float(np.sum((values - values.mean()) ** 2)) for values in groups)
    return squares / freedom if freedom else None


def _corrected(costs: Values, directions: Values, corrections: Values) -> tuple[float, Values]:
    """Return the machine's factor, and the times before it is applied."""
    return math.exp(corrections[0]), costs + corrections[1:] @ directions[1:]


def _estimates(corrections: Values, errors: Values) -> dict[str, Estimate]:
    estimates = {}
    for name, value, error in zip(_PRIOR_SD, corrections, errors, strict=True):
        lo, middle, hi = (_SHOWN[name](float(value + way * Z95 * error)) for way in (-1, 0, 1))
        estimates[name] = Estimate(value=middle, lo=lo, hi=hi)
    return estimates
