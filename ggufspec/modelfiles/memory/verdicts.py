"""Will a plan work on this machine? One clear sentence of what is needed and what is there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum

from ggufspec.machine import Gpu, Room
from ggufspec.modelfiles.memory.placement import Footprint
from ggufspec.modelfiles.memory.plans import MemoryPlan, best_fit
from ggufspec.units import counted, format_bytes


class Fit(IntEnum):
    """How well a plan fits, the worst last."""

    FITS = 0
    TIGHT = 1  # not into what is free now, or only with weights that are read from the disk time and again
    IMPOSSIBLE = 2


@dataclass(frozen=True, kw_only=True)
class MemoryVerdict:
    """How well a plan fits, why, and what to do about it; ``hint`` is None where it fits."""

    outcome: Fit
    reason: str
    hint: str | None = None


def verdict(
    plan: MemoryPlan,
    room: Room,
    *,
    alternatives: Callable[[], Sequence[MemoryPlan]] = tuple,
    adjusts_layers: bool = False,
) -> MemoryVerdict:
    """Judge a plan; of several problems the worst is named, the GPU's first.

    Args:
        plan: what is to be run.
        room: the memory of the host, and of the GPUs that the build can use. Without any GPU, llama.cpp
            keeps all layers on the host.
        alternatives: returns what `trade` does for the same models and settings, from which the hint comes;
            only called for a plan that does not fit.
        adjusts_layers: the build itself offloads as many of the target's layers as fit ("auto" layers with
            --fit). Then the best of the alternatives is judged, and never found impossible on the GPU.
    """
    if not room.gpus:
        return _on_host(_parts(plan, gpu_too=True), room, more_layers=False)
    judged = _judge(plan, None, room)
    if judged.outcome is Fit.FITS:
        return judged
    free = sum(gpu.free_bytes for gpu in room.gpus)
    plans = tuple(alternatives())
    best = best_fit(plans, free)
    if adjusts_layers and plans and plan.gpu_bytes > free:
        plan = best or plans[0]
    return _judge(plan, best, room, worst=Fit.TIGHT if adjusts_layers else Fit.IMPOSSIBLE)


def _judge(
    plan: MemoryPlan, best: MemoryPlan | None, room: Room, *, worst: Fit = Fit.IMPOSSIBLE
) -> MemoryVerdict:
    """Judge both sides; ``worst`` is the most that can be wrong with the GPU's."""
    more_layers = best is not None and best.target.gpu_layers > plan.target.gpu_layers
    both = _on_gpus(plan, best, room.gpus, worst), _on_host(_parts(plan), room, more_layers=more_layers)
    worse = max(both, key=lambda verdict: verdict.outcome)
    if worse.outcome is Fit.FITS:
        return MemoryVerdict(outcome=Fit.FITS, reason="; ".join(verdict.reason for verdict in both))
    return worse


def _on_gpus(plan: MemoryPlan, best: MemoryPlan | None, gpus: Sequence[Gpu], worst: Fit) -> MemoryVerdict:
    total, free = sum(gpu.total_bytes for gpu in gpus), sum(gpu.free_bytes for gpu in gpus)
    kinds = ", ".join(dict.fromkeys(gpu.name for gpu in gpus))
    have = f"{kinds} has" if len(gpus) == 1 else f"{len(gpus)} GPUs ({kinds}) have"
    layers = f"{counted(plan.target.gpu_layers, 'layer')} of the target"
    if plan.draft is not None:
        layers += f" and {plan.draft.gpu_layers} of the drafter"
    needs = f"{layers} need {format_bytes(plan.gpu_bytes)} on the GPU"
    available = f"{have} {format_bytes(total)}, of which {format_bytes(free)} are free now"
    if plan.gpu_bytes <= free:
        return MemoryVerdict(outcome=Fit.FITS, reason=f"{needs}, {available}")
    hint = "use a smaller --ctx or quantization"
    if plan.draft is not None:
        hint = f"put fewer layers of the drafter on the GPU (--ngld), or {hint}"
    if best is not None:
        hint = f"--ngl {best.target.gpu_layers} fits into what is free now: {format_bytes(best.gpu_bytes)}"
    fit = Fit.IMPOSSIBLE if plan.gpu_bytes > total else Fit.TIGHT
    return MemoryVerdict(outcome=min(fit, worst), reason=f"{needs}, but {available}", hint=hint)


def _on_host(parts: Sequence[Footprint], room: Room, *, more_layers: bool) -> MemoryVerdict:
    """Judge the host. Weights are mapped from their files: too many of them make a run slow, not fail."""
    total, free = room.total_bytes, room.free_bytes
    mapped = sum(part.weights for part in parts)
    kept = sum(part.cache + part.compute for part in parts)
    available = f"the machine has {format_bytes(total)}, of which {format_bytes(free)} are free now"
    hint = "use a smaller --ctx" + (", or put more layers on the GPU (--ngl)" if more_layers else "")
    if kept > total:
        needs = f"caches and compute buffers need {format_bytes(kept)} on the host"
        return MemoryVerdict(outcome=Fit.IMPOSSIBLE, reason=f"{needs}, but {available}", hint=hint)
    needs = f"weights, caches and compute buffers need {format_bytes(mapped + kept)} on the host"
    if mapped + kept <= free:
        return MemoryVerdict(outcome=Fit.FITS, reason=f"{needs}, {available}")
    slow = ""
    if mapped + kept > total:
        slow = ": weights would be read from the disk time and again, which is slow"
        hint = "use smaller models or quantizations" + (", or more layers on the GPU" if more_layers else "")
    elif kept <= free:
        slow = ": some weights may be read from the disk time and again, which is slow"
    return MemoryVerdict(outcome=Fit.TIGHT, reason=f"{needs}, but {available}{slow}", hint=hint)


def _parts(plan: MemoryPlan, *, gpu_too: bool = False) -> list[Footprint]:
    """What lies on the host; with ``gpu_too`` all that was to go to the GPU, too."""
    models = [plan.target] if plan.draft is None else [plan.target, plan.draft]
    return [part for model in models for part in ((model.host, model.gpu) if gpu_too else (model.host,))]
