"""A path with its goals, what one simulation of it gave, and the table of many."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from statistics import stdev

from ggufspec.analysis import GuardState
from ggufspec.domain import Estimate, SpeedJudgement, SpeedVerdict
from ggufspec.stats import Z95

HEADINGS = ("path", "simulations", "holds", "false", "found", "half width", "over known", "regret")


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What one simulated bench gave; None where the path does not say this.

    Attributes:
        holds: whether the printed interval contains the true value (all of them, where there are several).
        false_verdict: whether a printed verdict contradicts the truth.
        decided: whether the true difference was found; None where there is none to find.
        error: the printed estimate less the true value, in logarithms.
        half_width: of the printed interval, in logarithms.
        known_half_width: the same of an estimator that knows the variances, in logarithms; by default that
            of the printed estimate, from the standard deviation of ``error`` over all simulations.
        regret: by how much what was chosen is slower than the best, in logarithms.
    """

    holds: bool | None = None
    false_verdict: bool | None = None
    decided: bool | None = None
    error: float | None = None
    half_width: float | None = None
    known_half_width: float | None = None
    regret: float | None = None


@dataclass(frozen=True, kw_only=True)
class Path:
    """A kind of bench and what is demanded of it; None demands nothing.

    Attributes:
        name: its row in the table.
        simulate: one bench from a seed.
        least_holds: the share of intervals that must contain the true value.
        most_false: the share of simulations that may have a false verdict.
        least_found: the share of simulations that must find the true difference.
        widest: the mean half width, over that with known variances.
        most_regret: the mean regret, in logarithms.
        most_regret_of_95: the regret that 95 % of the simulations keep.
    """

    name: str
    simulate: Callable[[int], Outcome]
    least_holds: float | None = 0.93
    most_false: float | None = 0.05
    least_found: float | None = None
    widest: float | None = None
    most_regret: float | None = None
    most_regret_of_95: float | None = None


def judge(
    ratio: Estimate | None, verdict: SpeedVerdict | None, truth: float, *, threshold: float = 0.01
) -> Outcome:
    """Return the outcome of one printed ratio and its verdict.

    Args:
        ratio: as printed.
        verdict: as printed; None without one.
        truth: the logarithm of the true ratio.
        threshold: below which two speeds are practically the same.
    """
    is_equal = abs(truth) <= math.log1p(threshold)
    contradicts = {
        SpeedVerdict.FASTER: truth <= 0,
        SpeedVerdict.SLOWER: truth >= 0,
        SpeedVerdict.SAME: not is_equal,
    }
    half = holds = None
    if ratio is not None and ratio.lo is not None and ratio.hi is not None:
        holds = math.log(ratio.lo) <= truth <= math.log(ratio.hi)
        half = math.log(ratio.hi / ratio.lo) / 2
    return Outcome(
        holds=holds,
        false_verdict=contradicts.get(verdict, False) if verdict is not None else False,
        decided=None
        if is_equal or verdict is None
        else verdict in {SpeedVerdict.FASTER, SpeedVerdict.SLOWER},
        error=None if ratio is None else math.log(ratio.value) - truth,
        half_width=half,
    )


def judge_row(judgement: SpeedJudgement | None, truth: float) -> Outcome:
    """Return the outcome of a printed judgement, which is there."""
    assert judgement is not None
    return judge(judgement.ratio, judgement.verdict, truth)


def guards_wrongly(state: GuardState, truth: float, fail_slower: float) -> bool:
    """Whether a guard fails a build that is fast enough, by its true ratio, or passes one that is not."""
    return state is (GuardState.SLOWER if truth >= 1 - fail_slower else GuardState.PASSED)


def run(path: Path, seeds: Iterable[int]) -> tuple[list[str], list[str]]:
    """Simulate a path; return the cells of its row, and the goals that it misses, as sentences."""
    outcomes = [path.simulate(seed) for seed in seeds]
    holds, false, found = (
        _share(getattr(outcome, name) for outcome in outcomes)
        for name in ("holds", "false_verdict", "decided")
    )
    half = _mean(outcome.half_width for outcome in outcomes)
    known = _known_half_width(outcomes)
    over = half / known if half is not None and known else None
    cells = [
        path.name,
        f"{len(outcomes):,}",
        *("" if share is None else f"{share:.1%}" for share in (holds, false, found)),
        "" if half is None else f"±{half:.1%}",
        "" if over is None else f"{over:.2f}",
        _format_regret(outcomes),
    ]
    return cells, [*_missed(path, holds, false, found, over), *_regretted(path, outcomes)]


def _format_regret(outcomes: Sequence[Outcome]) -> str:
    """Return the mean regret, and the one that 95 % keep; nothing where nothing was chosen."""
    mean, of_95 = _regret(outcomes)
    return "" if mean is None or of_95 is None else f"{mean:.1%}, 95 % below {of_95:.1%}"


def _regret(outcomes: Sequence[Outcome]) -> tuple[float | None, float | None]:
    regrets = sorted(outcome.regret for outcome in outcomes if outcome.regret is not None)
    if not regrets:
        return None, None
    return sum(regrets) / len(regrets), regrets[math.ceil(0.95 * len(regrets)) - 1]


def _regretted(path: Path, outcomes: Sequence[Outcome]) -> Iterator[str]:
    mean, of_95 = _regret(outcomes)
    if mean is not None and path.most_regret is not None and mean > path.most_regret:
        yield f"{path.name}: a regret of {mean:.2%} on average, more than {path.most_regret:.0%}"
    if of_95 is not None and path.most_regret_of_95 is not None and of_95 > path.most_regret_of_95:
        yield f"{path.name}: 95 % have a regret below {of_95:.2%}, not {path.most_regret_of_95:.0%}"


def _known_half_width(outcomes: Sequence[Outcome]) -> float | None:
    """Return the mean half width of an estimator that knows the variances; None where that is not known."""
    given = _mean(outcome.known_half_width for outcome in outcomes)
    errors = [outcome.error for outcome in outcomes if outcome.error is not None]
    return given if given is not None or len(errors) < 2 else Z95 * stdev(errors)


def _missed(
    path: Path, holds: float | None, false: float | None, found: float | None, over: float | None
) -> Iterator[str]:
    if holds is not None and path.least_holds is not None and holds < path.least_holds:
        yield f"{path.name}: {holds:.1%} hold, not {path.least_holds:.0%}"
    if false is not None and path.most_false is not None and false > path.most_false:
        yield f"{path.name}: {false:.1%} are false, more than {path.most_false:.0%}"
    if path.least_found is not None and (found is None or found < path.least_found):
        yield f"{path.name}: {found or 0.0:.1%} are found, not {path.least_found:.0%}"
    if over is not None and path.widest is not None and over > path.widest:
        yield f"{path.name}: {over:.2f} times as wide as with known variances, more than {path.widest:g}"


def _share(values: Iterable[bool | None]) -> float | None:
    return _mean(None if value is None else float(value) for value in values)


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None
