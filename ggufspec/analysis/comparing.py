"""Two benches side by side: what is equal is joined, what must not be compared is refused."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from statistics import fmean

import numpy as np

from ggufspec import notebooks, stats
from ggufspec.analysis import arms, judging, review
from ggufspec.analysis.arm import Arm
from ggufspec.analysis.differences import find_differences, other_models
from ggufspec.analysis.matching import (
    by_identity,
    list_unmatched,
    refuse_other_prompts,
    refuse_unknown_models,
)
from ggufspec.domain import SpeedVerdict
from ggufspec.errors import GgufspecError, ResultsError
from ggufspec.results import ResultSet

_LEAST_REPEATS = 2
_SIDES = 2
_TAIL = 0.025
_WIDEST = 100.0  # in logarithms: a factor of 1e43 says "unknown", and stays finite

LEAST_SESSIONS = 3
"""Benches a side from which on they show how much sessions differ."""

SESSION_SPREAD = 0.02
"""Standard deviation of the logarithm of a speed between two sessions of one build: assumed, where fewer are
there. 1 to 3 % are usual, see docs/statistics.md."""


class Design(StrEnum):
    """How two sides were measured, and so what was drawn anew from unit to unit."""

    INTERLEAVED = "interleaved"  # one bench of two llama.cpps; units are its repeats
    SESSIONS = "sessions"  # three benches a side or more; units are the benches
    SINGLE = "single"  # fewer: how much sessions differ is not known


@dataclass(frozen=True, kw_only=True)
class Change:
    """The speed after over the speed before, and what may be said of it.

    ``effect`` has its standard error; None where that is not known. Then ``p_value`` and ``verdict`` are None
    and the interval of ``ratio``, if it has one, counts ``SESSION_SPREAD`` for each session. Otherwise the
    interval is of 95 %.
    """

    ratio: stats.Estimate
    effect: stats.LogEffect | None
    p_value: float | None
    verdict: SpeedVerdict | None

    @property
    def is_disturbed(self) -> bool:
        """Whether other programs may have added more than all else that the interval is of."""
        return self.effect is not None and self.effect.disturbance > self.effect.error


@dataclass(frozen=True, kw_only=True)
class Row:
    """One arm on both sides; of several benches, the first one's.

    ``before_tps`` and ``after_tps`` are geometric means over the prompts and repeats, or benches, that both
    sides have: their quotient is the ratio.
    """

    before: Arm
    after: Arm
    before_tps: float
    after_tps: float
    change: Change
    texts_equal: int | None  # prompts on which both wrote the same, greedy runs only; no synthetic ones
    texts: int


@dataclass(frozen=True, kw_only=True)
class BenchComparison:
    """All arms that both sides have.

    ``differences`` name what the benches do not share.
    ``warnings`` has the named warnings of each compared bench and their advice, by the bench's id.
    ``no_verdict`` says why ratios alone are given; None where they carry verdicts. ``is_reported`` is whether
    the models are those that servers say they serve, so that no checksum shows that they are the same.
    """

    before: str  # ids of benches, or of a llama.cpp in one bench
    after: str
    design: Design
    rows: tuple[Row, ...]
    differences: Mapping[str, tuple[str, str]]
    unmatched: tuple[str, ...]
    warnings: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    no_verdict: str | None = None
    same_engine: bool = True
    is_reported: bool = False

    def _repr_html_(self) -> str:
        """Return what a notebook shows."""
        return notebooks.html(self)


def compare(
    before: ResultSet | Sequence[ResultSet],
    after: ResultSet | Sequence[ResultSet] | None = None,
    *,
    threshold: float = 0.01,
) -> BenchComparison:
    """Compare two llama.cpps of one bench, or benches of the same models and prompts: other builds, settings.

    Models are the same where they hold the same, whatever their names are.

    Args:
        before: what to compare with; alone, a bench of two llama.cpps. Several are sessions of the same.
        after: what is judged.
        threshold: the smallest change of speed that matters, 0.01 for 1 %.

    Raises:
        ResultsError: they have no arm in common, measured different texts or samplers, or one of them does
            not say what its models hold.
        GgufspecError: the threshold is not a fraction.
    """
    if not 0 <= threshold < 1:
        raise GgufspecError(f"a threshold of {threshold} is not a fraction", "give 0.01 for 1 %")
    first = (before,) if isinstance(before, ResultSet) else tuple(before)
    if after is None:
        (bench,) = first
        sides: list[tuple[ResultSet, ...]] = [(side,) for side in split_builds(bench)]
        names = tuple(bench.meta.builds)
        design = Design.INTERLEAVED
    else:
        sides = [first, (after,) if isinstance(after, ResultSet) else tuple(after)]
        names = tuple(", ".join(bench.meta.id for bench in side) for side in sides)
        design = Design.SESSIONS if min(map(len, sides)) >= LEAST_SESSIONS else Design.SINGLE
    benches = first if after is None else (*sides[0], *sides[1])
    warnings = {bench.meta.id: review.warnings(bench) for bench in benches}
    return replace(_compare(sides, names, design, threshold), warnings=warnings)


def split_builds(bench: ResultSet) -> tuple[ResultSet, ResultSet]:
    """Return the runs of a bench of two llama.cpps as two benches.

    Raises:
        ResultsError: it has another number of them.
    """
    meta = bench.meta
    if len(meta.builds) != _SIDES:
        raise ResultsError(
            f"{meta.id} has {len(meta.builds) or 1} llama.cpp, and two are compared",
            "name a second bench, or measure two in one: `ggufspec bench --llama OLD --llama NEW`",
        )
    builds = [spec.build for spec in bench.runs.specs]
    one, other = (
        replace(
            bench,
            meta=replace(meta, build=build),
            runs=bench.runs.select([place for place, of in enumerate(builds) if of == name]),
        )
        for name, build in meta.builds.items()
    )
    return one, other


def _compare(
    sides: Sequence[Sequence[ResultSet]], names: Sequence[str], design: Design, threshold: float
) -> BenchComparison:
    before, after = sides[0][0], sides[1][0]
    for side in sides:
        for bench in side:
            refuse_other_prompts(before, bench)
            refuse_unknown_models(bench)
    groups = [[arms.group(bench) for bench in side] for side in sides]
    first, second = ([by_identity(group) for group in side] for side in groups)
    common = [name for name in first[0] if all(name in arms_of for arms_of in (*first, *second))]
    if not common:
        other = dict(other_models(before, after))
        named = "".join(
            f"; two models are called {name}: {one}, and {two}" for name, (one, two) in other.items()
        )
        raise ResultsError(
            f"{names[0]} and {names[1]} have no arm in common{named}",
            "compare benches of the same models, draft sizes, sampling, -n, users and prompts",
        )
    no_verdict = _no_verdict(sides, names, design) or _unexplained(groups)
    rows = tuple(
        row
        for name in common
        if (
            row := _row(
                [arms_of[name] for arms_of in first],
                [arms_of[name] for arms_of in second],
                design,
                None if no_verdict else threshold,
            )
        )
    )
    if not rows:
        raise ResultsError(
            f"{names[0]} and {names[1]} share no prompt that both measured", "see their failed runs"
        )
    return BenchComparison(
        before=names[0],
        after=names[1],
        design=design,
        rows=rows,
        differences=find_differences(before, after, [(row.before.spec, row.after.spec) for row in rows]),
        unmatched=tuple(sorted(list_unmatched(first[0], second[0]))),
        no_verdict=no_verdict,
        same_engine=len({bench.meta.engine for side in sides for bench in side}) == 1,
        is_reported=any(row.before.spec.servers is not None for row in rows),
    )


def _no_verdict(sides: Sequence[Sequence[ResultSet]], names: Sequence[str], design: Design) -> str | None:
    engines = [dict.fromkeys(bench.meta.engine for bench in side) for side in sides]
    if len({*engines[0], *engines[1]}) > 1:
        used = [", ".join(side) for side in engines]
        return (
            f"no verdict: {names[0]} was measured with the engine {used[0]} and {names[1]} with {used[1]}, "
            "other programs that draft and time in their own way; measure both with one --engine"
        )
    if design is Design.SINGLE:
        return (
            f"no verdict: {names[0]} and {names[1]} were measured at different times, and that alone changes "
            f"a speed; ranges count {SESSION_SPREAD:.0%} for each session"
        )
    return None


def _unexplained(groups: Sequence[Sequence[Sequence[Arm]]]) -> str | None:
    """Return that there is no verdict where it is not known what a disturbance did to many runs."""
    most = max(arm.disturbed for side in groups for bench in side for arm in bench)
    if most <= judging.MOST_DISTURBED:
        return None
    return (
        f"no verdict: memory was swapped or a GPU lowered its clocks during {most:.0%} of the runs, and what "
        "that did is not known"
    )


def _row(before: Sequence[Arm], after: Sequence[Arm], design: Design, threshold: float | None) -> Row | None:
    """Compare an arm, a bench of each side after the other; without a threshold there is no verdict."""
    if design is Design.INTERLEAVED:
        logs = _by_repeat(before[0], after[0])
        effect = stats.pair_units([b - a for a, b in zip(*logs, strict=True)])
    else:
        logs = _by_session(before, after)
        effect = stats.compare_units(logs[1], logs[0]) if design is Design.SESSIONS else None
    if not logs[0]:
        return None
    disturbance = _disturbance(before, after)
    if effect is not None:
        effect = replace(effect, disturbance=disturbance)
    means = fmean(logs[0]), fmean(logs[1])
    ours, theirs = _texts(after[0]), _texts(before[0])
    shared = ours.keys() & theirs.keys()
    own_words = before[0].spec.sampling.greedy and not before[0].synthetic
    return Row(
        before=before[0],
        after=after[0],
        before_tps=math.exp(means[0]),
        after_tps=math.exp(means[1]),
        change=_change(means[1] - means[0], effect, design, logs, disturbance, threshold),
        texts_equal=sum(_same(ours[p], theirs[p]) for p in shared) if own_words and shared else None,
        texts=len(shared),
    )


def _by_repeat(before: Arm, after: Arm) -> tuple[list[float], list[float]]:
    """Return each side's mean log rate in every repeat that has all prompts; repeats of one load are one.

    Where fewer than two repeats have all prompts, the prompts count that all repeats have.
    """
    sides = stats.align(before.rates, after.rates)
    measured = ~np.isnan(sides[0].table)
    prompts, repeats = measured.any(axis=1), measured.any(axis=0)
    complete = repeats & measured[prompts].all(axis=0)
    if np.count_nonzero(complete) >= _LEAST_REPEATS:
        repeats = complete
    else:
        prompts &= measured[:, repeats].all(axis=1)
    if not prompts.any():
        return [], []
    units, _ = stats.group_repeats(*sides)
    by_unit: dict[int, list[int]] = {}
    for column in np.flatnonzero(repeats).tolist():
        by_unit.setdefault(units[column], []).append(column)
    one, other = (
        [
            float(np.log(side.table[np.ix_(np.flatnonzero(prompts), np.array(columns))]).mean())
            for columns in by_unit.values()
        ]
        for side in sides
    )
    return one, other


def _by_session(before: Sequence[Arm], after: Sequence[Arm]) -> tuple[list[float], list[float]]:
    """Return each bench's mean log rate over the prompts that all of them measured."""
    shared = set.intersection(*({prompt for prompt, _ in arm.rates} for arm in (*before, *after)))
    if not shared:
        return [], []
    one, other = ([_mean_log(arm, sorted(shared)) for arm in side] for side in (before, after))
    return one, other


def _disturbance(before: Sequence[Arm], after: Sequence[Arm]) -> float:
    """Return what other programs may have added to the log ratio of two sides."""
    one, other = (fmean(stats.mean_slowdown(arm.rates) for arm in side) for side in (before, after))
    return stats.combine_slowdowns(one, other)


def _mean_log(arm: Arm, prompts: Sequence[str]) -> float:
    logs: dict[str, list[float]] = {prompt: [] for prompt in prompts}
    for (prompt, _), rate in arm.rates.items():
        if prompt in logs:
            logs[prompt].append(math.log(rate))
    return fmean(map(fmean, logs.values()))


def _change(
    value: float,
    effect: stats.LogEffect | None,
    design: Design,
    logs: tuple[list[float], list[float]],
    disturbance: float,
    threshold: float | None,
) -> Change:
    bounds: tuple[float, float] | None = None
    if effect is not None:
        bounds = effect.interval(_TAIL, _TAIL)
    elif design is Design.SINGLE:
        sessions = SESSION_SPREAD * math.sqrt(sum(1 / len(side) for side in logs))
        half = stats.Z95 * math.hypot(sessions, disturbance)
        bounds = value - half, value + half
    ratio = stats.Estimate(
        value=math.exp(value),
        lo=None if bounds is None else math.exp(min(max(bounds[0], -_WIDEST), _WIDEST)),
        hi=None if bounds is None else math.exp(min(max(bounds[1], -_WIDEST), _WIDEST)),
    )
    if effect is None or threshold is None:
        return Change(ratio=ratio, effect=effect, p_value=None, verdict=None)
    verdict = judging.judge_ratio(ratio, threshold=threshold)
    return Change(ratio=ratio, effect=effect, p_value=effect.p_value, verdict=verdict)


def _texts(arm: Arm) -> dict[str, str]:
    found: dict[str, str] = {}
    for spec, text in zip(arm.good.specs, arm.good.column("text"), strict=True):
        if text is not None:
            found.setdefault(spec.prompt.id, text)
    return found


def _same(one: str, two: str) -> bool:
    return one.startswith(two) or two.startswith(one)  # drafting writes up to a draft more
