"""Compare the requested offload of a run with the offload in its log."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ggufspec.choices import Experts, Layers, Role, SplitMode
from ggufspec.domain.measurements import Placement, RunResult, Sample
from ggufspec.domain.specs import Offload, RunSpec, is_remote


class LoadedLayers(NamedTuple):
    """One model of a run: the requested offload, and the offload in the log."""

    requested: Layers
    devices: tuple[str, ...]
    cpu_moe: Experts | None  # requested layers whose experts stay on the processor
    offloaded: int | None
    total: int | None
    placement: tuple[Placement, ...]


def shortfalls(run: RunResult, *, gpu: bool | None) -> Iterator[str]:
    """Yield the names of warnings about where a run's models are, see analysis/warnings.py.

    The buffers in the log decide, not the number of layers: a library with remote devices reports any number.
    For what no log shows, see llama/logs/offload.py.

    Args:
        run: the run.
        gpu: whether the build can use a GPU; None where only the log can tell.
    """
    models = loaded(run)
    if run.spec.own_offload.rpc:
        gpu = None  # of a worker, whatever this machine has
    if any(wants_gpu(model.requested) for model in models) and (gpu is False or _only_on_cpu(run.sample)):
        yield "gpu-less-build"
        return
    lends = bool(run.spec.offload.rpc)  # then the drafter stays on this machine, whatever that has
    if len(models) > 1 and gpu is not False and not lends and _drafter_behind(run):
        yield "drafter-on-cpu"
    if any(map(_fell_short, models)):
        yield "fewer-layers"
    if any(map(_spilled, models)):
        yield "spilled"
    leaves_out = any(_leaves_out(model, run.spec.offload) for model in models)
    if leaves_out or _leaves_worker_out(models[0], run.spec):
        yield "device-unused"


def loaded(run: RunResult) -> tuple[LoadedLayers, ...]:
    """Return the models of a run: the model that writes the text, then its drafter."""
    offload, sample = run.spec.own_offload, run.sample
    first = LoadedLayers(
        offload.target_layers,
        offload.devices,
        offload.cpu_moe,
        sample.offloaded_layers,
        sample.total_layers,
        sample.placement,
    )
    if run.spec.role is not Role.DRAFTING or run.spec.drafter is None:
        return (first,)
    part = offload.drafter_as_target
    layers = sample.draft_offloaded_layers, sample.draft_total_layers
    return first, LoadedLayers(
        part.target_layers, part.devices, part.cpu_moe, *layers, sample.draft_placement
    )


def wants_gpu(layers: Layers) -> bool:
    """Whether layers are requested for a GPU."""
    return layers == "all" or (isinstance(layers, int) and layers > 0)


def _only_on_cpu(sample: Sample) -> bool:
    """Whether the log shows weights, but none on a GPU."""
    if sample.placement or sample.draft_placement:
        return not (_on_gpu(sample.placement) or _on_gpu(sample.draft_placement))
    return bool(sample.devices) and all(name.startswith("CPU") for name in sample.devices)


def _drafter_behind(run: RunResult) -> bool:
    """Whether the target has weights on a GPU and its drafter none; without a log, by the request."""
    sample, offload = run.sample, run.spec.offload
    if sample.placement and sample.draft_placement:
        return _on_gpu(sample.placement) > 0 and not _on_gpu(sample.draft_placement)
    return wants_gpu(offload.target_layers) and offload.draft_layers == 0


def _fell_short(model: LoadedLayers) -> bool:
    if model.requested == "auto" or model.offloaded is None or model.total is None:
        return False
    expected = model.total if model.requested == "all" else min(model.requested, model.total)
    return model.offloaded < expected


def _spilled(model: LoadedLayers) -> bool:
    """Whether a GPU got more than was free there, or layers reported on it are in the host's memory.

    With all layers on GPUs, only the token embeddings stay in the host's memory, and those are rarely larger
    than all other weights.
    """
    if any(part.spilled_bytes for part in model.placement):
        return True
    all_offloaded = model.total is not None and model.offloaded == model.total and model.cpu_moe is None
    on_gpu = _on_gpu(model.placement)
    return all_offloaded and 0 < on_gpu < sum(part.model_bytes or 0 for part in model.placement) - on_gpu


def _leaves_out(model: LoadedLayers, offload: Offload) -> bool:
    """Whether a requested device with a share holds no weights.

    Only for a split by layers: the buffers of rows and tensors name no device. Those of workers are numbered
    in another way than the devices, and are not judged.
    """
    if offload.split_mode not in {None, SplitMode.LAYER} or not model.placement or model.requested == 0:
        return False
    shares = dict(zip(model.devices, offload.tensor_split, strict=False))
    requested = {name for name in model.devices if (not shares or shares.get(name)) and not is_remote(name)}
    return bool(requested - {"none"} - {part.device for part in model.placement if part.model_bytes})


def _leaves_worker_out(model: LoadedLayers, spec: RunSpec) -> bool:
    """Whether a worker holds no weights, although nothing says which devices to use, or how much of them."""
    offload = spec.own_offload
    if offload.devices or offload.tensor_split or not model.placement or model.requested == 0:
        return False
    lent = {part.device.partition("[")[2].rstrip("]") for part in model.placement if part.model_bytes}
    return not set(offload.rpc) <= lent


def _on_gpu(placement: tuple[Placement, ...]) -> int:
    """Return the bytes of weights that are on GPUs."""
    return sum(part.model_bytes or 0 for part in placement if not part.on_host)
