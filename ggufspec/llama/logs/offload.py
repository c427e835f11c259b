"""The placement of models in a log: layers on a GPU, and the buffers on each device, for each model.

A log does not show whether a driver placed a GPU buffer in the host's memory, or whether
GGML_CUDA_ENABLE_UNIFIED_MEMORY was set. In both cases the buffers keep the name of the GPU. It does show if
they exceed the memory that was free on the GPU, if the build reports that (``using device CUDA0 … MiB free``,
since the end of 2024). Memory that other programs take later is not visible. A ``CPU_Mapped`` buffer spans
the file from its first to its last tensor on the processor, so it may be larger than those tensors.

A server whose target passes hidden states to a head enlarges a compute buffer at its first request. That
line does not say whose buffer it is, so only what a server logs up to ``model loaded`` counts.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from ggufspec.domain import LoadedModel, Placement, Sample
from ggufspec.llama.logs.lines import hits

_FREE = re.compile(r"\S+: using device (\S+) \((.*)\) - +(\d{1,9}) MiB free")
_OFFLOADED = re.compile(r"(?:llm_)?load_tensors: offloaded (\d{1,6})/(\d{1,6}) layers to GPU")
_BUFFER = re.compile(
    r"(?P<function>\S+): +(?P<name>\S+) +(?:(?P<content>model|KV|RS|DSV4 \S+ state|compute|output) )?"
    r"buffer size = +(?P<mib>\d{1,9}\.\d\d) MiB"
)
_LOADERS = {"load_tensors", "llm_load_tensors"}  # until autumn 2024 their lines lack "model"
_HOST = re.compile("CPU|AMX|BLAS")
_LOADED = re.compile(r"(?:main|srv +\S+): model loaded")
_NEEDLES = (b"buffer size", b"layers to GPU", b"MiB free", b": model loaded")
_MIB = 1 << 20

_CONTEXT = ("kv", "compute", "output")  # what a context has, beside the model's weights


@dataclass(kw_only=True)
class LoggedModel:
    """The placement of one model in a log, with its latest context."""

    offloaded_layers: int | None = None
    total_layers: int | None = None
    _free: dict[str, float | None] = field(default_factory=dict)
    _mib: dict[str, dict[str, float]] = field(  # content -> name of a buffer -> its size
        default_factory=lambda: {content: {} for content in ("model", *_CONTEXT)}
    )

    @property
    def has_weights(self) -> bool:
        """Whether the log mentions its weights."""
        return bool(self._mib["model"]) or self.offloaded_layers is not None

    @property
    def has_context(self) -> bool:
        """Whether the log mentions a context for it; weights that follow are another model's."""
        return any(self._mib[content] for content in _CONTEXT)

    @property
    def devices(self) -> tuple[str, ...]:
        """The devices that hold weights; all host memory counts as the processor's."""
        names = ("CPU" if name.endswith("_Host") else _device(name) for name in self._mib["model"])
        return tuple(dict.fromkeys(names))

    @property
    def loaded(self) -> LoadedModel:
        """Its layers, and the memory it uses on each device, in the order of the log."""
        devices = dict.fromkeys(_device(name) for sizes in self._mib.values() for name in sizes)
        return LoadedModel(
            offloaded_layers=self.offloaded_layers,
            total_layers=self.total_layers,
            placement=tuple(map(self._on, devices)),
        )

    def add_free(self, device: str, description: str, mib: int) -> None:
        """Add the memory that was free on a device before the load.

        A device of a worker is described by its address. Its number counts the devices of all workers, that
        in the name of its buffers those of its own worker: which is which is clear only if a worker has one.
        """
        if not device.startswith("RPC"):
            self._free[device] = mib
            return
        buffer = f"RPC0[{description.partition(')')[0]}]"
        self._free[buffer] = None if buffer in self._free else mib

    def add_buffer(self, name: str, content: str, mib: float) -> None:
        """Add one buffer. Weights and caches add up; a new compute buffer replaces the previous one."""
        if content not in {"model", "compute"} and self._mib["compute"]:
            for replaced in _CONTEXT:  # the model's next context replaces the first
                self._mib[replaced].clear()
        sizes = self._mib.get(content, self._mib["kv"])
        before = sizes.get(name, 0.0) if content not in {"compute", "output"} else 0.0
        sizes[name] = before + mib

    def _on(self, device: str) -> Placement:
        sizes = {f"{content}_bytes": _bytes(mib, device) for content, mib in self._mib.items()}
        placement = Placement(device=device, **sizes)
        free = self._free.get(device)
        if free is None:
            return placement
        # the log rounds free memory down to MiB
        spilled = max(0, placement.total_bytes - round((free + 1) * _MIB))
        return replace(placement, spilled_bytes=spilled)


def find_models(head: bytes) -> tuple[LoggedModel, ...]:
    """Return the models in a log in the order of their loads: the target, then the drafter.

    Args:
        head: the log up to its closing statement.
    """
    models: list[LoggedModel] = []
    lines = (line for needle in _NEEDLES for line in hits(head, needle) if line.is_familiar)
    for line in sorted(lines, key=lambda line: line.start):
        message = line.message
        if (free := _FREE.match(message)) is not None:
            _next(models).add_free(free[1], free[2], int(free[3]))
        elif (counts := _OFFLOADED.match(message)) is not None:  # precedes the weights
            model = _next(models)
            model.offloaded_layers, model.total_layers = int(counts[1]), int(counts[2])
        elif (buffer := _BUFFER.match(message)) is not None:
            content = buffer["content"] or ("model" if buffer["function"] in _LOADERS else None)
            if content is None:
                continue
            if not models or (content == "model" and models[-1].has_context):
                models.append(LoggedModel())
            models[-1].add_buffer(buffer["name"], content, float(buffer["mib"]))
        elif _LOADED.match(message) is not None:
            break
    return tuple(model for model in models if model.has_weights or model.has_context)


def with_placement(sample: Sample, head: bytes) -> Sample:
    """Return a run's sample with the placement of its target and of its drafter, if one was loaded.

    Args:
        sample: the run's figures.
        head: the log up to its closing statement.
    """
    models = find_models(head)
    target, drafter = (*(model.loaded for model in models), None, None)[:2]
    return replace(sample, devices=models[0].devices if models else (), target=target, drafter=drafter)


def _next(models: list[LoggedModel]) -> LoggedModel:
    """Return the model to which the following weights belong."""
    if not models or models[-1].has_weights or models[-1].has_context:
        models.append(LoggedModel())
    return models[-1]


def _device(name: str) -> str:
    """Return the device of a buffer: CPU for ``CPU_REPACK``, CUDA0 for ``CUDA0_Split``.

    That of a worker keeps its address, which may have underscores: ``RPC0[host:port]``.
    """
    if _HOST.match(name):
        return "CPU"
    if "[" in name:
        return name
    return name if name.endswith("_Host") else name.split("_")[0]


def _bytes(sizes: Mapping[str, float], device: str) -> int | None:
    parts = [mib for name, mib in sizes.items() if _device(name) == device]
    return round(sum(parts) * _MIB) if parts else None
