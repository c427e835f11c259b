"""What was asked of a run's offload, beside what its log says became of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ggufspec.choices import Experts, Layers, Role, SplitMode
from ggufspec.domain.measurements import Placement, RunResult, Sample
from ggufspec.domain.specs import Offload


class LoadedLayers(NamedTuple):
    """One model of a run: what was asked for it, and what the log says."""

    asked: Layers
    devices: tuple[str, ...]
    kept: Experts | None  # layers whose experts were meant to stay on the processor
    offloaded: int | None
    total: int | None
    placement: tuple[Placement, ...]


def shortfalls(run: RunResult, *, gpu: bool | None) -> Iterator[str]:
    """Yield the names of the warnings about where a run's models are, see analysis/warnings.py.

    The buffers that a log names decide, not the layers that it claims: a library with remote devices compiled
    in claims any number. What no log shows is said in llama/logs_offload.py.

    Args:
        run: the run.
        gpu: whether the build can use a GPU; None where nobody knows and the log must tell.
    """
    models = loaded(run)
    if any(wants_gpu(model.asked) for model in models) and (gpu is False or _only_on_cpu(run.sample)):
        yield "gpu-less-build"
        return
    if len(models) > 1 and gpu is not False and _drafter_behind(run):
        yield "drafter-on-cpu"
    if any(map(_fell_short, models)):
        yield "fewer-layers"
    if any(map(_spilled, models)):
        yield "spilled"
    if any(_leaves_out(model, run.spec.offload) for model in models):
        yield "device-unused"


def loaded(run: RunResult) -> tuple[LoadedLayers, ...]:
    """Return the models of a run: the one that its text comes from, then its drafter."""
    own, said = run.spec.own_offload, run.sample
    first = LoadedLayers(
        own.target_layers, own.devices, own.cpu_moe, said.offloaded_layers, said.total_layers, said.placement
    )
    if run.spec.role is not Role.DRAFTING or run.spec.drafter is None:
        return (first,)
    part = own.drafter_as_target
    layers = said.draft_offloaded_layers, said.draft_total_layers
    return first, LoadedLayers(part.target_layers, part.devices, part.cpu_moe, *layers, said.draft_placement)


def wants_gpu(layers: Layers) -> bool:
    """Whether layers are meant to go to a GPU, wherever they find one."""
    return layers == "all" or (isinstance(layers, int) and layers > 0)


def _only_on_cpu(said: Sample) -> bool:
    """Whether the log shows weights, and none of them on a GPU."""
    if said.placement or said.draft_placement:
        return not (_on_gpu(said.placement) or _on_gpu(said.draft_placement))
    return bool(said.devices) and all(name.startswith("CPU") for name in said.devices)


def _drafter_behind(run: RunResult) -> bool:
    """Whether the target has weights on a GPU and its drafter none; where no log tells, what was asked."""
    said, asked = run.sample, run.spec.offload
    if said.placement and said.draft_placement:
        return _on_gpu(said.placement) > 0 and not _on_gpu(said.draft_placement)
    return wants_gpu(asked.target_layers) and asked.draft_layers == 0


def _fell_short(model: LoadedLayers) -> bool:
    if model.asked == "auto" or model.offloaded is None or model.total is None:
        return False
    wanted = model.total if model.asked == "all" else min(model.asked, model.total)
    return model.offloaded < wanted


def _spilled(model: LoadedLayers) -> bool:
    """Whether more was put on a GPU than was free there, or layers claimed for it lie in the host's memory.

    With all layers on GPUs, nothing but the table of token embeddings stays with the host, and that is hardly
    ever more than all else.
    """
    if any(each.spilled_bytes for each in model.placement):
        return True
    whole = model.total is not None and model.offloaded == model.total and model.kept is None
    on_gpu = _on_gpu(model.placement)
    return whole and 0 < on_gpu < sum(each.model_bytes or 0 for each in model.placement) - on_gpu


def _leaves_out(model: LoadedLayers, offload: Offload) -> bool:
    """Whether a device that was asked for, and that has a share, holds no weights.

    Only where layers are dealt out to devices: rows and tensors lie in buffers that name none.
    """
    if offload.split_mode not in {None, SplitMode.LAYER} or not model.placement or model.asked == 0:
        return False
    shares = dict(zip(model.devices, offload.tensor_split, strict=False))
    asked = {name for name in model.devices if not shares or shares.get(name)} - {"none"}
    return bool(asked - {each.device.split("[")[0] for each in model.placement if each.model_bytes})


def _on_gpu(placement: tuple[Placement, ...]) -> int:
    """Return the bytes of weights that are on GPUs."""
    return sum(each.model_bytes or 0 for each in placement if not each.on_host)
