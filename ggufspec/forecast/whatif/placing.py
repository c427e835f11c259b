"""Tokens/s that a model can reach at most where it lies on several machines' memories, by their peaks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ggufspec import units
from ggufspec.domain import Offload
from ggufspec.forecast import costs
from ggufspec.forecast.costs import DevicePeaks, ModelPart
from ggufspec.forecast.whatif.shapes import shapes_by_device
from ggufspec.modelfiles import memory
from ggufspec.modelfiles.gguf import ModelCard


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
        return cls.of(peaks, None if host is None else costs.find_device(host), n_gpus=n_gpus)

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
            "note: tokens/s are estimated by a roofline, from the peak rates of these machines; not measured",
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
) -> tuple[ModelPart, ...]:
    """Return the parts of a model that each machine evaluates.

    Args:
        card: the model.
        offload: its layers, in the fields of a target; "auto" is all.
        machines: what computes them.
        depth: tokens in the context.
        settings: the types of its caches, and how the build in use lays models out.

    Raises:
        ValueError: layers stay on the CPU, and the host is not known.
    """
    used = (settings or memory.MemorySettings(context=depth)).with_caches(offload.target.caches)
    distribution = memory.distribute(card, offload.target, used.layout, tensor_split=offload.tensor_split)
    shapes = shapes_by_device(card, distribution, depth=depth, caches=used.caches)

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


def roofline_rate(parts: tuple[ModelPart, ...], depth: int) -> float:
    """Return the tokens/s of a model without drafting, estimated by a roofline.

    The inverse of the sum of all parts' least times for one token; the formula and its source are in
    ``costs.roofline``.
    """
    return 1 / costs.seconds_of_parts(parts, 1, depth)
