"""Measured finalists -> what to run, overall and for each category of prompts."""

from __future__ import annotations

from collections.abc import Sequence

from ggufspec import forecast, stats
from ggufspec.analysis import Arm, arms
from ggufspec.domain import Role
from ggufspec.errors import ResultsError
from ggufspec.forecast import Advice
from ggufspec.results import ResultSet
from ggufspec.tuning.values import Choice, Prospect, Spent, Tuned, TuningForecast

THRESHOLD = 0.01
"""The smallest gain that matters; configurations within it tie."""


def judge_finalists(outlook: TuningForecast, results: ResultSet, *, measuring_s: float) -> Tuned:
    """Choose what to run.

    The fastest configuration wins; among those within ``THRESHOLD`` of it the smallest γ, then the smallest
    drafter, then the smallest p_min. It is compared with the target alone where that is fastest: without a
    drafter beside it, more layers may fit on the GPU. Drafting must gain more than the threshold; whether the
    prompts suffice to be sure of it says ``Choice.sure``. Where they do not and no gain was forecast either,
    it is taken for chance.

    Args:
        outlook: what was forecast.
        results: target alone and finalists, measured on the same prompts.
        measuring_s: seconds that took.

    Raises:
        ResultsError: the target alone was not measured.
    """
    groups = [arm for arm in arms.group(results) if len(arm.rates)]
    plain = [arm for arm in groups if arm.role is Role.TARGET]
    if not plain:
        raise ResultsError(
            "the target alone has no run that ended well", f"see `ggufspec show {results.meta.id}`"
        )
    drafting = [arm for arm in groups if arm.role is Role.DRAFTING]
    category_of = {spec.prompt.id: spec.prompt.category for arm in plain for spec in arm.good.specs}
    categories = sorted({name for name in category_of.values() if name is not None})
    overall = _choose(outlook, plain, drafting, None, set(category_of))
    found = [
        _choose(outlook, plain, drafting, name, {prompt for prompt, of in category_of.items() if of == name})
        for name in (categories if len(categories) > 1 else ())
    ]
    return Tuned(
        outlook=outlook,
        results=results,
        overall=overall,
        by_category=tuple(found),
        refusal=None if overall.drafts else _refusal(outlook.prospects),
        spent=Spent(traces_s=outlook.spent.traces_s, costs_s=outlook.spent.costs_s, measuring_s=measuring_s),
    )


def _refusal(prospects: Sequence[Prospect]) -> Advice | None:
    """Return why the most promising source of drafts does not pay; its forecasts share their costs."""
    drafting = [each for each in prospects if each.overall.n_drafted]
    leader = max(drafting, key=lambda each: each.overall.speedup.value, default=None)
    if leader is None:
        return None
    own = [each.overall for each in prospects if _source(each) == _source(leader)]
    return forecast.choose_draft_size(own, threshold=THRESHOLD)


def _source(prospect: Prospect) -> tuple[object, ...]:
    drafting = prospect.arm.drafting
    return prospect.arm.drafter, prospect.arm.offload, drafting and drafting.method


def _choose(
    outlook: TuningForecast,
    plain: Sequence[Arm],
    drafting: Sequence[Arm],
    category: str | None,
    prompts: set[str],
) -> Choice:
    alone = max(plain, key=lambda arm: _rate(arm, prompts).value)
    ranked = [arm for arm in drafting if _of(arm, prompts)]
    nothing = Choice(
        category=category, arm=alone, rate=_rate(alone, prompts), gain=None, prompts=len(prompts)
    )
    if not ranked:
        return nothing
    fastest = max(ranked, key=lambda arm: _rate(arm, prompts).value)
    ties = [arm for arm in ranked if _ratio(fastest, arm, prompts) <= 1 + THRESHOLD]
    chosen = min(ties, key=_size)
    gain = stats.paired_effect(_of(chosen, prompts), _of(alone, prompts), threshold=THRESHOLD)
    if gain is None or gain.ratio.value <= 1 + THRESHOLD:
        return nothing
    found = Choice(
        category=category, arm=chosen, rate=_rate(chosen, prompts), gain=gain, prompts=len(prompts)
    )
    return found if found.sure or _was_hoped_for(outlook, found) else nothing


def _was_hoped_for(outlook: TuningForecast, found: Choice) -> bool:
    prospect = outlook.prospect(found.arm.spec)
    if prospect is None:
        return True  # nothing was forecast of it
    foretold = prospect.by_category.get(found.category or "", prospect.overall)
    return foretold.speedup.value > 1 + THRESHOLD


def _size(arm: Arm) -> tuple[int, int, float]:
    drafting, drafter = arm.spec.drafting, arm.spec.drafter
    assert drafting is not None
    size = drafter.path.stat().st_size if drafter is not None and drafter.path is not None else 0
    return drafting.n_max, size, drafting.p_min


def _of(arm: Arm, prompts: set[str]) -> stats.Rates:
    return arm.rates.of_prompts(prompts)


def _rate(arm: Arm, prompts: set[str]) -> stats.Estimate:
    rate = stats.mean_rate(_of(arm, prompts))
    return rate or stats.Estimate(value=0.0, lo=None, hi=None)


def _ratio(one: Arm, other: Arm, prompts: set[str]) -> float:
    compared = stats.paired_effect(_of(one, prompts), _of(other, prompts), threshold=THRESHOLD)
    return compared.ratio.value if compared is not None else float("inf")
