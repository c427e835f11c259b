"""Axes to blocks of arms: every combination, each beside the target alone that it is compared with."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import product
from math import prod
from typing import Any, TypeVar, overload

from ggufspec.domain import (
    NO_PROMPT,
    Asking,
    CacheTypes,
    Chain,
    Drafting,
    DraftSampling,
    Experts,
    Layers,
    Method,
    ModelFile,
    ModelRun,
    NgramSettings,
    Offload,
    Pair,
    Prompt,
    Role,
    RunSpec,
    Runtime,
    Sampling,
    SplitMode,
    Traffic,
)
from ggufspec.errors import GgufspecError
from ggufspec.llama.command import canonical_ngram, draft_sizes
from ggufspec.modelfiles.compat import Head, usable_methods
from ggufspec.options import BenchOptions

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Block:
    """What is compared with one baseline; every arm is a specification that waits for its prompt."""

    arms: tuple[RunSpec, ...]  # the target alone comes first

    def on(self, prompt: Prompt) -> tuple[RunSpec, ...]:
        """Return the arms on one prompt."""
        return self.replace(prompt=prompt).arms

    def replace(self, **changes: Any) -> Block:
        """Return the block with the same changes of each arm."""
        return Block(arms=tuple(replace(arm, **changes) for arm in self.arms))

    def where(self, keep: Callable[[RunSpec], bool]) -> Block:
        """Return the block with some of its arms."""
        return Block(arms=tuple(filter(keep, self.arms)))


def axis(default: tuple[Any, ...], option: str, of: str) -> Any:
    """Declare an axis of a sweep, under the name of its option; ``of`` is where a bench's options have it."""
    return field(default=default, metadata={"option": option, "of": of})


def _axes() -> dict[str, str]:
    """Return the fields of the axes by their options."""
    return {of.metadata["option"]: of.name for of in fields(Sweep) if "option" in of.metadata}


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """Axes, each with the values to try; their product is what gets measured.

    ``targets``, ``target_layers`` and ``target_experts``, ``splits``, ``threads``, ``caches``, ``ubatches``,
    ``runtimes``, ``traffics``, ``rpcs`` (workers, see ``Offload``) and ``askings`` change the
    baseline and make a block each, except for what ``runtimes`` say of drafting; methods, drafters, their
    layers, experts and caches, draft sizes and ``p_mins`` are arms of every block. A method without a drafter
    knows no ``p_min``, and has an arm for each draft size at which it can draft at all. No draft sizes are
    each method's own. Of several numbers of layers that put a complete model on the GPU, by ``layer_counts``,
    only the first is tried, and of numbers of experts that are the same, by ``expert_layers``: all are of a
    dense model. Every block has its arms with each of ``builds``, so that builds are compared close together
    in time. With traffic, drafters are not measured alone.

    ``heads`` say which of the files hold a head: a drafter with one drafts by the head's method, and a target
    with layers for MTP drafts for itself. Draft sizes beyond the most that a head drafts are that size.
    ``ngrams`` are settings of the n-gram methods, alone or in ``chains``.
    """

    name: str  # of the pair, or of the targets together
    targets: tuple[ModelFile, ...]
    drafters: tuple[ModelFile, ...]
    n_predict: int
    context: int
    target_layers: tuple[Layers, ...] = axis(("auto",), "--ngl", "ngl")
    draft_layers: tuple[Layers, ...] = axis(("auto",), "--ngld", "ngld")
    target_experts: tuple[Experts | None, ...] = axis((), "--n-cpu-moe", "cpu_moe")
    draft_experts: tuple[Experts | None, ...] = axis((), "--n-cpu-moe-draft", "draft_cpu_moe")
    """Layers whose experts stay on the processor; none are those of ``offload``, as of ``split_modes``."""
    split_modes: tuple[SplitMode | None, ...] = axis((), "--split-mode", "split_modes")
    tensor_splits: tuple[tuple[float, ...], ...] = axis((), "--tensor-split", "tensor_split")
    expert_layers: Mapping[ModelFile, int] = field(default_factory=dict)  # 0 of a dense model
    layer_counts: Mapping[ModelFile, int] = field(default_factory=dict)  # with the output, as llama.cpp's
    methods: tuple[Method, ...] = (Method.DRAFT_MODEL,)
    chains: tuple[Chain, ...] = ()
    heads: Mapping[ModelFile, Head] = field(default_factory=dict)
    draft_sizes: tuple[int, ...] = axis((), "--draft", "draft")
    ngrams: tuple[NgramSettings, ...] = axis((NgramSettings(),), "--ngram", "ngram")
    p_mins: tuple[float, ...] = axis((0.0,), "--p-min", "p_min")
    draft_samplings: tuple[DraftSampling | None, ...] = axis((None,), "--draft-sampling", "draft_samplings")
    n_min: int = 0  # see ``Drafting``; for drafting with a model
    synthetic: tuple[float, ...] | None = None  # see ``shares``; for drafting with a model
    threads: tuple[int, ...] = axis((1,), "--threads", "threads")
    caches: tuple[CacheTypes | None, ...] = axis((None,), "--kv-type", "caches")
    draft_caches: tuple[CacheTypes | None, ...] = axis((None,), "--kv-type-draft", "draft_caches")
    """Of drafters; None for the target's."""
    ubatches: tuple[int | None, ...] = axis((None,), "--ubatch-size", "ubatch")
    runtimes: tuple[Runtime, ...] = axis((Runtime(),), "llama.cpp's settings", "runtimes")
    sampling: Sampling = field(default_factory=Sampling)
    offload: Offload = field(default_factory=Offload)  # of all arms; layers and caches are axes
    builds: tuple[str | None, ...] = (None,)  # see ``RunSpec.build``
    traffics: tuple[Traffic | None, ...] = (None,)
    rpcs: tuple[tuple[str, ...], ...] = ((),)
    askings: tuple[Asking, ...] = (Asking(),)

    @classmethod
    def axes_of(cls, request: BenchOptions) -> dict[str, Any]:
        """Return the values of each axis of which a bench names some."""
        named = {of.name: getattr(request, of.metadata["of"]) for of in fields(cls) if of.metadata}
        return {name: values for name, values in named.items() if values}

    def blocks(self) -> Blocks:
        """Return one block for every baseline, in the order of the axes."""
        return Blocks(self)

    def places_of(
        self, model: ModelFile, role: Role
    ) -> tuple[tuple[Layers, ...], tuple[Experts | None, ...]]:
        """Return the numbers of a model's layers to try, and of those whose experts stay on the processor."""
        layers, experts, run = (
            (self.target_layers, self.target_experts, self.offload.target)
            if role is Role.TARGET
            else (self.draft_layers, self.draft_experts, self.offload.drafter)
        )
        return (
            distinct_layers(layers, self.layer_counts.get(model)),
            distinct_layers(experts or (run.cpu_moe,), self.expert_layers.get(model)),
        )

    @property
    def splits(self) -> tuple[tuple[SplitMode | None, tuple[float, ...]], ...]:
        """How to split targets over GPUs: each mode with each of the proportions, where these matter."""
        modes = self.split_modes or (self.offload.split_mode,)
        shares = self.tensor_splits or (self.offload.tensor_split,)
        pairs = ((mode, () if mode is SplitMode.NONE else share) for mode, share in product(modes, shares))
        return tuple(dict.fromkeys(pairs))

    @property
    def on_processor(self) -> Sweep:
        """The sweep of a llama.cpp without a GPU, where places are all the same: one of each, 0 if named."""
        return replace(
            self,
            target_layers=_one(self.target_layers),
            draft_layers=_one(self.draft_layers),
            target_experts=_one(self.target_experts),
            draft_experts=_one(self.draft_experts),
            split_modes=self.split_modes[:1],
            tensor_splits=self.tensor_splits[:1],
        )

    @property
    def ways(self) -> tuple[Chain, ...]:
        """Everything that may draft: each method alone, then the chains."""
        return (*map(Chain, self.methods), *self.chains)

    def drafters_of(self, target: ModelFile, method: Method) -> tuple[ModelFile | None, ...]:
        """Return the files that draft for a target by a method; None for drafting without a second file."""
        if not method.drafts_with_model:
            return (None,)
        files = tuple(
            drafter for drafter in self.drafters if method in usable_methods(self.heads.get(drafter))
        )
        in_target = method is Method.DRAFT_MTP and target in self.heads
        return (None,) if in_target and not files else files

    def drafting(self) -> Iterator[tuple[ModelFile, ModelRun]]:
        """Yield each drafter at each of its places; nothing where no method needs one."""
        methods = {way.method for way in self.ways}
        for drafter in self.drafters:
            if methods.intersection(usable_methods(self.heads.get(drafter))):
                for layers, kept in product(*self.places_of(drafter, Role.DRAFTER)):
                    yield drafter, replace(self.offload.drafter, layers=layers, cpu_moe=kept)

    def runs_alone(self, drafter: ModelFile) -> bool:
        """Whether a drafter is measured without its target: a head cannot run alone, nor see images."""
        if any(runtime.mmproj is not None for runtime in self.runtimes):  # which is of the target's width
            return False
        is_drafting = any(way.method is Method.DRAFT_MODEL for way in self.ways)
        return is_drafting and Method.DRAFT_MODEL in usable_methods(self.heads.get(drafter))

    def base_runtimes(self) -> tuple[Runtime, ...]:
        """Return the settings of targets alone."""
        return tuple(dict.fromkeys(runtime.without_drafting for runtime in self.runtimes))

    def caches_beside(self, target: CacheTypes | None) -> tuple[CacheTypes | None, ...]:
        """Return the caches of drafters beside a target with these; None for the same.

        Each configuration has one form, so that equal ones are one arm.
        """
        return tuple(dict.fromkeys(None if own == target else own for own in self.draft_caches))

    def drafting_runtimes(self, alone: Runtime, method: Method) -> tuple[Runtime, ...]:
        """Return the settings of runs that draft by a method, beside a target with these settings.

        Only heads sample on the backend.
        """
        beside = [runtime for runtime in self.runtimes if runtime.without_drafting == alone]
        if not method.is_head:
            beside = [replace(runtime, draft_backend_sampling=None) for runtime in beside]
        return tuple(dict.fromkeys(beside))

    def draftings(self, target: ModelFile, way: Chain, drafter: ModelFile | None) -> tuple[Drafting, ...]:
        """Return each way to draft for a target by a chain, with each of its draft sizes and settings.

        Args:
            target: the model that writes the text.
            way: what drafts.
            drafter: the file that drafts; None where there is none.
        """
        head = self.heads.get(drafter or target) if way.method.is_head else None
        most = head.most if head is not None else None
        is_model = way.method.drafts_with_model
        p_mins = self.p_mins if is_model and (head is None or head.knows_p_min) else (0.0,)
        samplings = self.draft_samplings if way.method.samples_drafts else (None,)
        values: dict[Drafting, None] = {}
        for ngram in self.ngrams:
            sizes = draft_sizes(way.method, self.draft_sizes, ngram)
            kept = canonical_ngram(way, ngram)
            for size, p_min, sampling in product(sizes, p_mins, samplings):
                n_max = size if most is None else min(size, most)
                drafting = Drafting(
                    n_max=n_max,
                    method=way.method,
                    n_min=self.n_min if is_model else 0,
                    p_min=p_min,
                    synthetic=shares(self.synthetic, n_max) if is_model else None,
                    first=way.first,
                    ngram=kept,
                    sampling=sampling,
                )
                values[drafting] = None
        return tuple(values)

    def thinned(self, most: int) -> Sweep:
        """Return the sweep with at most so many values of each axis, evenly chosen, and with all models."""
        thinned: dict[str, Any] = {}
        for name in _axes().values():
            values = getattr(self, name)
            thinned[name] = values[:: max(1, -(-len(values) // most))]
        return replace(self, **thinned)

    def arms(self, alone: RunSpec) -> Iterator[RunSpec]:
        """Yield the target alone, each drafter alone, and drafting; what an arm ignores has its default."""
        for build in self.builds:
            yield from self._arms_beside(replace(alone, build=build))

    def alone(self, values: Iterable[Any]) -> RunSpec:
        """Return the run of a target alone, with a value of each axis that changes it, see ``Blocks``."""
        target, layers, experts, split, runtime, caches, ubatch, threads, traffic, rpc, asking = values
        placed = replace(self.offload.target, layers=layers, cpu_moe=experts, caches=caches)
        return RunSpec(
            pair=Pair(name=self.name, target=target),
            role=Role.TARGET,
            prompt=NO_PROMPT,
            n_predict=self.n_predict,
            context=self.context,
            threads=threads,
            offload=replace(
                self.offload.target_alone, target=placed, split_mode=split[0], tensor_split=split[1], rpc=rpc
            ),
            sampling=self.sampling,
            ubatch=ubatch,
            runtime=runtime,
            traffic=traffic,
            asking=asking,
        )

    def _arms_beside(self, alone: RunSpec) -> Iterator[RunSpec]:
        """Yield a target alone, and all arms that are compared with it."""
        yield alone
        target, caches = alone.pair.target, self.caches_beside(alone.offload.target.caches)
        for drafter, placed in self.drafting():
            pair = Pair(name=self.name, target=target, draft=drafter)
            both = replace(alone, pair=pair, role=Role.DRAFTING)
            beside = [_with_drafter(both, replace(placed, caches=own)) for own in caches]
            if alone.traffic is None and self.runs_alone(drafter):
                yield from (spec.drafter_alone for spec in beside)
            for way, spec in product(self.ways, beside):
                if drafter in self.drafters_of(target, way.method):
                    yield from self._drafting_arms(spec, way, drafter)
        for way in self.ways:
            if None in self.drafters_of(target, way.method):
                for own in caches if way.method.drafts_with_model else (None,):
                    spec = _with_drafter(replace(alone, role=Role.DRAFTING), ModelRun(caches=own))
                    yield from self._drafting_arms(spec, way, None)

    def _drafting_arms(self, spec: RunSpec, way: Chain, drafter: ModelFile | None) -> Iterator[RunSpec]:
        settings = self.drafting_runtimes(spec.runtime, way.method)
        for runtime, drafting in product(settings, self.draftings(spec.pair.target, way, drafter)):
            yield replace(spec, runtime=runtime, drafting=drafting)


class Blocks(Sequence[Block]):
    """The blocks of a sweep. Each is made when it is asked for: a sweep may have a million of them."""

    def __init__(self, sweep: Sweep) -> None:
        self.sweep = sweep
        loaded = sweep.splits, sweep.base_runtimes(), sweep.caches, sweep.ubatches
        asked = sweep.threads, sweep.traffics, sweep.rpcs, sweep.askings
        self._axes = [
            ((target,), *sweep.places_of(target, Role.TARGET), *loaded, *asked) for target in sweep.targets
        ]

    def __len__(self) -> int:
        return sum(prod(map(len, axes)) for axes in self._axes)

    @overload
    def __getitem__(self, index: int) -> Block: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[Block, ...]: ...

    def __getitem__(self, index: int | slice) -> Block | tuple[Block, ...]:
        if isinstance(index, slice):
            return tuple(self[place] for place in range(*index.indices(len(self))))
        place = range(len(self))[index]
        for axes in self._axes:
            size = prod(map(len, axes))
            if place < size:
                break
            place -= size
        values: list[Any] = []
        for axis in reversed(axes):
            place, rest = divmod(place, len(axis))
            values.append(axis[rest])
        return Block(arms=tuple(self.sweep.arms(self.sweep.alone(reversed(values)))))

    @property
    def n_arms(self) -> Counter[Role]:
        """How many different arms there are; a drafter alone is the same beside every target."""
        sweep, bases = self.sweep, self.sweep.base_runtimes()
        beside_target = prod(map(len, (sweep.splits, sweep.ubatches, sweep.threads, sweep.askings)))
        pairs = [(target, own) for target in sweep.caches for own in sweep.caches_beside(target)]
        alone = sum(sweep.runs_alone(drafter) for drafter, _ in sweep.drafting())
        without_traffic = sum(traffic is None for traffic in sweep.traffics)
        drafting = 0
        for target in sweep.targets:
            sources = (*sweep.drafting(), (None, ModelRun()))
            per_base = sum(
                len(sweep.draftings(target, way, drafter))
                * len(sweep.drafting_runtimes(base, way.method))
                * len(pairs if way.method.drafts_with_model else sweep.caches)
                for base, way, (drafter, _) in product(bases, sweep.ways, sources)
                if drafter in sweep.drafters_of(target, way.method)
            )
            places = prod(map(len, sweep.places_of(target, Role.TARGET)))
            per_target = places * beside_target * len(sweep.traffics) * len(sweep.rpcs)
            drafting += per_base * per_target
        counts = {
            Role.TARGET: len(self),
            Role.DRAFTER: alone
            * beside_target
            * without_traffic
            * len({replace(sweep.offload, rpc=rpc).drafter_alone.rpc for rpc in sweep.rpcs})
            * len({own or target for target, own in pairs})
            * len(bases),
            Role.DRAFTING: drafting,
        }
        return Counter({role: count * len(sweep.builds) for role, count in counts.items()})


def _with_drafter(spec: RunSpec, drafter: ModelRun) -> RunSpec:
    return replace(spec, offload=replace(spec.offload, drafter=drafter))


def _one(values: tuple[T, ...]) -> tuple[T, ...]:
    """Return one of some places: none on a GPU, if that is among them."""
    return tuple(value for value in values if value == 0) or values[:1]


def distinct_layers(asked: Sequence[T], count: int | None) -> tuple[T, ...]:
    """Return the numbers of layers without those that mean the same as an earlier one.

    Args:
        asked: numbers of layers, or of those with experts on the processor; ``all``, ``auto`` or None.
        count: how many there are; None where nobody knows.
    """
    first: dict[object, T] = {}
    for layers in asked:
        is_all = count is not None and isinstance(layers, int) and layers >= count
        first.setdefault("all" if is_all else layers, layers)
    return tuple(first.values())


def shares(asked: tuple[float, ...] | None, n_max: int) -> tuple[float, ...] | None:
    """Return the shares of rounds that accept a draft's first, second, … token, see ``Drafting.synthetic``.

    Args:
        asked: one number is every token's chance, once the tokens before it were accepted; several are the
            shares themselves, of which a shorter draft has the first ones. None without synthetic acceptance.
        n_max: γ.

    Raises:
        GgufspecError: shares increase with position, or are fewer than the draft has tokens.
    """
    if asked is None:
        return None
    inside = all(0 <= rate <= 1 for rate in asked)  # NaN is nowhere
    if not asked or not inside or list(asked) != sorted(asked, reverse=True):
        raise GgufspecError(
            "synthetic acceptances go from 0 to 1 and must not increase with position, not "
            f"{', '.join(map(str, asked))}",
            "give each token's chance (0.7), or the share of rounds that accept each position (0.9,0.8,0.7)",
        )
    if len(asked) == 1:
        return tuple(round(asked[0] ** place, 6) for place in range(1, n_max + 1))
    if len(asked) < n_max:
        raise GgufspecError(
            f"synthetic acceptance is given for {len(asked)} positions, and γ {n_max} has more",
            "give as many shares as the largest --draft, or one chance for every token",
        )
    return asked[:n_max]


def sizes(sweep: Sweep) -> dict[str, int]:
    """Return how many values each axis with several has, by its option, the longest axis first."""
    traffics = [traffic for traffic in sweep.traffics if traffic]
    targets = [sweep.places_of(model, Role.TARGET) for model in sweep.targets]
    drafters = [sweep.places_of(model, Role.DRAFTER) for model in sweep.drafters]
    axes: dict[str, Collection[object]] = {
        "--target": sweep.targets,
        "--draft-model": sweep.drafters,
        "--method": sweep.ways,
        **{option: getattr(sweep, name) for option, name in _axes().items()},
        "--ngl": max((layers for layers, _ in targets), key=len),
        "--ngld": max((layers for layers, _ in drafters), key=len, default=()),
        "--n-cpu-moe": max((experts for _, experts in targets), key=len),
        "--n-cpu-moe-draft": max((experts for _, experts in drafters), key=len, default=()),
        "--parallel": {traffic.users for traffic in traffics},
        "--rate": {traffic.rate for traffic in traffics},
        "--depth": {traffic.depth for traffic in traffics},
        "--rpc": sweep.rpcs,
        "--constrain": {asking.constrain for asking in sweep.askings},
        "--reasoning": {asking.reasoning for asking in sweep.askings},
    }
    counts = {option: len(values) for option, values in axes.items() if len(values) > 1}
    return dict(sorted(counts.items(), key=lambda axis: -axis[1]))
