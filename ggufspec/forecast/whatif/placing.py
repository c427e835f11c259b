"""What a model reads and computes where it lies on several machines' memories, and the tokens/s that allows.

Both follow from its header alone, and from the machines' peaks.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ggufspec import units
from ggufspec.domain import CacheTypes, Estimate, Offload
from ggufspec.forecast import costs
from ggufspec.forecast.costs import DevicePeaks, ExpertUse, ModelPart, Shape
from ggufspec.modelfiles import memory
from ggufspec.modelfiles.compat import mtp_layers, read_head
from ggufspec.modelfiles.gguf import ModelCard, Tensor
from ggufspec.modelfiles.memory import F16, Distribution, MemorySettings, cache_bytes, expert_layer

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
    return _shape_of(card, _read_tensors(card), _layers(card), _settings(depth, F16), None, visits=0)


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
    caches = cache_bytes(card, settings)
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
    settings: memory.MemorySettings | None = None,
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
    used = (settings or memory.MemorySettings(context=depth)).with_caches(offload.target.caches)
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
