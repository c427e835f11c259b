"""Compare the requested offload of a run with the offload in its log."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ggufspec.choices import Role, SplitMode
from ggufspec.domain.measurements import LoadedModel, Placement, RunResult, Sample
from ggufspec.domain.specs import ModelRun, Offload, RunSpec, is_remote


class PlacedModel(NamedTuple):
    """One model of a run: what was requested, and what the log shows."""

    requested: ModelRun
    loaded: LoadedModel


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
    if any(model.requested.wants_gpu for model in models) and (gpu is False or _only_on_cpu(run.sample)):
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


def loaded(run: RunResult) -> tuple[PlacedModel, ...]:
    """Return the models of a run: the model that writes the text, then its drafter."""
    offload, sample = run.spec.own_offload, run.sample
    first = PlacedModel(offload.target, sample.target or LoadedModel())
    if run.spec.role is not Role.DRAFTING or run.spec.drafter is None:
        return (first,)
    return first, PlacedModel(offload.drafter_as_target.target, sample.drafter or LoadedModel())


def _only_on_cpu(sample: Sample) -> bool:
    """Whether the log shows weights, but none on a GPU."""
    placements = [model.placement for model in (sample.target, sample.drafter) if model and model.placement]
    if placements:
        return not any(map(_on_gpu, placements))
    return bool(sample.devices) and all(name.startswith("CPU") for name in sample.devices)


def _drafter_behind(run: RunResult) -> bool:
    """Whether the target has weights on a GPU and its drafter none; without a log, by the request."""
    sample, offload = run.sample, run.spec.offload
    if sample.target and sample.drafter and sample.target.placement and sample.drafter.placement:
        return _on_gpu(sample.target.placement) > 0 and not _on_gpu(sample.drafter.placement)
    return bool(offload.target.wants_gpu) and offload.drafter.wants_gpu is False


def _fell_short(model: PlacedModel) -> bool:
    requested, total = model.requested.layers, model.loaded.total_layers
    if requested == "auto" or total is None or model.loaded.offloaded_layers is None:
        return False
    return model.loaded.offloaded_layers < (total if requested == "all" else min(requested, total))


def _spilled(model: PlacedModel) -> bool:
    """Whether a GPU got more than was free there, or layers reported on it are in the host's memory.

    With all layers on GPUs, only the token embeddings stay in the host's memory, and those are rarely larger
    than all other weights.
    """
    loaded, on_gpu = model.loaded, _on_gpu(model.loaded.placement)
    if any(part.spilled_bytes for part in loaded.placement):
        return True
    all_offloaded = loaded.total_layers is not None and loaded.offloaded_layers == loaded.total_layers
    on_host = sum(part.model_bytes or 0 for part in loaded.placement if part.on_host)
    return all_offloaded and model.requested.cpu_moe is None and 0 < on_gpu < on_host


def _leaves_out(model: PlacedModel, offload: Offload) -> bool:
    """Whether a requested device with a share holds no weights.

    Only for a split by layers: the buffers of rows and tensors name no device. Those of workers are numbered
    in another way than the devices, and are not judged.
    """
    requested, placement = model.requested, model.loaded.placement
    if offload.split_mode not in {None, SplitMode.LAYER} or not placement or requested.wants_gpu is False:
        return False
    shares = dict(zip(requested.devices, offload.tensor_split, strict=False))
    named = {name for name in requested.devices if (not shares or shares.get(name)) and not is_remote(name)}
    return bool(named - {"none"} - {part.device for part in placement if part.model_bytes})


def _leaves_worker_out(model: PlacedModel, spec: RunSpec) -> bool:
    """Whether a worker holds no weights, although nothing says which devices to use, or how much of them."""
    offload, placement = spec.own_offload, model.loaded.placement
    is_said = offload.target.devices or offload.tensor_split or model.requested.wants_gpu is False
    if is_said or not placement:
        return False
    lent = {part.device.partition("[")[2].rstrip("]") for part in placement if part.model_bytes}
    return not set(offload.rpc) <= lent


def _on_gpu(placement: tuple[Placement, ...]) -> int:
    """Return the bytes of weights that are on GPUs."""
    return sum(part.model_bytes or 0 for part in placement if not part.on_host)
