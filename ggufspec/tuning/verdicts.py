"""Measured finalists -> what to confirm; confirmed configurations -> what to run, as a stored value."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from importlib import metadata
from itertools import combinations
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from ggufspec import forecast, stats, units
from ggufspec.analysis import (
    THRESHOLD,
    Arm,
    MeasurementWarning,
    arms,
    judge_categories,
    rank,
    review,
    warnings,
)
from ggufspec.domain import (
    NO_PROMPT,
    FileIdentity,
    ModelFile,
    Role,
    RunSpec,
    Serving,
    SpeedJudgement,
    SpeedVerdict,
    Traffic,
)
from ggufspec.errors import ResultsError
from ggufspec.forecast import Advice
from ggufspec.modelfiles import gguf
from ggufspec.modelfiles.hub import cache
from ggufspec.results import Configuration, PassedOver, Recommendation, ResultSet, Runs
from ggufspec.stats import Cell
from ggufspec.tuning import prospects, values
from ggufspec.tuning.values import Prospect, Selection, Tuned, TuningForecast

_EXACT = 10_000  # ways to choose the prompts of a category: up to so many are all tried
_SEED = 20240419
_ALPHA = 0.05
_RACE_ERROR = 0.05  # the chance that a comparison of two finalists shows so much more than is true
_MOST_LOSS = 0.02  # of the fastest finalist's speed: what the choice may cost before more loads are worth it

Values = NDArray[np.float64]
K = TypeVar("K", bound=Hashable)


def categories_that_differ(
    leader: Mapping[Cell, float], others: Sequence[Mapping[Cell, float]], categories: Mapping[str, str]
) -> frozenset[str]:
    """Return the categories in which another arm gains significantly more on the leader than elsewhere.

    The interaction of arm and category, by a permutation test: if categories made no difference, any other
    prompts of the same number could be those of the category (Good 2005, "Permutation, Parametric and
    Bootstrap Tests of Hypotheses", chapter 3). The statistic is the largest of all arms, so that it does not
    matter how many there are. Several categories: Holm's adjustment.

    Args:
        leader: tokens/s of the best arm over all prompts, by (prompt id, repeat).
        others: the same of the other arms, the target alone among them.
        categories: prompt id -> category.
    """
    means = [stats.per_prompt(rates) for rates in (leader, *others)]
    prompts = [prompt for prompt in categories if all(prompt in by_prompt for by_prompt in means)]
    if not others or not prompts:
        return frozenset()
    best, *rest = (np.log([by_prompt[prompt] for prompt in prompts]) for by_prompt in means)
    gains = np.array(rest) - best  # (arms, prompts)
    p_values = {
        category: _p_value(gains, np.array([categories[prompt] == category for prompt in prompts]))
        for category in sorted({categories[prompt] for prompt in prompts})
    }
    return frozenset(significant(p_values, alpha=_ALPHA))


def _p_value(gains: Values, inside: NDArray[np.bool_]) -> float:
    """Return how often the same number of any prompts shows a gain as large as those of the category."""
    n, size = len(inside), int(inside.sum())
    if size in {0, n}:
        return 1.0
    exact = math.comb(n, size) <= _EXACT
    if exact:
        chosen = np.zeros((math.comb(n, size), n))
        for row, indices in enumerate(combinations(range(n), size)):
            chosen[row, list(indices)] = 1.0
    else:
        random = np.random.default_rng(_SEED)
        chosen = random.permuted(np.tile(inside.astype(float), (_EXACT - 1, 1)), axis=1)
    observed = _largest(gains, inside[None].astype(float))[0]
    as_large = int(np.count_nonzero(_largest(gains, chosen) >= observed - 1e-12))
    return as_large / len(chosen) if exact else (as_large + 1) / _EXACT


def _largest(gains: Values, chosen: Values) -> Values:
    """Return for each choice of prompts the largest gain of an arm inside over that outside."""
    sizes = chosen.sum(axis=1)
    inside = chosen @ gains.T
    outside = gains.sum(axis=1) - inside
    means = inside / sizes[:, None] - outside / (chosen.shape[1] - sizes)[:, None]
    return np.asarray(means.max(axis=1), dtype=np.float64)


def significant(p_values: Mapping[K, float], *, alpha: float) -> list[K]:
    """Return what passes the step-down test of Holm 1979, "A simple sequentially rejective multiple test"."""
    passed: list[K] = []
    for position, (name, p_value) in enumerate(sorted(p_values.items(), key=lambda item: item[1])):
        if p_value > alpha / (len(p_values) - position):
            break
        passed.append(name)
    return passed


Files = Mapping[str, FileIdentity]


def configuration_of(tuned: Tuned) -> Configuration:
    """Return what a tuning recommends, for the folder of the bench that confirmed it."""
    meta, spec, launch = tuned.results.meta, tuned.overall.spec, tuned.launch
    files = {file.path: file for file in meta.files or ()}
    measured = tuned.confirmed(spec).good
    return Configuration(
        id=meta.id,
        made_at=datetime.now(UTC).isoformat(timespec="seconds"),
        ggufspec_version=metadata.version("ggufspec"),
        overall=_recommendation(tuned.overall, files),
        by_category={name: _recommendation(choice, files) for name, choice in tuned.by_category.items()},
        engine=meta.engine,
        serving=tuned.serving or Serving(context=spec.context),
        measured_argv=measured[0].argv if measured else (),
        serving_argv=launch.argv if launch is not None and launch.failure is None else (),
        launch=launch,
        passed_over=tuple(
            PassedOver(spec=_described(spec, files), reason=reason) for spec, reason in tuned.passed_over
        ),
        warnings=review.warnings(tuned.results),
        build=meta.build,
        files=meta.files,
        machine=meta.machine,
        environment=meta.environment,
    )


def _recommendation(choice: Recommendation, files: Files) -> Recommendation:
    candidate = None if choice.candidate is None else _described(choice.candidate, files)
    return replace(choice, spec=_described(choice.spec, files), candidate=candidate)


def _described(spec: RunSpec, files: Files) -> RunSpec:
    """Return a specification without prompts, whose models have origin, size and checksum.

    Of the traffic of several users, their number stays.
    """
    pair = spec.pair
    users = None if spec.traffic is None else Traffic(users=spec.traffic.users)
    described = replace(
        pair,
        target=_with_origin(pair.target, files),
        draft=None if pair.draft is None else _with_origin(pair.draft, files),
    )
    return replace(spec, pair=described, prompt=NO_PROMPT, n_predict=0, traffic=users)


def _with_origin(model: ModelFile, files: Files) -> ModelFile:
    """Return a model with its repository, revision and size; with its checksum, if it is one file."""
    path = model.path
    if path is None:
        return model
    origin = cache.origin(path)
    if origin is not None:
        model = replace(model, repo=origin.repo, filename=origin.filename, revision=origin.revision)
    parts = [files.get(str(part)) for part in gguf.part_paths(path)]
    origins = [part for part in parts if part is not None]
    if len(origins) < len(parts):
        return model
    return replace(
        model,
        size_bytes=sum(part.size_bytes for part in origins),
        sha256=origins[0].sha256 if len(origins) == 1 else None,
    )


_DISTURBANCES = frozenset(
    {
        MeasurementWarning.BUSY_MACHINE,
        MeasurementWarning.THREADS_ABOVE_FREE_CORES,
        MeasurementWarning.SWAPPING,
    }
)


def select_arms(results: ResultSet, among: Sequence[RunSpec] | None = None) -> Selection:
    """Select what to confirm from the finalists' runs, or what to load again before that.

    A configuration is alike to the fastest where it is at most ``THRESHOLD`` slower, and by chance at most
    ``_MOST_LOSS``. The smallest draft of these wins: then the smallest drafter, then the smallest p_min.
    Text that is not the target's own cannot win.

    Where chance may hide that another one is faster than the fastest by more than ``_MOST_LOSS``, those that
    may be the fastest race: they need another load (Maron and Moore 1997, Artificial Intelligence Review
    11:193-225; Even-Dar, Mannor and Mansour 2006, Journal of Machine Learning Research 7:1079-1105).

    Args:
        results: the stored bench of the target alone and the finalists.
        among: finalists that have more loads than the others; these cannot win. None where all have as many.

    Raises:
        ResultsError: the target alone was not measured.
    """
    plain, drafting = _measured(results)
    unlike = tuple(arm.spec for arm in drafting if arm.text_differs)
    plain, running = (plain, drafting) if among is None else _measured(results, _runs_of(results, among))
    eligible = [arm for arm in running if not arm.text_differs]
    if not eligible:
        return Selection(results=results, unlike_target=unlike)
    fastest, *slower = sorted(eligible, key=lambda arm: -_rate(arm).value)
    behind = {arm.spec: _behind(fastest, arm) for arm in (fastest, *slower)}
    chance = _chance([*plain, *eligible])
    most = min(math.log1p(THRESHOLD), math.log1p(_MOST_LOSS) - chance)
    alike = sorted([fastest, *(arm for arm in slower if behind[arm.spec] <= most)], key=_size)
    winner = alike[0]
    closest = min((behind[arm.spec] for arm in slower), default=math.inf)
    is_close = chance - closest > math.log1p(_MOST_LOSS)
    others = [arm for arm in (fastest, *slower) if arm is not winner]
    source = prospects.source(fastest.spec)
    sizes = {arm.spec.drafts_by.n_max for arm in drafting if prospects.source(arm.spec) == source}
    is_edge = len(sizes) > 1 and fastest.spec.drafts_by.n_max == max(sizes)
    return Selection(
        results=results,
        fastest=fastest.spec,
        winner=winner.spec,
        runner_up=others[0].spec if others else None,
        alike=tuple(arm.spec for arm in alike),
        racing=tuple(spec for spec, by in behind.items() if by <= chance) if is_close else (),
        by_category=_by_category(winner, [*others, max(plain, key=lambda arm: _rate(arm).value)]),
        edge=fastest.spec.drafts_by.n_max if is_edge and prospects.can_be_longer(fastest.spec) else None,
        unlike_target=unlike,
    )


def judge_finalists(
    outlook: TuningForecast, selection: Selection, confirmed: ResultSet, *, measuring_s: float
) -> Tuned:
    """Choose what to run, by runs that did not select it.

    The winner of the selection is compared with the target alone where that is fastest: without a drafter
    beside it, more layers may fit on the GPU. The runner-up takes its place only where it is significantly
    faster, or where the winner is not found to pay and the runner-up is. Where neither is decided, the
    target alone is what is safe meanwhile.

    Args:
        outlook: what was forecast.
        selection: the winner, the runner-up and those of categories.
        confirmed: new runs of these and the target alone.
        measuring_s: seconds of the selection and the confirmation.

    Raises:
        ResultsError: the target alone was not measured.
    """
    plain, drafting = _measured(confirmed)
    eligible = [arm for arm in drafting if not arm.text_differs]
    preferred = [
        arm for spec in (selection.winner, selection.runner_up) if (arm := _of(spec, eligible)) is not None
    ]
    if len(preferred) > 1 and preferred[1].judge(preferred[0]).verdict is SpeedVerdict.FASTER:
        preferred.reverse()
    overall = _choose(plain, preferred, _prompts(plain))
    return Tuned(
        outlook=outlook,
        selection=selection,
        results=confirmed,
        overall=overall,
        by_category=choose_by_category(selection, confirmed, overall),
        refusal=_refusal(outlook.prospects) if overall.is_decided and not overall.drafts else None,
        spent=replace(outlook.spent, measuring_s=measuring_s),
    )


def choose_by_category(
    selection: Selection, confirmed: ResultSet, overall: Recommendation
) -> dict[str, Recommendation]:
    """Return what to run for each category, where there are two or more: the candidate over all, or nothing.

    Another configuration that the selection named takes its place where it is found to pay, and to be faster.

    Args:
        selection: names other configurations for categories.
        confirmed: the runs that confirm.
        overall: the choice over all prompts.
    """
    plain, drafting = _measured(confirmed)
    candidate = _of(overall.candidate, drafting)
    if candidate is None:
        return {}
    alone = max(plain, key=lambda arm: arm.speed)
    choices: dict[str, Recommendation] = {}
    for category, judgement in judge_categories(candidate, alone).items():
        category_of = {spec.prompt.id: spec.prompt.category or spec.prompt.id for spec in alone.good.specs}
        prompts = {prompt for prompt, name in category_of.items() if name == category}
        choice = _recommend(candidate if judgement.pays else alone, prompts, candidate, judgement)
        other = _of(selection.by_category.get(category), [arm for arm in drafting if not arm.text_differs])
        if other is not None:
            found = _choose(plain, [other], prompts)
            is_faster = found.drafts and found.tokens_per_s.value > choice.tokens_per_s.value
            choice = found if is_faster else choice
        choices[category] = choice
    return choices


def next_best(tuned: Tuned) -> tuple[Recommendation, ...]:
    """Return what to run instead of the choice over all prompts: what pays, the fastest first, then nothing.

    Raises:
        ResultsError: the target alone was not measured.
    """
    plain, drafting = _measured(tuned.results)
    overall, prompts = tuned.overall, _prompts(plain)
    others = [arm for arm in drafting if not arm.text_differs and not values.is_same(arm.spec, overall.spec)]
    paying = [choice for arm in others if (choice := _choose(plain, [arm], prompts)).drafts]
    paying.sort(key=lambda choice: -choice.tokens_per_s.value)
    alone = replace(_choose(plain, [], prompts), candidate=overall.candidate, judgement=overall.judgement)
    return (*paying, *([alone] if overall.drafts else []))


def why_unusable(results: ResultSet) -> str | None:
    """Return why no run of the target alone can be compared, as a clause; None where some can."""
    plain = [arm for arm in arms.group(results) if arm.role is Role.TARGET]
    if any(len(arm.rates) for arm in plain):
        return None
    runs = [run for arm in plain for run in arm.runs]
    if not runs:
        return "the time was over before the target alone was measured"
    disturbed = sum(not _DISTURBANCES.isdisjoint(run.doubts) for run in runs)
    beside = f", {disturbed} of them while other programs used the machine" if disturbed else ""
    good = sum(len(arm.good) for arm in plain)
    if not good:
        reason, _ = Counter(warnings.outcome(run).value for run in runs).most_common(1)[0]
        return f"none of {units.counted(len(runs), 'run')} of the target alone succeeded ({reason}){beside}"
    ended = f"{units.counted(good, 'run')} of the target alone ended well{beside}"
    return f"{ended}, but no drafting run on the same prompt and repeat did"


def _runs_of(results: ResultSet, among: Sequence[RunSpec]) -> Runs:
    """Return the runs of the target alone and of some configurations that draft."""
    runs = results.current
    specs, spec_of = runs.by_spec()
    kept = [
        spec.role is Role.TARGET or any(values.is_same(spec, chosen) for chosen in among) for spec in specs
    ]
    return runs.select(np.flatnonzero(np.array(kept)[spec_of]))


def _measured(results: ResultSet, runs: Runs | None = None) -> tuple[list[Arm], list[Arm]]:
    """Return the arms of the target alone and those that draft, with runs that can be compared.

    Args:
        results: a bench.
        runs: those that count; by default the newest of each cell.

    Raises:
        ResultsError: the target alone has none.
    """
    cause = why_unusable(results)
    if cause is not None:
        raise ResultsError(f"there is no verdict: {cause}", f"see `ggufspec show {results.meta.id} --runs`")
    groups = [arm for arm in arms.group(results, runs) if len(arm.rates)]
    plain = [arm for arm in groups if arm.role is Role.TARGET]
    return plain, [arm for arm in groups if arm.role is Role.DRAFTING]


def _behind(fastest: Arm, arm: Arm) -> float:
    """Return the logarithm of how many times as fast the fastest arm is; infinite where that is unknown."""
    effect = stats.paired_effect(fastest.rates, arm.rates)
    return math.inf if effect is None else math.log(effect.ratio.value)


def _chance(measured: Sequence[Arm]) -> float:
    """Return by how much chance may favour one of two arms, in logarithms, with an error of ``_RACE_ERROR``.

    Each load is one value, the mean over these prompts, and what slows all arms of a repeat alike cancels.
    More loads do not show how arms differ on other prompts. 0 where fewer than two loads can be compared.
    """
    logs = np.log([arm.rates.table for arm in measured])
    shared = ~np.isnan(logs).any(axis=0)
    if not shared.any():
        return 0.0
    by_load = np.array([stats.mean_of_loads(np.where(shared, of_arm, np.nan)) for of_arm in logs])
    n_loads = by_load.shape[1]
    if n_loads < 2:
        return 0.0
    square, degrees = stats.residual_square(by_load)
    return stats.t_quantile(_RACE_ERROR, degrees) * math.sqrt(2 * square / n_loads)


def _by_category(winner: Arm, others: Sequence[Arm]) -> dict[str, RunSpec]:
    """Return the fastest arm of each category in which arms gain significantly otherwise than elsewhere."""
    category_of = {
        spec.prompt.id: spec.prompt.category for spec in winner.good.specs if spec.prompt.category is not None
    }
    differing = categories_that_differ(winner.rates, [arm.rates for arm in others], category_of)
    chosen = {}
    for name in sorted(differing):
        prompts = {prompt for prompt, category in category_of.items() if category == name}
        best = max(others, key=lambda arm: _rate(arm, prompts).value)
        if _rate(best, prompts).value > _rate(winner, prompts).value * (1 + THRESHOLD):
            chosen[name] = best.spec
    return chosen


def _refusal(candidates: Sequence[Prospect]) -> Advice | None:
    """Return why the most promising source of drafts does not pay; its forecasts share their costs.

    None without a forecast, or where only whole rounds were timed.
    """
    drafting = [prospect for prospect in candidates if prospect.overall.n_drafted]
    leader = max(drafting, key=lambda prospect: prospect.overall.speedup.value, default=None)
    if leader is None or leader.overall.draft_share is None:
        return None
    source = prospects.source(leader.arm)
    alternatives = [prospect.overall for prospect in candidates if prospects.source(prospect.arm) == source]
    return forecast.choose_draft_size(alternatives, threshold=THRESHOLD)


def _choose(plain: Sequence[Arm], preferred: Sequence[Arm], prompts: set[str]) -> Recommendation:
    """Return what is safe to run: the first of the preferred arms, if it pays, then whichever does."""
    alone = max(plain, key=lambda arm: _rate(arm, prompts).value)
    judged = [(arm, arm.judge(alone, prompts)) for arm in preferred]
    ranking = rank(judged[:1])
    if not ranking.drafts:
        ranking = rank(judged)
    arm = ranking.best if ranking.drafts and ranking.best is not None else alone
    return _recommend(arm, prompts, ranking.best, ranking.judgement)


def _recommend(
    arm: Arm, prompts: set[str], candidate: Arm | None, judgement: SpeedJudgement | None
) -> Recommendation:
    return Recommendation(
        spec=arm.spec,
        tokens_per_s=_rate(arm, prompts),
        candidate=None if candidate is None else candidate.spec,
        judgement=judgement,
        prompts=len(prompts),
    )


def _of(spec: RunSpec | None, groups: Sequence[Arm]) -> Arm | None:
    return next((arm for arm in groups if spec is not None and values.is_same(arm.spec, spec)), None)


def _prompts(groups: Sequence[Arm]) -> set[str]:
    return {spec.prompt.id for arm in groups for spec in arm.good.specs}


def _size(arm: Arm) -> tuple[int, int, float]:
    drafting, drafter = arm.spec.drafts_by, arm.spec.drafter
    size = drafter.path.stat().st_size if drafter is not None and drafter.path is not None else 0
    return drafting.n_max, size, drafting.p_min


def _rate(arm: Arm, prompts: set[str] | None = None) -> stats.Estimate:
    rates = arm.rates if prompts is None else arm.rates.of_prompts(prompts)
    return stats.mean_rate(rates) or stats.Estimate.around(0.0)
