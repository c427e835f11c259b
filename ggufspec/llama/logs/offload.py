"""Where a log says that models went: layers on a GPU, and the buffers on each device, load by load.

What cannot be seen in a log: whether a driver put a buffer that it granted into the host's memory, and
whether GGML_CUDA_ENABLE_UNIFIED_MEMORY was set. In both cases the buffers keep the name of the GPU. What can
be seen is that they exceed what the GPU had free, where the build says what that was (``using device CUDA0 …
MiB free``, end of 2024 on). What other programs take later is not seen. A ``CPU_Mapped`` buffer spans the
file from its first to its last tensor on the processor, so it may be larger than what lies there.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from ggufspec.domain import Placement, Sample
from ggufspec.llama.logs.lines import Line, hits

_FREE = re.compile(r"\S+: using device (\S+) \(.*\) - +(\d{1,9}) MiB free")
_OFFLOADED = re.compile(r"(?:llm_)?load_tensors: offloaded (\d{1,6})/(\d{1,6}) layers to GPU")
_BUFFER = re.compile(
    r"(?P<who>\S+): +(?P<name>\S+) +(?:(?P<kind>model|KV|RS|DSV4 \S+ state|compute|output) )?"
    r"buffer size = +(?P<mib>\d{1,9}\.\d\d) MiB"
)
_LOADERS = {"load_tensors", "llm_load_tensors"}  # until the autumn of 2024 they leave out "model"
_HOST = re.compile("CPU|AMX|BLAS")
_NEEDLES = (b"buffer size", b"layers to GPU", b"MiB free")
_MIB = 1 << 20

_Sizes = dict[str, float]  # name of a buffer -> MiB


@dataclass(kw_only=True)
class ModelLoad:
    """One model of a log, and its newest context."""

    offloaded_layers: int | None = None
    total_layers: int | None = None
    _free: _Sizes = field(default_factory=dict)
    _model: _Sizes = field(default_factory=dict)
    _kv: _Sizes = field(default_factory=dict)
    _compute: _Sizes = field(default_factory=dict)
    _output: _Sizes = field(default_factory=dict)

    @property
    def has_weights(self) -> bool:
        """Whether anything was said of its weights."""
        return bool(self._model) or self.offloaded_layers is not None

    @property
    def has_context(self) -> bool:
        """Whether a context was made for it, so that weights that follow are another model's."""
        return bool(self._kv or self._compute or self._output)

    @property
    def devices(self) -> tuple[str, ...]:
        """The devices that hold weights; all memory of the host counts as the processor's."""
        names = ("CPU" if name.endswith("_Host") else _device(name) for name in self._model)
        return tuple(dict.fromkeys(names))

    @property
    def placement(self) -> tuple[Placement, ...]:
        """What it occupies, device by device, in the order of the log."""
        buffers = (*self._model, *self._kv, *self._compute, *self._output)
        return tuple(self._on(device) for device in dict.fromkeys(map(_device, buffers)))

    def see_free(self, device: str, mib: int) -> None:
        """Take what a device had free before."""
        self._free[device] = mib

    def see_buffer(self, name: str, kind: str, mib: float) -> None:
        """Take one buffer. Weights and caches come in parts; a new reservation replaces the one before."""
        if kind == "model":
            self._model[name] = self._model.get(name, 0.0) + mib
        elif kind == "compute":
            self._compute[name] = mib
        else:
            if self._compute:  # the model's next context: of the first, nothing is left
                for sizes in (self._kv, self._compute, self._output):
                    sizes.clear()
            if kind == "output":
                self._output[name] = mib
            else:
                self._kv[name] = self._kv.get(name, 0.0) + mib

    def _on(self, device: str) -> Placement:
        found = Placement(
            device=device,
            model_bytes=_bytes(self._model, device),
            kv_bytes=_bytes(self._kv, device),
            compute_bytes=_bytes(self._compute, device),
            output_bytes=_bytes(self._output, device),
        )
        free = self._free.get(device)
        if free is None:
            return found
        # the line counts whole MiB, rounded down
        spilled = max(0, found.total_bytes - round((free + 1) * _MIB))
        return Placement(**{**vars(found), "spilled_bytes": spilled})


def loads(head: bytes) -> tuple[ModelLoad, ...]:
    """Return the models of a log in the order in which they were loaded: the target, then its drafter.

    Args:
        head: the log up to its closing statement.
    """
    found: list[ModelLoad] = []
    for line in _in_order(head):
        message = line.message
        if (free := _FREE.match(message)) is not None:
            _next(found).see_free(free[1], int(free[2]))
        elif (layers := _OFFLOADED.match(message)) is not None:  # stands before the weights
            load = _next(found)
            load.offloaded_layers, load.total_layers = int(layers[1]), int(layers[2])
        elif (buffer := _BUFFER.match(message)) is not None:
            _see(found, buffer)
    return tuple(load for load in found if load.has_weights or load.has_context)


def placed(sample: Sample, head: bytes) -> Sample:
    """Return a run's sample with the places of its target and, where one was loaded, its drafter.

    Args:
        sample: what the run says.
        head: the log up to its closing statement.
    """
    target, drafter = (*loads(head), ModelLoad(), ModelLoad())[:2]
    return replace(
        sample,
        offloaded_layers=target.offloaded_layers,
        total_layers=target.total_layers,
        devices=target.devices,
        placement=target.placement,
        draft_offloaded_layers=drafter.offloaded_layers,
        draft_total_layers=drafter.total_layers,
        draft_placement=drafter.placement,
    )


def _see(found: list[ModelLoad], buffer: re.Match[str]) -> None:
    kind = buffer["kind"] or ("model" if buffer["who"] in _LOADERS else None)
    if kind is None:
        return
    if not found or (kind == "model" and found[-1].has_context):
        found.append(ModelLoad())
    found[-1].see_buffer(buffer["name"], kind, float(buffer["mib"]))


def _next(found: list[ModelLoad]) -> ModelLoad:
    """Return the load that begins with the next weights."""
    if not found or found[-1].has_weights or found[-1].has_context:
        found.append(ModelLoad())
    return found[-1]


def _in_order(head: bytes) -> Iterator[Line]:
    lines: Iterable[Line] = (line for needle in _NEEDLES for line in hits(head, needle))
    return iter(sorted((line for line in lines if line.is_familiar), key=lambda line: line.start))


def _device(name: str) -> str:
    """Return the device that a buffer is on: that of ``CPU_REPACK`` is CPU, of ``CUDA0_Split`` CUDA0."""
    if _HOST.match(name):
        return "CPU"
    return name if name.endswith("_Host") else name.split("_")[0]


def _bytes(sizes: _Sizes, device: str) -> int | None:
    own = [mib for name, mib in sizes.items() if _device(name) == device]
    return round(sum(own) * _MIB) if own else None
