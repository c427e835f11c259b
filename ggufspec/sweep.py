"""Axes to an ordered list of runs: slow axes outermost, and what is compared close together in time."""

from __future__ import annotations

import random
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field, replace
from itertools import product

from ggufspec.domain import (
    Drafting,
    Layers,
    Method,
    ModelFile,
    Offload,
    Pair,
    Prompt,
    Role,
    RunSpec,
    Sampling,
)
from ggufspec.errors import GgufspecError
from ggufspec.trace import draft_sizes

_ANCHOR_EVERY = 24  # measured runs between two looks at the same configuration
_NO_PROMPT = Prompt(id="", text="")


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One run to make: what, which repetition of it, and whether it only warms up or watches for drift."""

    spec: RunSpec
    repeat: int
    warmup: bool = False
    anchor: bool = False


@dataclass(frozen=True, kw_only=True)
class Block:
    """What is compared with one baseline; every arm is a specification that waits for its prompt."""

    arms: tuple[RunSpec, ...]  # the target alone comes first

    def on(self, prompt: Prompt) -> tuple[RunSpec, ...]:
        """Return the arms on one prompt."""
        return tuple(replace(arm, prompt=prompt) for arm in self.arms)


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """Axes, each with the values to try; their product is what gets measured.

    ``targets`` and ``target_layers``, ``threads``, ``kv_types``, ``ubatches`` change the baseline and make a
    block each; methods, drafters, their layers, draft sizes and ``p_mins`` are arms of every block. A method
    without a drafter knows no ``p_min``, and has an arm for each draft size at which it can draft at all. No
    draft sizes are each method's own.
    """

    name: str  # of the pair, or of the targets together
    targets: tuple[ModelFile, ...]
    drafters: tuple[ModelFile, ...]
    n_predict: int
    context: int
    target_layers: tuple[Layers, ...] = ("auto",)
    draft_layers: tuple[Layers, ...] = ("auto",)
    methods: tuple[Method, ...] = (Method.DRAFT_MODEL,)
    draft_sizes: tuple[int, ...] = ()
    p_mins: tuple[float, ...] = (0.0,)
    synthetic: tuple[float, ...] | None = None  # see ``shares``; for drafting with a model
    threads: tuple[int, ...] = (1,)
    kv_types: tuple[str | None, ...] = (None,)
    ubatches: tuple[int | None, ...] = (None,)
    sampling: Sampling = field(default_factory=Sampling)
    offload: Offload = field(default_factory=Offload)  # of all arms; the layers are axes

    def blocks(self) -> tuple[Block, ...]:
        """Return one block for every baseline, in the order of the axes."""
        axes = product(self.targets, self.target_layers, self.kv_types, self.ubatches, self.threads)
        return tuple(Block(arms=tuple(self._arms(*values))) for values in axes)

    def _arms(
        self, target: ModelFile, layers: Layers, kv_type: str | None, ubatch: int | None, threads: int
    ) -> Iterator[RunSpec]:
        """Yield the target alone, each drafter alone, and drafting; what an arm ignores has its default."""
        alone = RunSpec(
            pair=Pair(name=self.name, target=target),
            role=Role.TARGET,
            prompt=_NO_PROMPT,
            n_predict=self.n_predict,
            context=self.context,
            threads=threads,
            offload=replace(self.offload.target_alone, target_layers=layers),
            sampling=self.sampling,
            kv_type=kv_type,
            ubatch=ubatch,
        )
        yield alone
        drafters = self.drafters if Method.DRAFT_MODEL in self.methods else ()
        for drafter, draft_layers in product(drafters, self.draft_layers):
            pair = Pair(name=self.name, target=target, draft=drafter)
            offload = replace(self.offload, target_layers=layers, draft_layers=draft_layers)
            yield replace(alone, pair=pair, role=Role.DRAFTER, offload=offload.drafter_alone)
            sizes = draft_sizes(Method.DRAFT_MODEL, self.draft_sizes)
            for n_max, p_min in product(sizes, self.p_mins):
                yield replace(
                    alone,
                    pair=pair,
                    role=Role.DRAFTING,
                    offload=offload,
                    drafting=Drafting(n_max=n_max, p_min=p_min, synthetic=shares(self.synthetic, n_max)),
                )
        for method in (method for method in self.methods if not method.needs_drafter):
            for n_max in draft_sizes(method, self.draft_sizes):
                yield replace(alone, role=Role.DRAFTING, drafting=Drafting(n_max=n_max, method=method))


def shares(asked: tuple[float, ...] | None, n_max: int) -> tuple[float, ...] | None:
    """Return the shares of rounds that accept a draft's first, second, … token, see ``Drafting.synthetic``.

    Args:
        asked: one number is every token's chance, once the tokens before it were accepted; several are the
            shares themselves, of which a shorter draft has the first ones. None without synthetic acceptance.
        n_max: γ.

    Raises:
        GgufspecError: they are no shares that never rise, or fewer than the draft has tokens.
    """
    if asked is None:
        return None
    inside = all(0 <= rate <= 1 for rate in asked)  # NaN is nowhere
    if not asked or not inside or list(asked) != sorted(asked, reverse=True):
        raise GgufspecError(
            f"synthetic acceptances go from 0 to 1 and never rise, not {', '.join(map(str, asked))}",
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


@dataclass(frozen=True, kw_only=True)
class Suite:
    """Everything one bench measures: blocks, prompts, how often, and when to stop.

    With ``precision`` (a relative half width of the speed-ups' intervals, such as 0.02), ``repeats`` is only
    the least; ``max_time_s`` ends the bench in any case.
    """

    blocks: tuple[Block, ...]
    prompts: tuple[Prompt, ...]
    warmup_prompts: tuple[Prompt, ...] = ()
    repeats: int = 3
    warmups: int = 1
    seed: int = 1
    precision: float | None = None
    max_time_s: float | None = None

    def warm(self, block: Block) -> Iterator[Cell]:
        """Yield the discarded first runs of a block: every arm on the warm-up prompts, else on the first."""
        prompts = self.warmup_prompts or self.prompts[:1]
        for repeat in range(self.warmups):
            for arm in range(len(block.arms)):
                for prompt in prompts:
                    yield Cell(spec=block.on(prompt)[arm], repeat=repeat, warmup=True)

    def once(
        self, block: Block, repeat: int, *, load_key: Callable[[RunSpec], Hashable], capacity: int | None
    ) -> Iterator[Cell]:
        """Yield one repeat of a block in a random order that the seed fixes.

        Arms of one prompt are neighbours in time, so that slow drift (heat, other work) touches all of them
        alike; repeats are far apart, so that their spread shows that drift. Where the engine cannot hold all
        models of a block at once, the arms are outermost instead, so that each is loaded once a repeat.

        Args:
            block: what to measure.
            repeat: which repeat, from 0.
            load_key: what must be loaded for a run; None for whatever is loaded anew anyway.
            capacity: how many such loads can be held at once; None for any number.
        """
        order = random.Random(f"{self.seed}/{repeat}")  # noqa: S311  # an order, not a secret
        prompts = order.sample(self.prompts, len(self.prompts))
        loads = list(dict.fromkeys(load_key(arm) for arm in block.arms))
        if capacity is not None and len(loads) > capacity:
            for load in order.sample(loads, len(loads)):
                for prompt in prompts:
                    for spec in block.on(prompt):
                        if load_key(spec) == load:
                            yield Cell(spec=spec, repeat=repeat)
            return
        runs = [spec for prompt in prompts for spec in order.sample(block.on(prompt), len(block.arms))]
        anchor = block.on(self.prompts[0])[0]
        per_repeat = -(-len(runs) // _ANCHOR_EVERY)
        for number, spec in enumerate(runs):
            if number % _ANCHOR_EVERY == 0:
                yield Cell(spec=anchor, repeat=repeat * per_repeat + number // _ANCHOR_EVERY, anchor=True)
            yield Cell(spec=spec, repeat=repeat)

    @property
    def n_runs(self) -> int:
        """How many runs the least number of repeats makes, without warm-ups and anchors."""
        turns = sum(1 + len(prompt.followups) for prompt in self.prompts)
        return len({arm.key for block in self.blocks for arm in block.arms}) * turns * self.repeats
