"""The fastest places for the parts of a pair that fit into memory: layers, experts, and the drafter.

What a byte of memory on a GPU saves is how often it is read. Attention and dense layers are read by every
token, experts by few, but by more of a longer batch; and a drafter takes the room of both. So for each place
of the drafter and several numbers of layers, the experts of as many layers as there is room for are planned,
the last layers first, as ``--n-cpu-moe`` counts them. The times of rounds decide, for each draft size anew.
"""

from __future__ import annotations

import shlex
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from ggufspec.domain import Experts, ModelRun, Offload
from ggufspec.forecast import costs
from ggufspec.forecast.costs import ExpertUse, ModelPart
from ggufspec.forecast.whatif.placing import Machines, parts_of
from ggufspec.modelfiles import memory
from ggufspec.modelfiles.gguf import ModelCard
from ggufspec.modelfiles.memory import MemoryPlan, MemorySettings

_STEPS = 12  # numbers of layers that are tried: batches that need most experts read them as often as layers
_ALL_LAYERS = "999"  # more than any model has, which every build takes for all
_BOUNDARIES = 12  # between the layers of two GPUs


@dataclass(frozen=True, kw_only=True)
class MachineMemory:
    """The memory of a machine: of each GPU, and of the host; None is not limited."""

    vram_bytes: tuple[int, ...]
    host_bytes: int | None = None
    reserve_bytes: int = memory.RESERVE_BYTES

    def holds(self, plan: MemoryPlan) -> bool:
        """Whether a plan fits on every device."""
        fits_host = self.host_bytes is None or plan.host_bytes <= self.host_bytes
        return fits_host and memory.fits(plan, self.vram_bytes, self.reserve_bytes)


@dataclass(frozen=True, kw_only=True)
class Places:
    """Where the parts of a pair are for a draft size, and what that takes.

    Attributes:
        n_max: γ; 0 is the target alone.
        offload: the places.
        plan: the memory.
        round_s: forecast seconds of a round: γ tokens drafted and verified; with γ = 0 of a token.
    """

    n_max: int
    offload: Offload
    plan: MemoryPlan
    round_s: float

    @property
    def words(self) -> str:
        """The options of llama.cpp and of a bench for these places, ready to paste."""
        layers = {"-ngl": self.offload.target, **({"-ngld": self.offload.drafter} if self.plan.draft else {})}
        placed = self.offload if self.plan.draft else self.offload.target_alone
        words = [word for name, run in layers.items() for word in (name, str(run.layers))]
        return shlex.join(_ALL_LAYERS if word == "all" else word for word in (*words, *placed.place_words))

    @property
    def override(self) -> str | None:
        """What ``-ot`` takes for the same experts of the target; None where all are with their layers."""
        kept = self.offload.target.cpu_moe
        return expert_pattern(range(kept)) if isinstance(kept, int) else None


@dataclass(frozen=True, kw_only=True)
class PlacedPair:
    """A pair, the machine that it is placed on, and how it is run.

    Attributes:
        target: the target's header.
        draft: the drafter's; None without one.
        settings: how they are run.
        offload: the types of caches and the split over GPUs; its layers and experts are searched.
        machines: what computes.
        room: the memory.
        depth: tokens in the context.
        experts: how many of the target's experts batches need, where that was traced.
    """

    target: ModelCard
    draft: ModelCard | None
    settings: MemorySettings
    offload: Offload
    machines: Machines
    room: MachineMemory
    depth: int
    experts: ExpertUse | None = None

    def fastest(self, sizes: Sequence[int]) -> tuple[Places, ...]:
        """Return the fastest places that fit for each γ; () where none fit.

        Raises:
            ValueError: the host is needed, and its speed is not known.
        """
        found: dict[int, Places] = {}
        drafted = [size for size in sizes if size and self.draft is not None]
        others = [size for size in sizes if size not in drafted]
        for draft, wanted in ((self.draft, drafted), (None, others)):
            for offload, plan in self._candidates(draft) if wanted else ():
                seconds = self.round_seconds(offload)
                for size in wanted:
                    round_s = seconds(size)
                    if size not in found or round_s < found[size].round_s:
                        found[size] = Places(n_max=size, offload=offload, plan=plan, round_s=round_s)
        return tuple(found[size] for size in sizes if size in found)

    def _candidates(self, draft: ModelCard | None) -> Iterator[tuple[Offload, MemoryPlan]]:
        """Yield for each place of the drafter those of the target that may be the fastest."""
        for split in self._splits():
            for drafter in _drafter_places(draft, self.offload.drafter):
                rest = replace(self.offload, drafter=drafter, tensor_split=split)
                yield from self._target_places(draft, rest)

    def _target_places(self, draft: ModelCard | None, rest: Offload) -> Iterator[tuple[Offload, MemoryPlan]]:
        card, gpus = self.target, replace(self.room, host_bytes=None)
        all_on_host: Experts | None = "all" if card.n_experts else None

        def planned(layers: int, kept: Experts | None) -> tuple[Offload, MemoryPlan]:
            offload = replace(rest, target=replace(rest.target, layers=layers, cpu_moe=kept))
            return offload, memory.plan(card, draft, offload, self.settings)

        def fits(layers: int, kept: Experts | None) -> bool:
            return gpus.holds(planned(layers, kept)[1])

        def experts_on_gpu(layers: int) -> int:
            return _largest(card.n_layers, lambda on_gpu: fits(layers, card.n_layers - on_gpu)) or 0

        most = _largest(card.n_layers + 1, lambda layers: fits(layers, all_on_host))
        if most is None:
            return
        for layers in range(most, -1, -max(1, most // _STEPS)):
            kept: Experts | None = None
            if card.n_experts:
                kept = card.n_layers - experts_on_gpu(layers)
                is_output = layers <= card.n_layers and self.settings.layout.output_first
                if kept <= max(0, card.n_layers - layers + is_output):
                    kept = None  # these layers are on the host anyway
            place = planned(layers, kept)
            if self.room.holds(place[1]):
                yield place

    def _splits(self) -> Iterator[tuple[float, ...]]:
        """Yield the shares of the GPUs: those that were asked for, or of two GPUs some from end to end."""
        if self.offload.tensor_split or len(self.room.vram_bytes) < 2:
            yield self.offload.tensor_split
        elif len(self.room.vram_bytes) == 2:
            top = self.target.n_layers + 1
            for count in range(1, top, max(1, top // _BOUNDARIES)):
                yield float(count), float(top - count)
        else:
            yield tuple(map(float, self.room.vram_bytes))

    def round_seconds(self, offload: Offload) -> Callable[[int], float]:
        """Return what forecasts the seconds of a round for each γ; 0 is the target alone."""

        def parts(
            card: ModelCard, placed: Offload, experts: ExpertUse | None = None
        ) -> tuple[ModelPart, ...]:
            return parts_of(
                card, placed, self.machines, depth=self.depth, settings=self.settings, experts=experts
            )

        target = parts(self.target, offload, self.experts)
        drafter = () if self.draft is None else parts(self.draft, offload.drafter_as_target)

        def seconds(size: int) -> float:
            verifying_s = costs.seconds_of_parts(target, size + 1, self.depth)
            if not size:
                return verifying_s
            # a drafter reads what was verified again, as llama-server's and the simple program's do
            drafting_s = size * costs.step_seconds(drafter, self.depth)
            return verifying_s + drafting_s + costs.seconds_of_parts(drafter, size + 1, self.depth)

        return seconds


def _drafter_places(draft: ModelCard | None, run: ModelRun) -> tuple[ModelRun, ...]:
    """Return all of a drafter on the GPU, none of it, and all but its experts; or what was asked for."""
    if draft is None or run.layers != "auto":
        return (run,)
    places = (replace(run, layers="all"), replace(run, layers=0))
    return (*places, replace(run, layers="all", cpu_moe="all")) if draft.n_experts else places


def _largest(most: int, fits: Callable[[int], bool]) -> int | None:
    """Return the largest number up to ``most`` that fits, as smaller ones do; None where 0 does not."""
    fitting = bisect_left(range(most + 1), True, key=lambda number: not fits(number))
    return fitting - 1 if fitting else None


def expert_pattern(layers: Sequence[int]) -> str:
    """Return what ``-ot`` takes to keep the experts of some layers on the host (LLM_FFN_EXPS_REGEX)."""
    numbers = "|".join(map(str, layers))
    return rf"blk\.({numbers})\.ffn_(up|down|gate|gate_up)_(ch|)exps=CPU"
