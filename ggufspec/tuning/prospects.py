"""Traces × cost curves -> a forecast of every configuration, and which of them deserve to be measured."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from ggufspec import engines, forecast
from ggufspec.domain import Drafting, ModelFile, Offload, Program, RunSpec
from ggufspec.forecast import trace
from ggufspec.forecast.costs import CostCurve
from ggufspec.forecast.profiles import Texts
from ggufspec.measure import Block
from ggufspec.tuning.values import Prospect

Curves = Mapping[tuple[Offload, ModelFile | None], CostCurve]

_WORTH_TRYING = 0.93  # of the leader's forecast; forecasts are off by 5 % in the middle, 10 % at worst
_ALIKE = 0.01  # p_min that changes the forecast by less is not tried at the same draft size


def can_forecast(arm: RunSpec, program: Program, build: int | None) -> bool:
    """Whether a configuration can be forecast at all."""
    drafting = _drafting(arm)
    if drafting.method.needs_drafter:
        return True
    return trace.why_not(drafting.method, n_max=drafting.n_max, program=program, build=build) is None


def has_own_size(arm: RunSpec) -> bool:
    """Whether a configuration drafts as many tokens as its method does if nobody asks for a number."""
    drafting = _drafting(arm)
    return drafting.n_max in trace.draft_sizes(drafting.method)


def prospects(
    arms: Sequence[RunSpec],
    texts: Sequence[Texts],
    drafters: Sequence[ModelFile],
    curves: Curves,
    *,
    engine: str,
    n_predict: int,
    build: int | None,
) -> tuple[Prospect, ...]:
    """Forecast every configuration that drafts.

    Args:
        arms: the configurations; all can be forecast.
        texts: the traces of every prompt.
        drafters: in the order of the traces.
        curves: what evaluations cost, by offload and drafter.
        engine: whose way of drafting is forecast.
        n_predict: tokens of each prompt.
        build: llama.cpp's build number.
    """
    program = engines.ENGINES[engine]
    found: dict[RunSpec, Prospect] = {}
    for group in _groups(arms).values():
        first = group[0]
        assert first.drafting is not None
        seen = [
            each.own if first.drafter is None else each.by_drafter[drafters.index(first.drafter)]
            for each in texts
        ]
        by_drafting: dict[tuple[int, float], dict[str | None, forecast.Forecast]] = {}
        for one in forecast.forecasts(
            seen,
            curves[first.offload, first.drafter],
            method=first.drafting.method,
            n_max=sorted({_drafting(arm).n_max for arm in group}),
            p_min=sorted({_drafting(arm).p_min for arm in group}),
            program=program,
            n_predict=n_predict,
            # exact sampling is what the library and the tree program do; the others sample from the target
            # alone and compare, which the match bits of a sampled text tell as well
            sampling=not first.sampling.greedy and (engine == "inprocess" or program is Program.TREE),
            build=build,
        ):
            by_drafting.setdefault((one.n_max, one.p_min), {})[one.category] = one
        for arm in group:
            told = by_drafting[_drafting(arm).n_max, _drafting(arm).p_min]
            found[arm] = Prospect(
                arm=arm,
                overall=told[None],
                by_category={name: each for name, each in told.items() if name is not None},
            )
    return tuple(found[arm] for arm in arms)


def finalists(prospects: Sequence[Prospect], most: int) -> tuple[Prospect, ...]:
    """Return what is worth measuring, the most promising first.

    The leader overall; the leader of every other drafter, method or offload that is not far behind; the
    leader of every category; then whatever comes next, so that the neighbours of the leader take part.

    Args:
        prospects: every configuration.
        most: how many may be measured; always at least one is returned.
    """
    chosen: dict[RunSpec, Prospect] = {}
    for each in _wanted(prospects):
        if len(chosen) >= max(1, most):
            break
        if not any(_alike(each, other) for other in chosen.values()):
            chosen[each.arm] = each
    return tuple(chosen.values())


def _wanted(prospects: Sequence[Prospect]) -> Iterator[Prospect]:
    ranked = _ranked(prospects, None)
    leader = ranked[0]
    yield leader
    leaders: dict[tuple[object, ...], Prospect] = {}
    for each in ranked:
        leaders.setdefault(_source(each.arm), each)
    yield from (each for each in leaders.values() if _rate(each) >= _WORTH_TRYING * _rate(leader))
    for category in leader.by_category:
        yield _ranked(prospects, category)[0]
    yield from ranked


def _ranked(prospects: Sequence[Prospect], category: str | None) -> list[Prospect]:
    """Sort the fastest first; of those as fast the smaller draft."""
    return sorted(prospects, key=lambda each: (-_rate(each, category), _drafting(each.arm).n_max))


def _rate(prospect: Prospect, category: str | None = None) -> float:
    return prospect.forecast(category).tokens_per_s.value


def _alike(one: Prospect, other: Prospect) -> bool:
    """Whether two differ in nothing but a p_min that does next to nothing."""
    same = _source(one.arm) == _source(other.arm) and _drafting(one.arm).n_max == _drafting(other.arm).n_max
    return same and abs(_rate(one) / _rate(other) - 1) < _ALIKE


def _groups(arms: Sequence[RunSpec]) -> dict[tuple[object, ...], list[RunSpec]]:
    found: dict[tuple[object, ...], list[RunSpec]] = {}
    for arm in arms:
        found.setdefault(_source(arm), []).append(arm)
    return found


def _source(arm: RunSpec) -> tuple[object, ...]:
    return arm.drafter, _drafting(arm).method, arm.offload, arm.kv_type, arm.ubatch, arm.threads


def _drafting(arm: RunSpec) -> Drafting:
    assert arm.drafting is not None
    return arm.drafting


def drafting_arms(blocks: Sequence[Block]) -> tuple[RunSpec, ...]:
    """Return all configurations that draft."""
    return tuple(arm for block in blocks for arm in block.arms if arm.drafting is not None)
