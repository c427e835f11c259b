"""Warnings about a complete bench: failures, other texts, drift, spread, outliers; and how to go on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import islice

import numpy as np

from ggufspec import stats, units
from ggufspec.analysis import arms, rates, texts
from ggufspec.analysis.arm import Arm
from ggufspec.analysis.judging import MOST_DISTURBED
from ggufspec.analysis.traffic import uncertain_percentiles
from ggufspec.analysis.warnings import ADVICE, MeasurementWarning, of_judgement, why_unjudged
from ggufspec.domain import Role, RunSpec, Status
from ggufspec.engines import plausibility
from ggufspec.results import ResultSet, Runs

_MOST_NAMED = 6  # arms in one warning
_MOST_UNEQUAL = 10  # times as long as the shortest answer; above, the warning about lengths
_MUCH_LONGER = 1.1  # times what was asked for; then the last round weighs in the mean of all rounds
_SEARCH = 3  # draft sizes; fewer are a comparison, not a search for the best
_ENOUGH_REPEATS = 3  # that the warning about a single one asks for
_DRIFT = 0.03  # of the speed, over a bench; repeats of a quiet machine agree within 1 to 2 %


@dataclass(frozen=True, kw_only=True)
class BenchWarning:
    """A named warning of a bench.

    Attributes:
        name: see ``MeasurementWarning``.
        advice: what to do, and how many runs or which arms show it.
        arms: the keys of the arms that show it.
        of_bench: whether it is about the bench, whatever single arms show.
    """

    name: str
    advice: str
    arms: frozenset[str] = frozenset()
    of_bench: bool = True


def warnings(results: ResultSet, groups: Sequence[Arm] | None = None) -> dict[str, str]:
    """Return the advice of each warning of a bench by its name."""
    return {warning.name: warning.advice for warning in list_warnings(results, groups)}


def list_warnings(results: ResultSet, groups: Sequence[Arm] | None = None) -> tuple[BenchWarning, ...]:
    """Return the warnings of a bench, each once.

    Args:
        results: a bench.
        groups: its arms, if they are known already.
    """
    groups = arms.group(results) if groups is None else groups
    listed = {name: BenchWarning(name=name, advice=advice) for name, advice in results.meta.doubts.items()}
    if len(set(results.current.column("repeat"))) >= _ENOUGH_REPEATS:
        listed.pop(MeasurementWarning.FEW_REPEATS.value, None)  # it went on with more than it began with
    for warning in (*_of_runs(results, groups), *_of_bench(results, groups)):
        known_before = warning.name in results.meta.doubts
        listed[warning.name] = replace(warning, of_bench=warning.of_bench or known_before)
    return tuple(listed.values())


def _of_runs(results: ResultSet, groups: Sequence[Arm]) -> Iterator[BenchWarning]:
    """Yield the warnings that single runs show."""
    measured = results.current
    runs_of: dict[MeasurementWarning, list[int]] = {}
    for index, of_this_run in enumerate(of_each(measured)):
        for warning in of_this_run:
            runs_of.setdefault(warning, []).append(index)
    of_arms = {arm.spec.key: of_arm(arm) for arm in groups} if runs_of else {}
    for warning in (warning for warning in MeasurementWarning if warning in runs_of):
        shown_by = measured.select(runs_of[warning])
        detail = _DETAILS[warning](shown_by) if warning in _DETAILS else ""
        yield BenchWarning(
            name=warning.value,
            advice=f"{ADVICE[warning]} ({len(shown_by)} of {len(measured)} runs{detail})",
            arms=frozenset(key for key, names in of_arms.items() if warning in names),
            of_bench=False,
        )


def of_each(runs: Runs) -> Iterator[tuple[MeasurementWarning, ...]]:
    """Yield the warnings about each run, those about its text included."""
    ok = Status.OK
    columns = zip(*map(runs.column, ("doubts", "text_identical", "status")), strict=True)
    for index, (names, identical, status) in enumerate(columns):
        of_this_run = list(map(MeasurementWarning, names))
        if identical is False:
            of_this_run += of_judgement(runs[index])
        if status is not ok:
            of_this_run.append(MeasurementWarning.RUNS_FAILED)
        yield tuple(of_this_run)


def of_arm(arm: Arm) -> frozenset[str]:
    """Return the names of the warnings about an arm's runs."""
    return frozenset(warning.value for of_one_run in set(of_each(arm.runs)) for warning in of_one_run)


def drift(results: ResultSet) -> stats.Estimate | None:
    """Return the relative change of the anchor configuration's speed from the first to the last run.

    The anchor is the first block's target alone on the first prompt; its measured repeats count as well.
    """
    specs, spec_of = results.runs.by_spec()
    anchors = np.flatnonzero(results.runs.numbers("anchor"))
    anchored = {specs[number].key for number in spec_of[anchors].tolist()}
    is_anchored = np.array([spec.key in anchored for spec in specs], dtype=np.bool_)
    runs = results.runs.select(np.flatnonzero(is_anchored[spec_of]))
    rows = list(zip(runs.cells(), runs.column("started_at"), rates.counted(runs).tolist(), strict=True))
    watched = next((key for (key, _, _, anchor), _, rate in rows if anchor and rate > 0), None)
    same = [
        (datetime.fromisoformat(at).timestamp(), rate)
        for (key, _, warmup, _), at, rate in rows
        if key == watched and not warmup and rate > 0
    ]
    return stats.drift([at for at, _ in same], [rate for _, rate in same]) if same else None


def _of_bench(results: ResultSet, groups: Sequence[Arm]) -> Iterator[BenchWarning]:
    """Yield the warnings that only several runs together show."""
    moved = drift(results)
    if moved is not None and moved.lo is not None and moved.hi is not None:
        sure = moved.lo > 0 or moved.hi < 0
        if sure and abs(moved.value) > _DRIFT:
            yield _warn(MeasurementWarning.DRIFT, f"{moved.value:+.1%} from start to end")
    gaps = [arm for arm in groups if arm.gain is not None and arm.gain.gap is stats.Gap.NOT_INTERLEAVED]
    yield from _show(MeasurementWarning.NOT_INTERLEAVED, gaps)
    disturbed = [arm for arm in groups if arm.disturbed > MOST_DISTURBED]
    most = units.format_percent(max((arm.disturbed for arm in groups), default=0.0), 0)
    yield from _show(MeasurementWarning.DISTURBED, disturbed, f"{most} of the runs")
    unlike = [
        arm
        for arm in groups
        if any(other and arm.fails_unlike(other) for other in (arm.baseline, arm.counterpart))
    ]
    yield from _show(MeasurementWarning.UNEQUAL_FAILURES, unlike)
    added = {arm.spec: arm.gain.disturbance for arm in groups if arm.gain is not None}
    widest = units.format_percent(np.expm1(stats.Z95 * max(added.values(), default=0.0)), 0)
    widened = [arm for arm in groups if added.get(arm.spec)]
    yield from _show(MeasurementWarning.WIDENED, widened, f"up to {widest}")
    single = [arm for arm in groups if arm.spec.traffic is None]  # others have windows of any length
    lengths = [length for arm in single for length in arm.good.numbers("decoded").tolist() if length > 0]
    if lengths and max(lengths) > _MOST_UNEQUAL * min(lengths):
        yield _warn(MeasurementWarning.UNEQUAL_LENGTHS, f"{min(lengths):.0f} to {max(lengths):.0f} tokens")
    longer = [(arm, beyond) for arm in single if (beyond := _furthest_beyond(arm))]
    if longer:
        shown_by, most_tokens = [arm for arm, _ in longer], max(beyond for _, beyond in longer)
        asked_for = f"{shown_by[0].spec.n_predict} were asked for; {_names(shown_by)}"
        yield _warn(
            MeasurementWarning.BEYOND_LENGTH, f"up to {most_tokens} tokens where {asked_for}", shown_by
        )
    served = [(arm, uncertain_percentiles(arm.traffic)) for arm in groups if arm.traffic is not None]
    few = [arm for arm, uncertain in served if uncertain]
    if few:
        count, percent = min((count, percent) for _, of in served for percent, count in of.items())
        yield _warn(MeasurementWarning.FEW_BEYOND, f"{count} beyond p{percent}; {_names(few)}", few)
    restless = [arm for arm in groups if stats.unstable(arm.measured)]
    yield from _show(MeasurementWarning.UNSTABLE, restless)
    edges = [*_best_at_edge(groups)]
    further = "; ".join(further for further, _ in edges[:_MOST_NAMED])
    yield from _show(MeasurementWarning.BEST_AT_EDGE, [arm for _, arm in edges], further)
    of_all = f"of {len(results.current)} runs"
    clipped = [arm for arm in groups if arm.rates.runs_clipped]
    count = sum(arm.rates.runs_clipped for arm in clipped)
    yield from _show(MeasurementWarning.CLIPPED, clipped, f"{count} {of_all}")
    far = {arm.spec: 0 if arm in clipped else int(stats.find_far(arm.rates).sum()) for arm in groups}
    outlying = [arm for arm in groups if far[arm.spec]]
    yield from _show(MeasurementWarning.OUTLIERS, outlying, f"{sum(far.values())} {of_all}")
    collapsed = rates.find_common(results.first_measured)
    if collapsed:
        by_key = {arm.spec.key: arm for arm in groups}
        counts = (
            f"{_name(by_key[arm.key]) if arm.key in by_key else arm.role.value}: "
            f"{count} of {units.counted(n_runs, 'run')}"
            for arm, (count, n_runs) in collapsed.items()
        )
        shown = [by_key[arm.key] for arm in collapsed if arm.key in by_key]
        yield _warn(MeasurementWarning.COLLAPSES, ", ".join(islice(counts, _MOST_NAMED)), shown)
    unknown = int(np.isnan(rates.prompt_in_window(results.current)).sum())
    if unknown:
        yield _warn(MeasurementWarning.PROMPT_IN_WINDOW, f"{unknown} {of_all}")
    drafted = texts.summarize_role(results.current, Role.DRAFTING)
    if drafted is not None and drafted.p_value is not None and drafted.p_value < texts.UNLIKELY:
        yield _warn(MeasurementWarning.SAMPLED_OTHERWISE, f"{drafted.tokens} tokens")
    if results.damage:
        yield _warn(MeasurementWarning.DAMAGED, "; ".join(results.damage))


def _warn(warning: MeasurementWarning, detail: str, shown_by: Iterable[Arm] = ()) -> BenchWarning:
    """Return a warning about some arms, or about the bench where none is named."""
    keys = frozenset(arm.spec.key for arm in shown_by)
    return BenchWarning(
        name=warning.value, advice=f"{ADVICE[warning]} ({detail})", arms=keys, of_bench=not keys
    )


def _show(warning: MeasurementWarning, arms: Sequence[Arm], detail: str = "") -> Iterator[BenchWarning]:
    """Yield a warning that some arms show, if any does; without a detail, it names them."""
    if arms:
        yield _warn(warning, detail or _names(arms), arms)


def _furthest_beyond(arm: Arm) -> int:
    """Return the tokens of the arm's longest answer that is much longer than was asked for; 0 if none is."""
    n_predict = arm.spec.n_predict
    tokens = [
        output.gen_tokens
        for _, output in arm.good.counted_outputs
        if output.gen_tokens is not None and output.gen_tokens <= plausibility.most_tokens(arm.spec, output)
    ]
    return max((count for count in tokens if n_predict > 0 and count > n_predict * _MUCH_LONGER), default=0)


def _best_at_edge(groups: Iterable[Arm]) -> Iterator[tuple[str, Arm]]:
    """Yield each fastest arm that has the largest draft size of its kind, after what to measure next."""
    by_baseline: dict[RunSpec, list[Arm]] = {}
    for arm in groups:
        if arm.spec.drafting is not None and arm.rate is not None:
            by_baseline.setdefault(arm.spec.baseline, []).append(arm)
    for drafting in by_baseline.values():
        fastest = max(drafting, key=lambda arm: arm.speed)
        sizes = {arm.draft_size for arm in drafting if _differ_in_size_only(arm.spec, fastest.spec)}
        largest = max(size or 0 for size in sizes)
        if len(sizes) >= _SEARCH and fastest.draft_size == largest:
            further = f"{_name(fastest)}, next: --draft {largest}-{2 * largest}"
            drafting_by = fastest.spec.drafting
            if drafting_by is not None and drafting_by.method.drafts_block:
                further += " unless that is the head's longest draft"
            yield further, fastest


def _differ_in_size_only(first: RunSpec, other: RunSpec) -> bool:
    if first.drafting is None or other.drafting is None:
        return False
    return replace(first, drafting=replace(first.drafting, n_max=other.drafting.n_max)) == other


def _names(groups: Iterable[Arm]) -> str:
    """Return the first few of the arms by name, and how many more there are."""
    names = [*dict.fromkeys(map(_name, groups))]
    more = f", and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return ", ".join(names[:_MOST_NAMED]) + more


def _name(arm: Arm) -> str:
    drafting = arm.spec.drafting
    if drafting is None:
        return arm.role.value
    how = "" if drafting.method.needs_drafter and not drafting.first else f" {drafting.chain}"
    return " ".join((f"{arm.what}{how} γ={drafting.n_max}", *drafting.manner))


def _where(runs: Runs) -> str:
    """Say where the first differing text of each prompt leaves the target's own."""
    first: dict[str, str] = {}
    for spec, difference in zip(runs.specs, runs.column("difference"), strict=True):
        if difference is not None:
            at = difference.at_token
            where = f"character {difference.at_char}" if at is None else f"token {at}"
            first.setdefault(spec.prompt.id, where)
    return "".join(f"; {prompt} from {where}" for prompt, where in sorted(first.items()))


def _reasons(runs: Runs) -> str:
    """Say where texts differ that were not judged, and why, each reason once."""
    return _where(runs) + "".join(f"; {reason}" for reason in sorted({why_unjudged(run) for run in runs}))


_DETAILS: Mapping[MeasurementWarning, Callable[[Runs], str]] = {
    MeasurementWarning.TEXT_DIFFERS: _where,
    MeasurementWarning.NEAR_TIES: _where,
    MeasurementWarning.NOT_JUDGED: _reasons,
}
"""What a warning adds to the number of runs that show it."""


def wanting(groups: Iterable[Arm], precision: float) -> dict[RunSpec, stats.Needed]:
    """Return what each drafting arm needs if its speed-up is less precise than requested.

    Args:
        groups: all arms of a bench, their baselines among them.
        precision: half of the interval's width over the speed-up, for example 0.02.
    """
    arms = {arm.spec: arm for arm in groups}
    return {
        spec: stats.needed(arm.rates, arms[spec.baseline].rates, precision=precision)
        for spec, arm in arms.items()
        if spec.drafting is not None and spec.baseline in arms
        if (width := arm.gain.ratio.relative_half_width if arm.gain else None) is None or width > precision
    }


def improvable(groups: Iterable[Arm], block: Iterable[RunSpec], precision: float) -> bool:
    """Return whether more repeats of a block would bring one of its speed-ups to the requested precision."""
    improvable_keys = {
        spec.key for spec, needed in wanting(groups, precision).items() if needed.repeats is not None
    }
    return any(spec.key in improvable_keys for spec in block)


def is_decided(groups: Iterable[Arm], block: Iterable[RunSpec]) -> bool:
    """Return whether the verdict of every arm of a block that drafts is sure.

    An arm of which every run failed has no verdict, and more repeats would give it none.
    """
    keys = {spec.key for spec in block}
    return all(arm.is_decided for arm in groups if arm.spec.key in keys and arm.spec.drafting and arm.good)
