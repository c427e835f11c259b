"""Traces × cost curves -> a forecast of every configuration, and which of them to measure."""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from ggufspec import engines, forecast
from ggufspec.domain import (
    Drafting,
    DraftSampling,
    HeadFile,
    Method,
    ModelFile,
    NgramSettings,
    Program,
    Prompt,
    RunSpec,
    Traffic,
)
from ggufspec.engines.library import DraftLimits
from ggufspec.errors import GgufspecError
from ggufspec.forecast import concurrency, trace
from ggufspec.forecast.costs import CostCurve
from ggufspec.forecast.profiles import TracedTexts
from ggufspec.measure import Block
from ggufspec.modelfiles import compat, gguf
from ggufspec.tuning.values import Curves, Prospect, cost_setup

_WORTH_TRYING = 0.93  # of the leader's forecast; forecasts are off by 5 % in the median, 10 % at worst
_FURTHER = 2  # draft sizes that are looked at beyond the largest, each time that it leads
_OTHER_BLOCKS = ("selector_top_k", "hyper_connection.count", "rope.dimension_sections")
"""Keys of DFlash 2, of DSpark for DeepSeek 4, and of heads whose tokens have several positions."""
_ALIKE = 0.01  # p_min that changes the forecast by less is not tried at the same draft size


@dataclass(frozen=True, kw_only=True)
class Traces:
    """What was traced, and how the engine that is forecast goes over it.

    Attributes:
        texts: the traces of every prompt.
        drafters: in the order of the traces.
        engine: whose way of drafting is forecast.
        n_predict: tokens of each prompt.
        build: llama.cpp's build number.
    """

    texts: Sequence[TracedTexts]
    drafters: Sequence[ModelFile]
    engine: str
    n_predict: int
    build: int | None

    @property
    def prompts(self) -> tuple[Prompt, ...]:
        """The traced prompts."""
        return tuple(text.prompt for text in self.texts)

    @property
    def depths(self) -> tuple[int, int]:
        """The fewest tokens of a prompt, and the most of a prompt with its answer."""
        traces = [text.target_trace for text in self.texts]
        return min(each.n_prompt for each in traces), max(each.n_prompt + len(each.tokens) for each in traces)

    def of(self, arm: RunSpec, text: TracedTexts) -> trace.DraftTrace:
        """Return the trace of what drafts in a configuration."""
        source = arm.draft_source
        return text.target_trace if source is None else text.by_drafter[self.drafters.index(source)]

    def run(self, arm: RunSpec) -> trace.TracedRun:
        """Return a configuration's run over a trace, as the engine makes it."""
        program = engines.ENGINES[self.engine]
        return trace.TracedRun(
            drafting=arm.drafts_by,
            program=program,
            n_predict=self.n_predict,
            build=self.build,
            samples_exactly=samples_exactly(arm, self.engine, program),
        )


def can_forecast(
    arm: RunSpec, program: Program, build: int | None, *, heads: Collection[Method], users: int = 1
) -> bool:
    """Whether a configuration can be forecast at all.

    Args:
        arm: the configuration.
        program: that serves it.
        build: the number of its llama.cpp.
        heads: the methods whose heads the library feeds.
        users: at once.
    """
    drafting = arm.drafts_by
    if drafting.first or drafting.ngram != NgramSettings() or arm.offload.fit:
        return False  # the library cannot fit layers to memory, so nothing tells where they would be
    # The chance that a sampled draft is accepted is traced of draft models. It is not known where a p-min
    # ends a draft, and several users are computed round by round, with what each one accepts.
    is_traced = drafting.method is Method.DRAFT_MODEL and not drafting.p_min and users == 1
    if drafting.sampling is DraftSampling.PROBABILISTIC and not is_traced:
        return False
    if drafting.method.drafts_with_model:
        source = arm.draft_source
        assert source is not None
        cards = (_read(model.path) for model in (arm.pair.target, source))
        can_go_back = not any(card is not None and card.is_recurrent for card in cards)
        if not isinstance(source, HeadFile):
            return can_go_back
        is_modelled = users == 1 or not source.method.drafts_block
        return can_go_back and is_modelled and _can_follow(source, heads)
    return trace.why_not(drafting, program, build) is None


def can_replay(arm: RunSpec, program: Program, build: int | None) -> bool:
    """Whether the rounds of one run forecast smaller drafts, see ``forecast.replaying``.

    Only streams of llama-server tell rounds in their order.
    """
    drafting = arm.drafts_by
    is_greedy = not drafting.p_min and drafting.sampling is not DraftSampling.PROBABILISTIC
    is_followed = drafting.method is Method.DRAFT_MODEL and can_forecast(arm, program, build, heads=())
    return program is Program.SERVER and is_greedy and is_followed and drafting.synthetic is None


def _can_follow(source: HeadFile, heads: Collection[Method]) -> bool:
    """Whether a library that feeds some kinds of heads can draft with this one as programs do.

    It cannot with several layers for MTP, nor with one that reads the target's cache, nor with the kinds of
    DFlash and DSpark whose graphs are not those of the paper.
    """
    card = _read(source.path)
    head = None if card is None else compat.read_head(card)
    kind = Method.DRAFT_DFLASH if source.method.drafts_block else source.method  # DSpark is fed alike
    if kind not in heads or card is None or head is None:
        return False
    if source.method.drafts_block:
        return not any(f"dflash.{key}" in card.metadata for key in _OTHER_BLOCKS)
    return source.method is Method.DRAFT_EAGLE3 or (head.most is None and not head.reads_cache)


def can_be_longer(arm: RunSpec) -> bool:
    """Whether a larger draft size would be another run. A head lowers what it was not trained for."""
    source = arm.draft_source
    card = _read(source.path) if isinstance(source, HeadFile) else None
    head = None if card is None else compat.read_head(card)
    return head is None or head.most is None or arm.drafts_by.n_max < head.most


@cache
def _read(path: Path | None) -> gguf.ModelCard | None:
    """Return the header of a model, once for all configurations; None where it cannot be read."""
    try:
        return None if path is None else gguf.read_card(path)
    except (OSError, GgufspecError):
        return None


def draft_limits(arms: Sequence[RunSpec], n_predict: int) -> DraftLimits:
    """Return what runs of ``n_predict`` tokens may ask of a trace; γ = 1 where no configuration drafts."""
    settings = [arm.drafts_by for arm in arms]
    return DraftLimits(
        sizes=tuple(sorted({drafting.n_max for drafting in settings})) or (1,),
        p_mins=tuple(sorted({drafting.p_min for drafting in settings})) or (0.0,),
        starts=(0, 1, n_predict),
    )


def drafts_inside(drafters: Sequence[ModelFile], target: ModelFile) -> bool:
    """Whether one of the drafters is a head whose layers lie in the target's own file."""
    return any(isinstance(drafter, HeadFile) and drafter.path == target.path for drafter in drafters)


def with_own_size(group: Sequence[RunSpec]) -> RunSpec:
    """Return the one with its method's default draft size, or the next smaller, of one source."""
    drafting = group[0].drafts_by
    default = trace.draft_sizes(drafting.method, (), drafting.ngram)[0]
    by_size = {arm.drafts_by.n_max: arm for arm in group}
    return by_size[max((size for size in by_size if size <= default), default=min(by_size))]


def in_measuring_order(arms: Sequence[RunSpec]) -> tuple[RunSpec, ...]:
    """Return the configurations with the least p_min, in the order in which they are measured unforecast.

    Every source comes first with its own draft size. Then sources take turns, each with the size that is
    farthest, by ratio, from those before it: so few sizes show best where the fastest one lies.
    """
    ladders = []
    for group in groups(arms).values():
        least = min(arm.drafts_by.p_min for arm in group)
        waiting = [arm for arm in group if arm.drafts_by.p_min == least]
        ladder = [with_own_size(waiting)]

        def distance(arm: RunSpec, ladder: Sequence[RunSpec] = ladder) -> float:
            return min(abs(math.log(arm.drafts_by.n_max / other.drafts_by.n_max)) for other in ladder)

        while len(ladder) < len(waiting):
            ladder.append(max(waiting, key=distance))
        ladders.append(ladder)
    turns = itertools.zip_longest(*ladders)
    return tuple(arm for turn in turns for arm in turn if arm is not None)


def unmeasured_neighbours(
    arm: RunSpec, arms: Sequence[RunSpec], measured: Collection[RunSpec]
) -> list[RunSpec]:
    """Return what may be faster than the fastest measured configuration, and was not measured itself.

    That is the middle of the draft sizes between it and the next smaller measured one, that of those up to
    the next larger one, and each other p_min at its own draft size.
    """
    drafting = arm.drafts_by
    alike = [other for other in arms if source(other) == source(arm)]
    sizes = {other.drafts_by.n_max: other for other in alike if other.drafts_by.p_min == drafting.p_min}
    known = [size for size, other in sizes.items() if other in measured and size != drafting.n_max]
    lower = max((size for size in known if size < drafting.n_max), default=0)
    upper = min((size for size in known if size > drafting.n_max), default=max(sizes) + 1)
    gaps = (range(lower + 1, drafting.n_max), range(drafting.n_max + 1, upper))
    between = [[sizes[size] for size in gap if size in sizes] for gap in gaps]
    others = [other for other in alike if other.drafts_by.n_max == drafting.n_max and other not in measured]
    return [*(gap[len(gap) // 2] for gap in between if gap), *others]


def samples_exactly(arm: RunSpec, engine: str, program: Program) -> bool:
    """Whether an engine draws drafts from the drafter's distribution, and rejects some of them.

    The library and the tree program do, and llama-server where it was asked to. The others sample from the
    target alone and compare, so that the match bits of a sampled text hold.
    """
    if program is Program.SERVER:
        return arm.drafts_by.sampling is DraftSampling.PROBABILISTIC
    return not arm.sampling.greedy and (engine == "inprocess" or program is Program.TREE)


def beyond_edge(candidates: Sequence[Prospect], larger: Sequence[RunSpec]) -> list[RunSpec]:
    """Return larger draft sizes where the best forecast is that of the largest one; else nothing.

    Args:
        candidates: the forecasts.
        larger: configurations with larger draft sizes.
    """
    if not candidates:
        return []
    leader = _ranked(candidates, None)[0].arm
    largest = max(
        prospect.arm.drafts_by.n_max for prospect in candidates if source(prospect.arm) == source(leader)
    )
    if leader.drafts_by.n_max < largest:
        return []
    return [arm for arm in larger if source(arm) == source(leader) and arm.drafts_by.n_max > largest]


def next_larger(arm: RunSpec, arms: Sequence[RunSpec]) -> list[RunSpec]:
    """Return the two next larger draft sizes of the same drafter, method, offload and p_min."""
    drafting = arm.drafts_by
    larger = {
        other.drafts_by.n_max: other
        for other in arms
        if source(other) == source(arm)
        and other.drafts_by.p_min == drafting.p_min
        and other.drafts_by.n_max > drafting.n_max
    }
    return [larger[size] for size in sorted(larger)[:_FURTHER]]


def prospects(
    arms: Sequence[RunSpec],
    traces: Traces,
    curves: Curves,
    traffic: Traffic | None = None,
    *,
    text_sd: float = 0.0,
    disturbance: float = 0.0,
) -> tuple[Prospect, ...]:
    """Forecast every configuration that drafts.

    Args:
        arms: the configurations; all can be forecast.
        traces: of every prompt.
        curves: the cost curves by offload and drafter.
        traffic: what several users send; None for one request after another. With it, there are no forecasts
            by category, because requests of all categories share every step of the server.
        text_sd: see ``forecast.forecasts``.
        disturbance: see ``forecast.forecasts``.
    """
    made: dict[RunSpec, Prospect] = {}
    for group in groups(arms).values():
        curve = curves[cost_setup(group[0])]
        results: Iterator[forecast.Forecast]
        if traffic is None:
            walked = [traces.of(group[0], text) for text in traces.texts]
            runs = [*map(traces.run, group)]
            results = forecast.forecasts(walked, curve, runs, text_sd=text_sd, disturbance=disturbance)
        else:
            results = (served.forecast for served in serve_users(group, traces, curve, traffic))
        made |= {prospect.arm: prospect for prospect in assign(group, results)}
    return tuple(made[arm] for arm in arms)


def serve_users(
    arms: Sequence[RunSpec], traces: Traces, curve: CostCurve, traffic: Traffic, *, depth: int = 0
) -> Iterator[concurrency.UsersForecast]:
    """Return the forecasts of one source of drafts, for what several users send behind other text."""
    first = arms[0]
    by_id = {text.prompt.id: traces.of(first, text) for text in traces.texts}
    return concurrency.forecasts_of_users(
        [by_id[prompt.id] for prompt in traffic.prompts],
        curve,
        map(traces.run, arms),
        users=traffic.users,
        n_requests=traffic.n_requests,
        depth=depth,
        batch=first.runtime.batch or concurrency.BATCH,
        ubatch=first.ubatch or concurrency.UBATCH,
    )


def assign(arms: Sequence[RunSpec], results: Iterable[forecast.Forecast]) -> Iterator[Prospect]:
    """Yield each configuration of a source with its forecasts."""
    by_drafting: dict[Drafting, dict[str | None, forecast.Forecast]] = {}
    for result in results:
        by_drafting.setdefault(result.drafting, {})[result.category] = result
    for arm in arms:
        by_category = by_drafting[arm.drafts_by]
        yield Prospect(
            arm=arm,
            overall=by_category[None],
            by_category={name: result for name, result in by_category.items() if name is not None},
        )


def with_round_ranges(prospects: Sequence[Prospect], traces: Traces, *, most: int) -> tuple[Prospect, ...]:
    """Return the configurations; the ``most`` fastest say how many rounds there may be, see ``round_range``.

    Args:
        prospects: of greedy runs, one request at a time.
        traces: of every prompt.
        most: how many.
    """
    ranged = {}
    for prospect in _ranked(prospects, None)[:most]:
        walked = [traces.of(prospect.arm, text) for text in traces.texts]
        ranges = forecast.round_range(walked, prospect.overall)
        ranged[prospect.arm] = replace(prospect, overall=replace(prospect.overall, round_range=ranges))
    return tuple(ranged.get(prospect.arm, prospect) for prospect in prospects)


def finalists(prospects: Sequence[Prospect], most: int) -> tuple[Prospect, ...]:
    """Return the configurations to measure, the fastest forecast first.

    These are the leader overall; the leader of every other drafter, method or offload that is not far behind;
    the leader of every category; then the next fastest, so that the neighbours of the leader are included.

    Args:
        prospects: every configuration.
        most: how many may be measured; at least one is returned where any was forecast.
    """
    chosen: dict[RunSpec, Prospect] = {}
    for prospect in _by_priority(prospects):
        if len(chosen) >= max(1, most):
            break
        if not any(_alike(prospect, other) for other in chosen.values()):
            chosen[prospect.arm] = prospect
    return tuple(chosen.values())


def _by_priority(prospects: Sequence[Prospect]) -> Iterator[Prospect]:
    ranked = _ranked(prospects, None)
    if not ranked:
        return
    leader = ranked[0]
    yield leader
    leaders: dict[tuple[object, ...], Prospect] = {}
    for prospect in ranked:
        leaders.setdefault(source(prospect.arm), prospect)
    least = _WORTH_TRYING * _rate(leader)
    yield from (prospect for prospect in leaders.values() if _rate(prospect) >= least)
    for category in leader.by_category:
        yield _ranked(prospects, category)[0]
    yield from ranked


def _ranked(prospects: Sequence[Prospect], category: str | None) -> list[Prospect]:
    """Sort by forecast rate, the fastest first; equal ones by draft size."""
    return sorted(prospects, key=lambda prospect: (-_rate(prospect, category), prospect.arm.drafts_by.n_max))


def _rate(prospect: Prospect, category: str | None = None) -> float:
    return prospect.forecast(category).tokens_per_s.value


def _alike(first: Prospect, other: Prospect) -> bool:
    """Whether two differ only in p_min, and hardly in their forecasts."""
    same = source(first.arm) == source(other.arm) and first.arm.drafts_by.n_max == other.arm.drafts_by.n_max
    return same and abs(_rate(first) / _rate(other) - 1) < _ALIKE


def groups(arms: Sequence[RunSpec]) -> dict[tuple[object, ...], list[RunSpec]]:
    """Return the configurations by their source."""
    by_source: dict[tuple[object, ...], list[RunSpec]] = {}
    for arm in arms:
        by_source.setdefault(source(arm), []).append(arm)
    return by_source


def source(arm: RunSpec) -> tuple[object, ...]:
    """Return what drafts and where: configurations that differ only in draft size and p_min share it."""
    how = replace(arm.drafts_by, n_max=0, p_min=0.0)
    return arm.drafter, how, arm.offload, arm.ubatch, arm.threads, arm.runtime


def drafting_arms(blocks: Sequence[Block]) -> tuple[RunSpec, ...]:
    """Return all configurations that draft."""
    return tuple(arm for block in blocks for arm in block.arms if arm.drafting is not None)
