"""Two benches side by side: what is equal is joined, what must not be compared is refused."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from statistics import fmean, variance
from typing import NamedTuple

import numpy as np

from ggufspec import notebooks, stats, units
from ggufspec.analysis import arms, judging, matching, review
from ggufspec.analysis.arm import Arm, fails_unlike
from ggufspec.domain import SpeedVerdict
from ggufspec.errors import GgufspecError, ResultsError
from ggufspec.results import ResultSet, ServerStart, list_starts

_SIDES = 2
_TAIL = 0.025

LEAST_SESSIONS = 3
"""Benches a side from which on they show how much sessions differ."""


class Design(StrEnum):
    """How two sides were measured, and so what was drawn anew from unit to unit."""

    INTERLEAVED = "interleaved"  # one bench of two llama.cpps; units are its loads
    SESSIONS = "sessions"  # three benches a side or more; units are the benches
    SINGLE = "single"  # fewer: how much sessions differ is assumed


@dataclass(frozen=True, kw_only=True)
class Change:
    """The speed after over the speed before, and what may be said of it.

    ``effect`` has its standard error; None where that is not known. Then there is no ``p_value``, and the
    interval of ``ratio``, if it has one, assumes how much sessions or loads differ. ``verdict`` is None where
    two engines were measured.
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
class ComparedArm:
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
class BenchComparison(notebooks.Shown):
    """All arms that both sides have.

    ``differences`` name what the benches do not share.
    ``warnings`` has the named warnings of each compared bench and their advice, by the bench's id.
    ``no_verdict`` says why ratios alone are given; None where they carry verdicts. ``is_reported`` is whether
    the models are those that servers say they serve, so that no checksum shows that they are the same.
    """

    before: str  # ids of benches, or of a llama.cpp in one bench
    after: str
    design: Design
    rows: tuple[ComparedArm, ...]
    differences: Mapping[str, tuple[str, str]]
    unmatched: tuple[str, ...]
    warnings: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    no_verdict: str | None = None
    same_engine: bool = True
    is_reported: bool = False


@notebooks.named_options
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
    second = (after,) if isinstance(after, ResultSet) else tuple(after or ())
    if after is None:
        (bench,) = first
        together = arms.group(bench)
        sides = [
            _ComparedSide(name, (side,), [tuple(arm for arm in together if arm.spec.build == name)], [0])
            for name, side in zip(bench.meta.builds, split_builds(bench), strict=True)
        ]
        design = Design.INTERLEAVED
    else:
        sides = [_ComparedSide.of(first), _ComparedSide.of(second)]
        independent = min(len(set(side.sessions)) for side in sides)
        design = Design.SESSIONS if independent >= LEAST_SESSIONS else Design.SINGLE
    warnings = {bench.meta.id: review.warnings(bench) for bench in (*first, *second)}
    return replace(_compare(sides[0], sides[1], design, threshold), warnings=warnings)


class _ComparedSide(NamedTuple):
    """What is compared with the other side: benches, the arms of each, and the number of its session."""

    name: str
    benches: Sequence[ResultSet]
    arms: Sequence[Sequence[Arm]]
    sessions: Sequence[int]

    @classmethod
    def of(cls, benches: Sequence[ResultSet]) -> _ComparedSide:
        name = ", ".join(bench.meta.id for bench in benches)
        return cls(name, benches, [arms.group(bench) for bench in benches], _number_sessions(benches))


def _number_sessions(benches: Sequence[ResultSet]) -> list[int]:
    """Return the session of each bench: benches of running servers that were not started again share one."""
    numbers: list[int] = []
    seen: dict[ServerStart, int] = {}
    for index, bench in enumerate(benches):
        starts = {start for start in list_starts(bench.current) if start is not None}
        number = min((seen[start] for start in starts if start in seen), default=index)
        seen.update(dict.fromkeys(starts, number))
        numbers.append(number)
    return numbers


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
    first, other = (
        replace(
            bench,
            meta=replace(meta, build=build),
            runs=bench.runs.select([index for index, build_name in enumerate(builds) if build_name == name]),
        )
        for name, build in meta.builds.items()
    )
    return first, other


def _compare(
    old: _ComparedSide, new: _ComparedSide, design: Design, threshold: float | None
) -> BenchComparison:
    """Compare the arms of both sides."""
    before, after = old.benches[0], new.benches[0]
    for bench in (*old.benches, *new.benches):
        matching.refuse_other_prompts(before, bench)
        matching.refuse_unknown_models(bench)
    first, second = ([matching.by_identity(group) for group in side.arms] for side in (old, new))
    common = [name for name in first[0] if all(name in arms_of for arms_of in (*first, *second))]
    if not common:
        other = dict(matching.other_models(before, after))
        named = "".join(
            f"; two models are called {name}: {first_file}, and {second_file}"
            for name, (first_file, second_file) in other.items()
        )
        raise ResultsError(
            f"{old.name} and {new.name} have no arm in common{named}",
            "compare benches of the same models, draft sizes, sampling, -n, users and prompts",
        )
    compared = [[[arms_of[name] for arms_of in side] for side in (first, second)] for name in common]
    unexplained = _unexplained((*old.arms, *new.arms)) or _unlike(compared)
    same_engine = len({bench.meta.engine for bench in (*old.benches, *new.benches)}) == 1
    if not same_engine or unexplained is not None:
        threshold = None
    sessions = old.sessions, new.sessions
    made = (_row(ours, theirs, design, sessions, threshold) for ours, theirs in compared)
    rows = tuple(row for row in made if row is not None)
    if not rows:
        raise ResultsError(
            f"{old.name} and {new.name} share no prompt that both measured", "see their failed runs"
        )
    return BenchComparison(
        before=old.name,
        after=new.name,
        design=design,
        rows=rows,
        differences=matching.find_differences(
            before, after, [(row.before.spec, row.after.spec) for row in rows]
        ),
        unmatched=tuple(sorted(matching.list_unmatched(first[0], second[0]))),
        no_verdict=_no_verdict(old, new, design) or unexplained,
        same_engine=same_engine,
        is_reported=any(row.before.spec.servers is not None for row in rows),
    )


def _no_verdict(old: _ComparedSide, new: _ComparedSide, design: Design) -> str | None:
    used = [dict.fromkeys(bench.meta.engine for bench in side.benches) for side in (old, new)]
    if len(used[0] | used[1]) > 1:
        before, after = map(", ".join, used)
        return (
            f"no verdict: {old.name} was measured with the engine {before} and {new.name} with {after}, "
            "other programs that draft and time in their own way; measure both with one --engine"
        )
    if design is Design.SINGLE:
        return (
            f"no verdict but an estimate: {old.name} and {new.name} were measured at different times, and "
            "that alone changes a speed; the interval assumes that sessions differ by "
            f"{units.format_percent(stats.ASSUMED_SPREAD, 0)} (one standard deviation)"
        )
    return None


def _unexplained(benches: Iterable[Iterable[Arm]]) -> str | None:
    """Return that there is no verdict where it is not known what a disturbance did to many runs."""
    most = _most_disturbed(benches)
    if most <= judging.MOST_DISTURBED:
        return None
    return (
        "no verdict: memory was swapped or a GPU lowered its clocks during "
        f"{units.format_percent(most, 0)} of the runs, and what that did is not known"
    )


def _most_disturbed(benches: Iterable[Iterable[Arm]]) -> float:
    """Return the highest share of an arm's runs that swapping or heat disturbed."""
    return max(arm.disturbed for bench in benches for arm in bench)


def _unlike(compared: Iterable[Sequence[Sequence[Arm]]]) -> str | None:
    """Return that there is no verdict where more runs of an arm failed on one side than on the other."""
    for before, after in compared:
        if fails_unlike([arm.runs for arm in before], [arm.runs for arm in after]):
            name = matching.label_arm(before[0].spec).rstrip()
            why = "and the slow ones may be those that fail"
            return f"no verdict: runs of {name} failed more often on one side, {why}"
    return None


def _row(
    before: Sequence[Arm],
    after: Sequence[Arm],
    design: Design,
    units: Sequence[Sequence[int]],
    threshold: float | None,
) -> ComparedArm | None:
    """Compare an arm, a bench of each side after the other; without a threshold there is no verdict."""
    if design is Design.INTERLEAVED:
        first, _ = stats.align(before[0].rates, after[0].rates)
        if not len(first):
            return None
        before_tps, change = float(np.exp(np.nanmean(np.log(first.table)))), _of_builds(after[0], threshold)
    else:
        shared = sorted(set.intersection(*({prompt for prompt, _ in arm.rates} for arm in (*before, *after))))
        if not shared:
            return None
        sessions = [
            [_summarize(benches, shared) for benches in _by_unit(side, numbers)]
            for side, numbers in zip((before, after), units, strict=True)
        ]
        before_tps = math.exp(fmean(session.mean for session in sessions[0]))
        change = _of_sessions(sessions[0], sessions[1], design, threshold, _disturbance(before, after))
        if _unlike([(before, after)]) or _most_disturbed((before, after)) > judging.MOST_DISTURBED:
            alone = stats.Estimate.around(change.ratio.value)
            change = Change(ratio=alone, effect=None, p_value=None, verdict=None)
    ours, theirs = _texts(after[0]), _texts(before[0])
    both = ours.keys() & theirs.keys()
    # drafting writes up to a draft more
    equal = sum(ours[p].startswith(theirs[p]) or theirs[p].startswith(ours[p]) for p in both)
    own_words = before[0].spec.sampling.greedy and not before[0].synthetic
    return ComparedArm(
        before=before[0],
        after=after[0],
        before_tps=before_tps,
        after_tps=before_tps * change.ratio.value,
        change=change,
        texts_equal=equal if own_words and both else None,
        texts=len(both),
    )


def _of_builds(after: Arm, threshold: float | None) -> Change:
    """Return what ``new/old`` says of an arm in the tables of its bench."""
    assert after.counterpart is not None
    judged = after.judge_change(threshold=judging.THRESHOLD if threshold is None else threshold)
    assert judged is not None
    assert judged.ratio is not None
    has_interval = after.change is not None and after.change.degrees is not None
    return Change(
        ratio=judged.ratio,
        effect=stats.compare_loads(after.rates, after.counterpart.rates) if has_interval else None,
        p_value=None if threshold is None else judged.p_value,
        verdict=None if threshold is None else judged.verdict,
    )


@dataclass(frozen=True, kw_only=True)
class _SessionRate:
    """The mean log rate of an arm in a session, and its variance from what repeats differ by."""

    mean: float
    variance: float
    degrees: int  # of freedom; 0 where a single repeat shows no variance


def _disturbance(before: Sequence[Arm], after: Sequence[Arm]) -> float:
    """Return what other programs may have added to the log ratio of two sides."""
    before_slowdown, other = (
        fmean(stats.mean_slowdown(arm.rates) for arm in side) for side in (before, after)
    )
    return stats.combine_slowdowns(before_slowdown, other)


def _by_unit(side: Sequence[Arm], numbers: Sequence[int]) -> list[list[Arm]]:
    """Return the benches of each session."""
    units: dict[int, list[Arm]] = {}
    for arm, number in zip(side, numbers, strict=True):
        units.setdefault(number, []).append(arm)
    return list(units.values())


def _summarize(benches: Sequence[Arm], prompts: Collection[str]) -> _SessionRate:
    """Return a session's mean over some prompts, all of which each of its benches measured."""
    tables = [np.log(arm.rates.of_prompts(prompts).table) for arm in benches]
    repeats = [mean for table in tables for mean in stats.mean_of_loads(table)]
    count = len(repeats)
    return _SessionRate(
        mean=fmean(
            float(np.nanmean(np.nanmean(table[~np.isnan(table).all(axis=1)], axis=1))) for table in tables
        ),
        variance=variance(repeats) / count if count > 1 else 0.0,
        degrees=count - 1,
    )


def _of_sessions(
    before: Sequence[_SessionRate],
    after: Sequence[_SessionRate],
    design: Design,
    threshold: float | None,
    disturbance: float,
) -> Change:
    """Return the change between sessions; what too few of them differ by is assumed."""
    if design is Design.SESSIONS:
        effect = stats.compare_units(
            [session.mean for session in after], [session.mean for session in before]
        )
        assert effect is not None, "there are three sessions a side"
        effect = replace(effect, disturbance=disturbance)
        lo, hi = (min(max(bound, -stats.WIDEST), stats.WIDEST) for bound in effect.interval(_TAIL, _TAIL))
        ratio = stats.Estimate(value=math.exp(effect.value), lo=math.exp(lo), hi=math.exp(hi))
        p_value = effect.p_value
    else:
        effect = p_value = None
        ratio = _assume_spread(before, after, disturbance)
    if threshold is None:
        return Change(ratio=ratio, effect=effect, p_value=None, verdict=None)
    verdict = judging.judge_ratio(ratio, threshold=threshold)
    return Change(ratio=ratio, effect=effect, p_value=p_value, verdict=verdict)


def _assume_spread(
    before: Sequence[_SessionRate], after: Sequence[_SessionRate], disturbance: float
) -> stats.Estimate:
    """Return the ratio of few sessions, with an interval that assumes how much they differ."""
    parts = [
        (session.variance / len(side) ** 2, session.degrees) for side in (before, after) for session in side
    ]
    total = sum(part for part, _ in parts)
    # Satterthwaite's degrees of freedom
    degrees = total**2 / sum(part**2 / free for part, free in parts if free) if total else None
    value = fmean(session.mean for session in after) - fmean(session.mean for session in before)
    loads = 2 / (1 / len(before) + 1 / len(after))
    error = math.sqrt(total)
    if degrees is not None:
        error, degrees = stats.widen(error, degrees, disturbance)
    return stats.assume_spread(value, error if degrees else disturbance, degrees, loads=loads)


def _texts(arm: Arm) -> dict[str, str]:
    texts: dict[str, str] = {}
    for spec, text in zip(arm.good.specs, arm.good.column("text"), strict=True):
        if text is not None:
            texts.setdefault(spec.prompt.id, text)
    return texts
