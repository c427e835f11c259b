"""What a bench measures, in which order, and how long that is expected to take."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import count, groupby
from statistics import fmean, median
from time import perf_counter

import numpy as np

from ggufspec import engines, results
from ggufspec.domain import Prompt, Role, RunSpec, Status, StoppingRule
from ggufspec.errors import GgufspecError
from ggufspec.measure.sweep import Block, Blocks, sizes
from ggufspec.results import Runs
from ggufspec.units import counted

LoadKey = Callable[[RunSpec], Hashable | None]

_ANCHOR_EVERY = 24  # measured runs between two looks at the same configuration
MOST_ARMS = 100_000
MOST_RUNS = 1_000_000


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One run to make: what, which repeat of it, and whether it is a warm-up or an anchor."""

    spec: RunSpec
    repeat: int
    warmup: bool = False
    anchor: bool = False
    remeasured: bool = False  # once more, with all arms of its prompt and repeat


@dataclass(frozen=True, kw_only=True)
class RunPlan:
    """Everything one bench measures: blocks, prompts, how often, and when to stop.

    With ``precision`` (a relative half width of the speed-ups' intervals, such as 0.02), ``repeats`` is only
    the least; ``max_time_s`` ends the bench in any case. With ``stopping``, ``repeats`` is its first look,
    and a block ends at the look at which all of its verdicts are decided.

    ``loads`` is how often each arm is loaded in ``repeats`` repeats, and None where every run loads its own
    models. A load makes the same number of repeats as the others, or one more. ``has_anchors`` is whether the
    first arm is measured again and again. ``warm_turns`` is whether later turns of conversations begin with
    the conversation so far in the server's cache.
    """

    blocks: Sequence[Block]
    prompts: tuple[Prompt, ...]
    warmup_prompts: tuple[Prompt, ...] = ()
    repeats: int = 3
    warmups: int = 1
    seed: int = 1
    precision: float | None = None
    stopping: StoppingRule | None = None
    max_time_s: float | None = None
    loads: int | None = None
    has_anchors: bool = True
    warm_turns: bool = False

    def repeats_by_load(self) -> Iterator[range]:
        """Yield, without end, the repeats that one load of each arm makes, from repeat 0 on."""
        for _, group in groupby(count(), key=self._load_of):
            first, *others = group
            yield range(first, first + 1 + len(others))

    def cells(
        self, block: Block, repeats: range, *, load_key: LoadKey, capacity: int | None
    ) -> Iterator[Cell]:
        """Yield the runs of a block that one load of each arm makes, in an order that the seed fixes.

        Arms of one prompt are neighbours in time, so that slow drift (heat, other work) affects all of them
        alike; repeats are far apart, so that their spread shows that drift. Where the engine cannot hold a
        load for each arm at once, the arms follow one another instead. Their order is random, and reversed
        for the next loads, so that steady drift cancels. With ``warm_turns``, a conversation takes the place
        of a prompt: an arm answers its turns one after the other.

        Every load begins with warm-ups. Arms that are loaded for every run have theirs before repeat 0.

        Args:
            block: what to measure.
            repeats: from ``repeats_by_load``.
            load_key: what must be loaded for a run; None for whatever is loaded anew anyway.
            capacity: how many loads can be held at once; None for any number.
        """
        if repeats.start == 0:
            yield from self._warm([arm for arm in block.arms if load_key(arm) is None])
        loads: dict[Hashable, list[RunSpec]] = {}
        for arm in self._ordered(block.arms, repeats):
            loads.setdefault(load_key(arm), []).append(arm)
        if capacity is not None and len(loads) > capacity:
            one_by_one = (self._in_one_load(key, arms, repeats) for key, arms in loads.items())
            yield from self._with_anchors(block, repeats.start, one_by_one, warmups=min(1, self.warmups))
        else:
            for key, arms in loads.items():
                if key is not None:
                    yield from self._warm(arms, repeats)
            for repeat in repeats:
                yield from self._with_anchors(block, repeat, self._in_order(block.arms, repeat))

    def _with_anchors(
        self, block: Block, repeat: int, groups: Iterable[Sequence[Cell]], *, warmups: int = 0
    ) -> Iterator[Cell]:
        """Yield groups of runs, with anchors between them, which have warm-ups of their own."""
        n_anchors, since_anchor = 0, _ANCHOR_EVERY
        for cells in groups:
            if since_anchor >= _ANCHOR_EVERY and self.has_anchors:
                anchor = self._anchor(block, repeat, n_anchors)
                yield from [replace(anchor, warmup=True)] * warmups
                yield anchor
                n_anchors, since_anchor = n_anchors + 1, 0
            yield from cells
            since_anchor += sum(not cell.warmup for cell in cells)

    def _in_one_load(self, key: Hashable | None, arms: Sequence[RunSpec], repeats: range) -> list[Cell]:
        """Return all runs of arms that share a load, and its warm-ups."""
        warm = () if key is None else self._warm(arms, repeats)
        return [*warm, *(cell for repeat in repeats for run in self._in_order(arms, repeat) for cell in run)]

    def _in_order(self, arms: Sequence[RunSpec], repeat: int) -> Iterator[list[Cell]]:
        """Yield the run of each arm on each prompt, or those of a warm conversation, in random order."""
        conversations: list[list[Prompt]] = []
        for prompt in self.prompts:
            if prompt.history:  # the turn before precedes it
                conversations[-1].append(prompt)
            else:
                conversations.append([prompt])
        order = random.Random(f"{self.seed}/{repeat}")  # noqa: S311  # an order, not a secret
        for turns in order.sample(conversations, len(conversations)):
            for arm in order.sample(arms, len(arms)):
                yield [Cell(spec=replace(arm, prompt=prompt), repeat=repeat) for prompt in turns]

    def _warm(self, arms: Sequence[RunSpec], repeats: range = range(1)) -> Iterator[Cell]:
        """Yield the discarded first runs of arms on the warm-up prompts, or else on the first prompt."""
        first = self._load_of(repeats.start) * self.warmups
        for number in range(first, first + self.warmups):
            for arm in arms:
                for prompt in self.warmup_prompts or self.prompts[:1]:
                    yield Cell(spec=replace(arm, prompt=prompt), repeat=number, warmup=True)

    def _anchor(self, block: Block, repeat: int, number: int) -> Cell:
        """Return an anchor: the first arm on the first prompt; ``number`` counts from 0 in a repeat."""
        per_repeat = -(-len(self.prompts) * len(block.arms) // _ANCHOR_EVERY)
        spec = replace(block.arms[0], prompt=self.prompts[0])
        return Cell(spec=spec, repeat=repeat * per_repeat + number, anchor=True)

    def _ordered(self, arms: Sequence[RunSpec], repeats: range) -> Sequence[RunSpec]:
        """Return arms in a random order, or in the opposite of the order before."""
        pair, is_second = divmod(self._load_of(repeats.start), 2)
        order = random.Random(f"{self.seed}/loads {pair}").sample(arms, len(arms))  # noqa: S311  # an order
        return order[::-1] if is_second else order

    def _load_of(self, repeat: int) -> int:
        """Return which load of an arm makes a repeat, from 0."""
        return repeat if self.loads is None else repeat * self.loads // self.repeats

    @property
    def n_arms(self) -> Counter[Role]:
        """How many different arms there are of each role."""
        if isinstance(self.blocks, Blocks):
            return self.blocks.n_arms
        roles = {arm.key: arm.role for block in self.blocks for arm in block.arms}
        return Counter(roles.values())

    @property
    def threads(self) -> int:
        """The most threads that an arm has."""
        if isinstance(self.blocks, Blocks):
            return max(self.blocks.sweep.threads)
        return max(arm.threads for block in self.blocks for arm in block.arms)

    @property
    def most_repeats(self) -> int:
        """How many repeats are planned: with a stopping rule its most, otherwise the least number."""
        return self.repeats if self.stopping is None else self.stopping.most_repeats

    @property
    def n_runs(self) -> int:
        """How many runs the planned repeats make, without warm-ups and anchors."""
        turns = sum(prompt.n_turns for prompt in self.prompts)
        return self.n_arms.total() * turns * self.most_repeats

    @property
    def n_warmups(self) -> int:
        """How many runs are discarded with the least number of repeats, those of anchors left out."""
        return self.n_arms.total() * (self.loads or 1) * self.warmups * max(1, len(self.warmup_prompts))


def refuse_endless(suite: RunPlan) -> None:
    """Refuse what could never be measured.

    Raises:
        GgufspecError: there are too many arms, or too many runs that no time limit ends.
    """
    arms, runs = suite.n_arms.total(), suite.n_runs + suite.n_warmups
    narrow = "give fewer values, or larger steps"
    if isinstance(suite.blocks, Blocks):
        axes = sizes(suite.blocks.sweep)
        narrow = f"{narrow}: {', '.join(f'{name} has {count:,}' for name, count in axes.items())}"
    if arms > MOST_ARMS:
        raise GgufspecError(
            f"{arms:,} arms are more than {MOST_ARMS:,}, the most that can be measured", narrow
        )
    if runs > MOST_RUNS and suite.max_time_s is None:
        raise GgufspecError(
            f"{runs:,} runs are more than {MOST_RUNS:,}, the most that one bench can hold: "
            f"{counted(arms, 'arm')}, {counted(len(suite.prompts), 'prompt')}, "
            f"{counted(suite.repeats, 'repeat')} and {counted(suite.warmups, 'warm-up')}",
            "lower --repeats or --warmup, give fewer prompts or arms, or end it with --max-time",
        )


_LOOK_BACK = 10  # stored benches
_PROBE_BYTES = 64 << 20  # more than most caches hold
_FEW = 3  # values of an axis that stand for all
_START_S = 0.5  # of a process that starts, maps its model and ends


@dataclass(frozen=True, kw_only=True)
class Experience:
    """Seconds of earlier runs and loads.

    Attributes:
        tokens: of each token of runs with the same models and settings, without loading.
        loads: of loading the same models.
        bytes_per_s: how fast weights are read.
    """

    tokens: dict[tuple[object, ...], list[float]] = field(default_factory=dict)
    loads: dict[tuple[object, ...], list[float]] = field(default_factory=dict)
    bytes_per_s: float

    def expect(self, spec: RunSpec) -> float:
        """Return the seconds that a run may take once its models are loaded."""
        reading_s = weights(spec) / self.bytes_per_s  # each token reads all weights once
        # their mean, because a bench takes the sum of its prompts, of which few may be much longer
        return fmean(self.tokens.get(_settings(spec), (reading_s,))) * _n_tokens(spec)

    def expect_load(self, spec: RunSpec) -> float:
        """Return the seconds that loading the models of a run may take."""
        return median(self.loads.get(_settings(spec), (_START_S + weights(spec) / self.bytes_per_s,)))


def experience() -> Experience:
    """Read the newest stored benches, and measure how fast memory can be read."""
    known = Experience(bytes_per_s=_read_speed())
    for name in results.ids()[-_LOOK_BACK:]:
        try:
            runs = results.load(name).runs
        except GgufspecError:
            continue  # a damaged bench says nothing here; `show` says what is wrong with it
        _learn(known, runs)
    return known


def expect(suite: RunPlan, known: Experience) -> dict[RunSpec, float]:
    """Return the seconds for each arm of a suite: all its prompts and repeats, warm-ups and loads."""
    n_warmups = suite.n_warmups // suite.n_arms.total()  # of each arm
    n_runs = len(suite.prompts) * suite.repeats + n_warmups
    n_loads = n_runs if suite.loads is None else suite.loads
    return {
        arm: known.expect(arm) * n_runs + known.expect_load(arm) * n_loads
        for block in suite.blocks
        for arm in block.arms
    }


def few_blocks(suite: RunPlan) -> Blocks:
    """Return blocks that stand for all of a sweep."""
    assert isinstance(suite.blocks, Blocks)
    return suite.blocks.sweep.thinned(_FEW).blocks()


def total(suite: RunPlan, known: Experience) -> float:
    """Return the seconds for a sweep of any size: what a few arms of each role take, times their number."""
    few = expect(replace(suite, blocks=few_blocks(suite)), known)
    by_role: dict[Role, list[float]] = {}
    for arm, seconds in few.items():
        by_role.setdefault(arm.role, []).append(seconds)
    return sum(fmean(seconds) * suite.n_arms[role] for role, seconds in by_role.items())


def _learn(known: Experience, runs: Runs) -> None:
    names = ("status", "engine", "wall_s", "program_s", "load_ms")
    columns = zip(runs.specs, *map(runs.column, names), strict=True)
    for spec, status, engine, wall_s, program_s, load_ms in columns:
        if status is not Status.OK:
            continue
        load_s = None if load_ms is None else load_ms / 1000
        if engines.keeps_loads(engine):  # the first run of a load says that it loaded
            load_s = None if load_ms is None else wall_s - program_s
        elif load_s is None:
            load_s = 0.0  # a part of the run's own time
        if load_s is not None:
            known.loads.setdefault(_settings(spec), []).append(load_s)
        run_s = wall_s - (load_s or 0.0)
        known.tokens.setdefault(_settings(spec), []).append(run_s / _n_tokens(spec))


def _settings(spec: RunSpec) -> tuple[object, ...]:
    drafter = spec.drafter and spec.drafter.filename
    traffic = spec.traffic and (spec.traffic.users, spec.traffic.depth)
    return (spec.model.filename, drafter, spec.drafting, spec.offload, spec.threads, traffic)


def _n_tokens(spec: RunSpec) -> int:
    """Return how many tokens a run generates at most; those of several users as if one after the other."""
    return spec.n_predict * (1 if spec.traffic is None else spec.traffic.n_requests)


def weights(spec: RunSpec) -> int:
    """Return the size of a run's models in bytes."""
    return sum(
        model.path.stat().st_size if model.path else model.size_bytes or 0
        for model in (spec.model, spec.drafter)
        if model
    )


def _read_speed() -> float:
    """Return bytes per second of reading memory once, single-threaded: rather too few than too many."""
    block = np.ones(_PROBE_BYTES // 8)
    started = perf_counter()
    block.sum()
    return _PROBE_BYTES / (perf_counter() - started)
