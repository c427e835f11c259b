"""A bench of several users and depths -> where drafting pays: a map of measured and forecast cells.

A cell's speed-up is that of all users' tokens/s over the target alone, with an interval. All intervals of a
map hold together in 95 of 100 maps, whichever of its draft sizes is the best, and at whichever look a cell
is decided: the error of 5 % is divided equally among cells and looks (Bonferroni), and the draft sizes of a
cell are a family (``stats.families``). How much a speed-up varies between loads is seen in each cell, by all
of its draft sizes together, and moderated by the other cells.

Cells between measured ones are forecast: the server that ``forecast.concurrency`` computes gives their
seconds per round, corrected by how far it is off at measured cells (``between``). How far forecasts are off
is seen by leaving out each measured cell in turn, and with what is known beforehand (a conjugate prior for a
variance: Gelman et al. 2013, "Bayesian Data Analysis", section 2.6).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property
from statistics import fmean, variance
from typing import NamedTuple

import numpy as np

from ggufspec import stats
from ggufspec.analysis import arms
from ggufspec.analysis.arm import Arm
from ggufspec.analysis.judging import MOST_DISTURBED, judge_ratio
from ggufspec.domain import Role, SpeedVerdict
from ggufspec.forecast import profiles
from ggufspec.forecast.concurrency import TrafficPoint, between, leave_one_out
from ggufspec.forecast.profiles import ExpectedRound
from ggufspec.results import CrossoverAxes, ResultSet, read_crossover_axes
from ggufspec.stats import Estimate

LOOKS = (3, 5, 8)
"""After how many repeats the verdict of a cell is asked for.

Three loads are the fewest that tell loads and arms apart. Eight find a gain of 10 % in 98 % of the cells
where loads differ by 3 %.
"""

_ERROR = 0.05  # the chance that any interval of a map misses the truth
_FORECAST_SD = 0.06  # of a log speed-up between measured cells, before any was left out
_FORECAST_WEIGHT = 4.0  # degrees of freedom that this counts as

_TARGET = 0
"""Stands for the target alone among draft sizes."""


class CellSource(StrEnum):
    """Where the figures of a cell come from."""

    MEASURED = "measured"
    FORECAST = "forecast"
    UNKNOWN = "unknown"  # neither measured nor surrounded by cells that were


@dataclass(frozen=True, kw_only=True)
class DraftGain:
    """What one draft size γ does in a cell; tokens/s are of all users together."""

    draft: int
    tokens_per_s: float
    speedup: Estimate


@dataclass(frozen=True, kw_only=True)
class CrossoverCell:
    """A number of users at a depth.

    Attributes:
        users: who send requests at once.
        depth: tokens of other text before each prompt.
        source: where the figures come from.
        target_tokens_per_s: of all users together, without drafting; None where it is unknown.
        gains: of each draft size, the smallest first; empty where they are unknown.
        repeats: runs of each arm; the verdict is that of the last look (``LOOKS``) that they reach.
        disturbed: whether swapping or heat disturbed so many runs that there is neither interval nor verdict.
        fails_unlike: whether runs or requests fail more often with drafting or without it: no interval then.
        widened: whether intervals include what other programs may have done.
    """

    users: int
    depth: int
    source: CellSource
    target_tokens_per_s: float | None = None
    gains: tuple[DraftGain, ...] = ()
    repeats: int = 0
    disturbed: bool = False
    fails_unlike: bool = False
    widened: bool = False

    @property
    def place(self) -> TrafficPoint:
        """Users and depth."""
        return TrafficPoint(self.users, self.depth)

    @property
    def best(self) -> DraftGain | None:
        """The fastest draft size; the smallest of equal ones."""
        return max(self.gains, key=lambda gain: gain.speedup.value, default=None)

    @property
    def choice(self) -> int | None:
        """The draft size to use; None where drafting is not faster, or that is undecided or unknown."""
        best = self.best
        return best.draft if best is not None and self.verdict is SpeedVerdict.FASTER else None

    @property
    def verdict(self) -> SpeedVerdict:
        """Whether the fastest draft size is faster than the target alone, by its interval."""
        if self.best is None:
            return SpeedVerdict.UNDECIDED
        best = judge_ratio(self.best.speedup)
        undecided = any(not judge_ratio(gain.speedup).is_finding for gain in self.gains)
        return SpeedVerdict.UNDECIDED if undecided and best is not SpeedVerdict.FASTER else best


@dataclass(frozen=True, kw_only=True)
class CrossoverMap:
    """Where drafting pays.

    Attributes:
        bench: its id.
        pair: what was measured.
        users: the rows of the map, in ascending order.
        depths: its columns, in tokens.
        cells: one for each number of users at each depth, row by row.
        run_sd: the standard deviation of a log speed-up between loads, of all cells together; None before any
            cell has been repeated.
        forecast_sd: that of a forecast.
        forecast_errors: measured over forecast speed-up - 1, of measured cells and draft sizes that were left
            out in turn and that others surround.
    """

    bench: str
    pair: str
    users: tuple[int, ...]
    depths: tuple[int, ...]
    cells: tuple[CrossoverCell, ...]
    run_sd: float | None
    forecast_sd: float
    forecast_errors: tuple[float, ...] = ()

    @cached_property
    def by_point(self) -> Mapping[TrafficPoint, CrossoverCell]:
        """The cells by users and depth."""
        return {cell.place: cell for cell in self.cells}

    def users_limit(self, depth: int) -> int | None:
        """Return the number of users from which drafting is not faster at a depth.

        None if it is faster for the most users, or that is undecided or unknown.
        """
        return _limit([(users, self.by_point[TrafficPoint(users, depth)]) for users in self.users])

    def depth_limit(self, users: int) -> int | None:
        """Return the depth from which drafting is not faster for so many users.

        None if it is faster at the deepest, or that is undecided or unknown.
        """
        return _limit([(depth, self.by_point[TrafficPoint(users, depth)]) for depth in self.depths])

    def count(self, *sources: CellSource) -> int:
        """Return how many cells have one of these sources."""
        return sum(cell.source in sources for cell in self.cells)

    @property
    def undecided(self) -> tuple[CrossoverCell, ...]:
        """The cells without a verdict."""
        return tuple(cell for cell in self.cells if cell.verdict is SpeedVerdict.UNDECIDED)


def read_crossover(results: ResultSet) -> CrossoverMap | None:
    """Return the map of a stored crossover; None for any other bench.

    Raises:
        ResultsError: the axes of the map are damaged.
    """
    axes = read_crossover_axes(results.folder)
    return None if axes is None else map_crossover(results, axes)


def map_crossover(results: ResultSet, axes: CrossoverAxes) -> CrossoverMap:
    """Return the map of a bench whose arms differ in users, depth and draft size."""
    measured = _MeasuredCells.of(arms.group(results), profiles.kept_rounds(results.folder))
    errors = measured.forecast_errors()
    spreads = measured.spreads()
    confidence = 1 - _ERROR / (len(axes.users) * len(axes.depths) * len(LOOKS))
    logs = [math.log1p(error) for error in errors]
    freedom = len(errors) / max(1, len(measured.drafts))  # draft sizes of a place share its target's forecast
    squares = sum(log**2 for log in logs) / max(1, len(logs))
    forecast = _Spread(
        sd=math.sqrt((_FORECAST_WEIGHT * _FORECAST_SD**2 + freedom * squares) / (_FORECAST_WEIGHT + freedom)),
        degrees=_FORECAST_WEIGHT + freedom,
    )
    specs = results.current.specs
    return CrossoverMap(
        bench=results.meta.id,
        pair=specs[0].pair.name if specs else "",
        users=axes.users,
        depths=axes.depths,
        cells=tuple(
            measured.cell(TrafficPoint(users, depth), spreads, forecast, confidence)
            for users in axes.users
            for depth in axes.depths
        ),
        run_sd=_mean_sd(spreads.values()),
        forecast_sd=forecast.sd,
        forecast_errors=errors,
    )


@dataclass(frozen=True, kw_only=True)
class _Spread:
    """A standard deviation of logarithms, and the degrees of freedom that it is known with."""

    sd: float
    degrees: float

    def half_width(
        self, draft_sizes: int, confidence: float, *, repeats: int = 1, added: float = 0.0
    ) -> float:
        """Return half of the interval of a mean, one of so many that hold together.

        ``added`` is what other programs may have added to the mean.
        """
        error, degrees = stats.widen(self.sd / math.sqrt(repeats), self.degrees, added)
        return stats.family_quantile(draft_sizes, degrees, confidence) * error


class _LogGains(NamedTuple):
    """The log speed-ups of a draft size at a place.

    ``added`` is what other programs may have added to their mean.
    """

    logs: list[float]  # one for each repeat up to the last look
    repeats: int  # all of them
    added: float


@dataclass(kw_only=True)
class _MeasuredCells:
    """What was measured, by draft size (``_TARGET`` for the target alone) and place.

    ``round_s`` are seconds per round of all users: the tokens that all users get in a round over tokens/s.
    ``expected_s`` are the same as computed beforehand; nothing where they were not. ``lengths`` are tokens
    per round of one user. ``disturbed`` are places at which swapping or heat disturbed too many runs, and
    ``unlike`` those at which drafting and the target alone do not fail alike.
    """

    round_s: dict[int, dict[TrafficPoint, float]] = field(default_factory=dict)
    expected_s: dict[int, dict[TrafficPoint, float]] = field(default_factory=dict)
    lengths: dict[int, dict[TrafficPoint, float]] = field(default_factory=dict)
    log_gains: dict[tuple[int, TrafficPoint], _LogGains] = field(default_factory=dict)
    disturbed: set[TrafficPoint] = field(default_factory=set)
    unlike: set[TrafficPoint] = field(default_factory=set)

    @classmethod
    def of(cls, groups: Sequence[Arm], rounds: Sequence[ExpectedRound] = ()) -> _MeasuredCells:
        cells = cls()
        for expected in rounds:
            point = TrafficPoint(expected.users, expected.depth)
            cells.expected_s.setdefault(expected.draft or _TARGET, {})[point] = expected.seconds
        for arm in groups:
            cells._add(arm)
        return cells

    def _add(self, arm: Arm) -> None:
        traffic = arm.spec.traffic
        length = arm.acceptance.mean_accepted_length if arm.acceptance else 1.0
        if traffic is None or arm.rate is None or arm.role is Role.DRAFTER or length is None:
            return
        point, draft = TrafficPoint(traffic.users, traffic.depth), arm.draft_size or _TARGET
        if arm.disturbed > MOST_DISTURBED:
            self.disturbed.add(point)
        self.round_s.setdefault(draft, {})[point] = traffic.users * length / arm.rate.value
        self.lengths.setdefault(draft, {})[point] = length
        if arm.baseline is None:
            return
        if arm.fails_unlike(arm.baseline):
            self.unlike.add(point)
        alone = arm.baseline.rates
        cells = sorted(arm.rates.keys() & alone.keys(), key=lambda cell: cell[1])
        logs = [math.log(arm.rates[cell] / alone[cell]) for cell in cells]
        if logs:
            # up to the last look that so many repeats reach; all of them before the first
            look = max((look for look in LOOKS if look <= len(logs)), default=len(logs))
            added = stats.disturbance_error(arm.rates, alone)
            self.log_gains[draft, point] = _LogGains(logs[:look], len(logs), added)

    def seconds(self, draft: int, point: TrafficPoint) -> float | None:
        """Return the seconds per round at a place, measured or forecast; None where they are unknown."""
        measured = self.round_s.get(draft, {})
        if point in measured:
            return measured[point]
        return between(self._trusted(measured), point, self.expected_s.get(draft))

    @property
    def refused(self) -> set[TrafficPoint]:
        """The places at which nothing may be found."""
        return self.disturbed | self.unlike

    def _trusted(self, measured: Mapping[TrafficPoint, float]) -> dict[TrafficPoint, float]:
        """Return what says something of other places, too."""
        return {point: value for point, value in measured.items() if point not in self.refused}

    def forecast_errors(self) -> tuple[float, ...]:
        """Return measured over forecast speed-up - 1 of every place that others surround."""
        alone = leave_one_out(self._trusted(self.round_s.get(_TARGET, {})), self.expected_s.get(_TARGET))
        errors: list[float] = []
        for draft in self.drafts:
            rounds = leave_one_out(self._trusted(self.round_s[draft]), self.expected_s.get(draft))
            lengths = leave_one_out(self.lengths[draft])
            errors += [
                (1 + alone[point]) * (1 + lengths[point]) / (1 + rounds[point]) - 1
                for point in rounds
                if point in alone and point in lengths
            ]
        return tuple(errors)

    def spreads(self) -> dict[TrafficPoint, _Spread]:
        """Return how much a log speed-up varies between loads, by place; none of it before a first look.

        The draft sizes of a place share the runs of its target, so they know less than as many places would.
        """
        measured: dict[TrafficPoint, tuple[float, float]] = {}
        for point in {point for _, point in self.log_gains}:
            known = (of.logs for (_, at), of in self.log_gains.items() if at == point)
            gains = [logs for logs in known if len(logs) >= LOOKS[0]]
            freedom = sum(len(logs) - 1 for logs in gains)
            squares = sum((len(logs) - 1) * variance(logs) for logs in gains)
            if squares > 0:
                shared = 1 + (len(gains) - 1) * stats.SHARED_BASELINE**2
                measured[point] = squares / freedom, freedom / shared
        if not measured:
            return {}
        variances, degrees = stats.moderate(
            np.array([square for square, _ in measured.values()]),
            np.array([df for _, df in measured.values()]),
        )
        return {
            point: _Spread(sd=math.sqrt(square), degrees=float(df))
            for point, square, df in zip(measured, variances, degrees, strict=True)
        }

    @property
    def drafts(self) -> list[int]:
        """The draft sizes, the smallest first."""
        return sorted(draft for draft in self.round_s if draft != _TARGET)

    def cell(
        self,
        point: TrafficPoint,
        spreads: Mapping[TrafficPoint, _Spread],
        forecast: _Spread,
        confidence: float,
    ) -> CrossoverCell:
        """Return one cell; its draft sizes hold together with this confidence."""
        alone_s = self.seconds(_TARGET, point)
        cell = CrossoverCell(
            users=point.users,
            depth=point.depth,
            source=CellSource.UNKNOWN,
            target_tokens_per_s=None if alone_s is None else point.users / alone_s,
        )
        measured = {draft: of for draft in self.drafts if (of := self.log_gains.get((draft, point)))}
        if measured and alone_s is not None:
            spread = None if point in self.refused else spreads.get(point)
            return replace(
                cell,
                source=CellSource.MEASURED,
                gains=tuple(
                    DraftGain(
                        draft=draft,
                        tokens_per_s=point.users * self.lengths[draft][point] / self.round_s[draft][point],
                        speedup=Estimate.around_log(
                            fmean(logs),
                            None
                            if spread is None or len(logs) < LOOKS[0]
                            else spread.half_width(len(measured), confidence, repeats=len(logs), added=added),
                        ),
                    )
                    for draft, (logs, _, added) in measured.items()
                ),
                repeats=min(of.repeats for of in measured.values()),
                disturbed=point in self.disturbed,
                fails_unlike=point in self.unlike,
                widened=any(of.added > 0 for of in measured.values()),
            )
        half = math.hypot(
            forecast.half_width(len(self.drafts), confidence) if self.drafts else 0.0,
            stats.Z95 * (_mean_sd(spreads.values()) or 0.0),
        )
        gains = [gain for draft in self.drafts if (gain := self._forecast(point, draft, half))]
        return replace(cell, source=CellSource.FORECAST, gains=tuple(gains)) if gains else cell

    def _forecast(self, point: TrafficPoint, draft: int, half: float) -> DraftGain | None:
        alone_s, round_s = self.seconds(_TARGET, point), self.seconds(draft, point)
        length = between(self.lengths[draft], point)
        if alone_s is None or round_s is None or length is None:
            return None
        return DraftGain(
            draft=draft,
            tokens_per_s=point.users * length / round_s,
            speedup=Estimate.around_log(math.log(length * alone_s / round_s), half),
        )


def _mean_sd(spreads: Iterable[_Spread]) -> float | None:
    """Return the standard deviation of all places together; None without any."""
    squares = [spread.sd**2 for spread in spreads]
    return math.sqrt(fmean(squares)) if squares else None


def _limit(cells: Sequence[tuple[int, CrossoverCell]]) -> int | None:
    """Return the first value from which on drafting is found not to be faster; None where there is none."""
    limit = None
    for value, cell in reversed(cells):
        if cell.verdict not in {SpeedVerdict.SLOWER, SpeedVerdict.SAME}:
            break
        limit = value
    return limit
