"""What a model reads where it lies on several machines' memories; and the fastest places for a pair.

Tokens/s follow from its header alone, and from the machines' peaks.

What a byte of memory on a GPU saves is how often it is read. Attention and dense layers are read by every
token, experts by few, but by more of a longer batch; and a drafter takes the room of both. So for each place
of the drafter and several numbers of layers, the experts of as many layers as there is room for are planned,
the last layers first, as ``--n-cpu-moe`` counts them. The times of rounds decide, for each draft size anew.
"""

from __future__ import annotations

import math
import re
import shlex
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from ggufspec import units
from ggufspec.domain import CacheTypes, Estimate, Experts, ModelRun, Offload
from ggufspec.forecast import costs
from ggufspec.forecast.costs import DevicePeaks, ExpertUse, ModelPart, Shape
from ggufspec.modelfiles import memory
from ggufspec.modelfiles.compat import mtp_layers, read_head
from ggufspec.modelfiles.gguf import ModelCard, Tensor
from ggufspec.modelfiles.memory import Distribution, MemoryPlan, MemorySettings, expert_layer

_LOOKED_UP = re.compile(r"(?:token_embd|per_layer_token_embd|position_embd|token_types)\b")
_BLOCK = re.compile(r"blk\.(\d+)\.")
_EMBEDDING, _OUTPUT = "token_embd.weight", "output.weight"
_LEAST_DEPTH = 256


def shape(card: ModelCard, *, depth: int) -> Shape:
    """Return a model's shape, with caches in F16.

    Embeddings are looked up, not read, unless they serve for the output, too. Layers with a sliding window
    keep no more than it: what a token of the context adds is the mean at this depth. Layers for MTP that are
    part of a target only draft, so they are left out.

    Args:
        card: the model.
        depth: tokens in the context.
    """
    return _shape_of(card, _read_tensors(card), _layers(card), _settings(depth, memory.F16), None, visits=0)


def shapes_by_device(
    card: ModelCard, distribution: Distribution, *, depth: int, caches: CacheTypes, experts: ExpertUse | None
) -> dict[int | None, Shape]:
    """Return the shape of what each device evaluates; a GPU's number, or None for the host, is the key.

    A device that reads nothing is left out. The parts together are what ``shape`` returns.

    Args:
        card: the model.
        distribution: where its tensors and caches are.
        depth: tokens in the context.
        caches: the types of its caches.
        experts: how many experts batches need, where that was traced.
    """
    settings = _settings(depth, caches)
    held: dict[int | None, list[Tensor]] = {}
    for tensor in _read_tensors(card):
        is_tied_output = _LOOKED_UP.match(tensor.name)
        device = distribution.output if is_tied_output else distribution.tensors[tensor.name]
        held.setdefault(device, []).append(tensor)
    layers: dict[int | None, list[int]] = {}
    for layer in _layers(card):
        layers.setdefault(distribution.caches[layer], []).append(layer)
    devices = dict.fromkeys((*layers, *held))

    first = next(iter(devices), None)

    def visits(device: int | None) -> int:
        """Return how often an evaluation comes from another device: once, and for experts of its layers."""
        held_here = {expert_layer(tensor.name) for tensor in held.get(device, ())}  # None is no expert
        of_others = held_here - {None, *layers.get(device, ())}
        return len(of_others) + (device != first and None in held_here)

    return {
        device: _shape_of(
            card, held.get(device, ()), layers.get(device, ()), settings, experts, visits=visits(device)
        )
        for device in devices
    }


def _makes_logits(tensor: Tensor) -> bool:
    """Whether a tensor that is read is the output, or the embedding that serves for it."""
    return tensor.name in {_OUTPUT, _EMBEDDING}


def _settings(depth: int, caches: CacheTypes) -> MemorySettings:
    return MemorySettings(context=max(depth, _LEAST_DEPTH), caches=caches)


def _layers(card: ModelCard) -> range:
    """Return the layers that an evaluation computes."""
    head = read_head(card)
    return range(card.n_layers - (mtp_layers(card) if head is not None and head.in_target else 0))


def _read_tensors(card: ModelCard) -> list[Tensor]:
    """Return the tensors that an evaluation reads."""
    left_out = range(len(_layers(card)), card.n_layers)
    tied = all(tensor.name != _OUTPUT for tensor in card.tensors)
    return [
        tensor
        for tensor in card.tensors
        if (not _LOOKED_UP.match(tensor.name) or (tied and tensor.name == _EMBEDDING))
        and not ((block := _BLOCK.match(tensor.name)) and int(block[1]) in left_out)
    ]


def _shape_of(
    card: ModelCard,
    read: Sequence[Tensor],
    layers: Sequence[int],
    settings: MemorySettings,
    use: ExpertUse | None,
    *,
    visits: int,
) -> Shape:
    """Return the shape of some tensors, and of the caches and the attention of some layers."""
    experts = [tensor for tensor in read if expert_layer(tensor.name) is not None]
    expert_bytes: Counter[int] = Counter()
    for tensor in experts:
        expert_bytes[expert_layer(tensor.name) or 0] += tensor.size_bytes
    share = card.n_experts_used / card.n_experts if card.n_experts and card.n_experts_used else 1.0
    weight_bytes = sum(tensor.size_bytes for tensor in read)
    idle_bytes = (1 - share) * sum(tensor.size_bytes for tensor in experts)
    idle_weights = (1 - share) * sum(math.prod(tensor.shape) for tensor in experts)
    caches = memory.cache_bytes(card, settings)
    return Shape(
        weight_bytes=weight_bytes,
        active_bytes=weight_bytes - idle_bytes,
        kv_bytes=sum(caches[layer] for layer in layers) / settings.cells,
        flops=2 * (sum(math.prod(tensor.shape) for tensor in read) - idle_weights),
        kv_flops=sum(2 * card.n_heads[layer] * (card.key_length + card.value_length) for layer in layers),
        used_share=share if experts else 1.0,
        needed_shares=use.shares(expert_bytes) if use is not None else (),
        layers=len(layers),
        expert_layers=len(expert_bytes),
        visits=visits,
        outputs=card.vocabulary.n_tokens if any(map(_makes_logits, read)) else 0,
    )


@dataclass(frozen=True, kw_only=True)
class Machines:
    """The machines that compute a model's layers: GPUs in their order, and the host; None if not known."""

    gpus: tuple[DevicePeaks, ...]
    host: DevicePeaks | None = None

    @classmethod
    def named(cls, gpus: str, host: str | None, *, n_gpus: int) -> Machines:
        """Return machines by their names; see ``costs.find_device``.

        Args:
            gpus: one name, or several with commas.
            host: the name of the host, if it computes anything.
            n_gpus: over how many GPUs layers are split; 0 where they are not.

        Raises:
            ValueError: a machine is not known, or there are several and layers are not split over as many.
        """
        peaks = tuple(costs.find_device(name.strip()) for name in gpus.split(","))
        computer = None if host is None else costs.find_device(host, costs.ON_HOST)
        return cls.of(peaks, computer, n_gpus=n_gpus)

    @classmethod
    def of(cls, gpus: tuple[DevicePeaks, ...], host: DevicePeaks | None, *, n_gpus: int) -> Machines:
        """Return machines; one GPU stands for all over which layers are split."""
        if len(gpus) > 1 and len(gpus) != n_gpus:
            raise ValueError(f"{len(gpus)} machines need a --tensor-split with as many proportions")
        return cls(gpus=gpus if len(gpus) > 1 else gpus * max(1, n_gpus), host=host)

    @property
    def notes(self) -> tuple[str, ...]:
        """What the machines are, and what their peaks mean, as sentences."""
        named = dict.fromkeys(map(describe_device, self.gpus))
        return (
            *(f"computed for {description}" for description in named),
            *((f"layers on the CPU: {describe_device(self.host)}",) if self.host else ()),
            "note: tokens/s are forecast from these machines' peak rates and what llama.cpp reaches of such",
        )


def describe_device(device: DevicePeaks) -> str:
    """Return a machine's published peak rates as text."""
    bandwidth = f"{units.format_number(device.bandwidth / 1e9)} GB/s"
    if device.flops == float("inf"):
        return f"{device.name}: {bandwidth}"
    return f"{device.name}: {bandwidth}, {units.format_number(device.flops / 1e12)} TFLOPS ({device.source})"


def parts_of(
    card: ModelCard,
    offload: Offload,
    machines: Machines,
    *,
    depth: int,
    settings: MemorySettings | None = None,
    experts: ExpertUse | None = None,
) -> tuple[ModelPart, ...]:
    """Return the parts of a model that each machine evaluates.

    Args:
        card: the model.
        offload: its layers, in the fields of a target; "auto" is all.
        machines: what computes them.
        depth: tokens in the context.
        settings: the types of its caches, and how the build in use lays models out.
        experts: how many experts batches need, where that was traced.

    Raises:
        ValueError: layers stay on the CPU, and the host is not known.
    """
    used = (settings or MemorySettings(context=depth)).with_caches(offload.target.caches)
    distribution = memory.distribute(card, offload.target, used.layout, tensor_split=offload.tensor_split)
    shapes = shapes_by_device(card, distribution, depth=depth, caches=used.caches, experts=experts)

    def parts() -> Iterator[ModelPart]:
        for device, shape in shapes.items():
            peaks = machines.host if device is None else machines.gpus[device]
            if peaks is None:
                raise ValueError(
                    "some layers stay on the CPU: name its machine with --host, such as --host ryzen-7950x, "
                    "or its memory bandwidth, such as --host 60G"
                )
            yield ModelPart(shape=shape, device=peaks)

    return tuple(parts())


def forecast_rate(parts: Sequence[ModelPart], depth: int) -> Estimate:
    """Return the tokens/s of a model without drafting."""
    on_host = any(part.device.efficiency == costs.ON_HOST for part in parts)
    figure = costs.PublishedFigure.ON_HOST if on_host else costs.PublishedFigure.ON_GPU
    return costs.with_interval(1 / costs.seconds_of_parts(parts, 1, depth), figure)


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
