"""Memory plans of a pair on a machine's devices, the best of them, and whether a plan works here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum

from ggufspec.domain import Method, ModelRun, Offload
from ggufspec.machine import Gpu, Room
from ggufspec.modelfiles.compat import Head, mtp_layers, read_head
from ggufspec.modelfiles.gguf import ModelCard
from ggufspec.modelfiles.memory.placement import Footprint, ModelMemory, compute_bytes, place
from ggufspec.modelfiles.memory.settings import DEFAULT_BATCH, MemorySettings
from ggufspec.units import counted, format_bytes

RESERVE_BYTES = 1 << 30
"""Memory that --fit leaves free on a device by default."""


@dataclass(frozen=True, kw_only=True)
class MemoryPlan:
    """The memory of a pair; ``draft`` is None where there is no second model.

    What reads images is on the first GPU, whatever the number of layers there (clip_ctx in
    tools/mtmd/clip.cpp); llama.cpp is not told otherwise here.
    """

    target: ModelMemory
    draft: ModelMemory | None
    projector: Footprint = field(default_factory=Footprint)

    @property
    def models(self) -> tuple[ModelMemory, ...]:
        """The target, and the drafter if there is one."""
        return (self.target,) if self.draft is None else (self.target, self.draft)

    @property
    def gpu_bytes(self) -> int:
        """All that goes to the GPU."""
        return sum(model.gpu.total for model in self.models) + self.projector.total

    @property
    def host_bytes(self) -> int:
        """All that goes to the host; weights are mapped from the file and can be given back."""
        return sum(model.host.total for model in self.models)

    @property
    def all_bytes(self) -> int:
        """All of it, wherever it goes."""
        return self.gpu_bytes + self.host_bytes

    @property
    def each_gpu_bytes(self) -> tuple[int, ...]:
        """What goes to each GPU that layers are split over, in their order."""
        sides = (model.gpus for model in self.models)
        each = (sum(gpu.total for gpu in gpus) for gpus in zip(*sides, strict=True))
        return tuple(size + (0 if number else self.projector.total) for number, size in enumerate(each))


def plan(
    target: ModelCard, draft: ModelCard | None, offload: Offload, settings: MemorySettings
) -> MemoryPlan:
    """Return what a pair takes on each device; "auto" layers count as all.

    Args:
        target: the model whose text is wanted.
        draft: the model that drafts, or None.
        offload: how many layers of each go to the GPU, how they are split over GPUs, and which experts stay
            on the host. The rest of it is not counted.
        settings: how they are run.
    """
    drafts = draft is not None or settings.mtp
    projector = Footprint(weights=settings.projector_bytes)
    skips_mtp = settings.layout.skips_mtp and not settings.mtp
    planned = place(
        target,
        offload.target,
        settings,
        n_outputs=settings.outputs(1 + (settings.n_draft if drafts else 0)),
        tensor_split=offload.tensor_split,
        loaded=range(target.n_layers - mtp_layers(target)) if skips_mtp else None,
    )
    if draft is None:
        head = read_head(target) if settings.mtp else None
        n_outputs = settings.outputs(1)
        extra = compute_bytes(target, settings, n_outputs=n_outputs) if settings.mtp else 0
        planned = _with_states(planned, target, head, settings, extra)
        return MemoryPlan(target=planned, draft=None, projector=projector)
    head = read_head(draft)
    has_cache = head is not None and head.method is Method.DRAFT_MTP
    encodes = head is not None and not has_cache
    return MemoryPlan(
        target=_with_states(planned, target, head, settings),
        draft=place(
            draft,
            replace(offload.drafter, caches=offload.drafter_caches),
            settings,
            n_outputs=settings.encoder_outputs if encodes else settings.outputs(1),
            tensor_split=offload.tensor_split,
            loaded=range(draft.n_layers - mtp_layers(draft), draft.n_layers) if has_cache else None,
        ),
        projector=projector,
    )


def _with_states(
    planned: ModelMemory, target: ModelCard, head: Head | None, settings: MemorySettings, extra: int = 0
) -> ModelMemory:
    """Add what the host keeps for a head: the states that it reads, for each token of a batch.

    Args:
        planned: the target's memory.
        target: the target.
        head: what drafts, if a head does.
        settings: how it is run.
        extra: scratch memory of a second context of the target, which evaluates its layers for MTP; these
            are the last ones, so they are on the last GPU that has layers.
    """
    states = 0 if head is None else head.n_states * min(DEFAULT_BATCH, settings.context) * target.n_embd * 4
    if not planned.gpu_layers:
        return replace(planned, host=planned.host + Footprint(compute=states + extra))
    gpus = list(planned.gpus)
    last = max((index for index, share in enumerate(gpus) if share.weights), default=0)
    gpus[last] += Footprint(compute=extra)
    return replace(planned, host=planned.host + Footprint(compute=states), gpus=tuple(gpus))


def plan_each_offload(
    target: ModelCard, draft: ModelCard | None, settings: MemorySettings, offload: Offload | None = None
) -> tuple[MemoryPlan, ...]:
    """Return a plan for every number of the target's layers, from none to all.

    ``offload`` is where the rest goes, by default all layers of the drafter to one GPU.
    """
    rest = offload or Offload(drafter=ModelRun(layers="all"))
    return tuple(
        plan(target, draft, rest.with_layers(layers), settings) for layers in range(target.n_layers + 2)
    )


def fits(plan: MemoryPlan, vram_bytes: Sequence[int], reserve_bytes: int = RESERVE_BYTES) -> bool:
    """Whether a plan fits.

    Args:
        plan: of one GPU, or of as many as ``vram_bytes`` has.
        vram_bytes: the memory of all GPUs together, or of each. For a plan that is not split, the sum counts.
        reserve_bytes: what to leave free, of each GPU that layers are split over.

    Raises:
        ValueError: the plan is split over another number of GPUs.
    """
    if len(plan.target.gpus) <= 1 or len(vram_bytes) <= 1:
        return plan.gpu_bytes + reserve_bytes <= sum(vram_bytes)
    if len(plan.target.gpus) != len(vram_bytes):
        raise ValueError(
            f"the tensor split has {len(plan.target.gpus)} GPUs, and memory is given for {len(vram_bytes)}: "
            "give that of each, such as 24G,12G"
        )
    return all(
        needed + reserve_bytes <= room
        for needed, room in zip(plan.each_gpu_bytes, vram_bytes, strict=True)
        if needed
    )


def best_fit(
    plans: tuple[MemoryPlan, ...], vram_bytes: int | Sequence[int], reserve_bytes: int = RESERVE_BYTES
) -> MemoryPlan | None:
    """Return the plan with the most of the target's layers that fits, or None if none does.

    Args:
        plans: what `plan_each_offload` returns.
        vram_bytes: the GPU's memory, or that of each GPU; see ``fits``.
        reserve_bytes: what to leave free of it.
    """
    room = (vram_bytes,) if isinstance(vram_bytes, int) else vram_bytes
    fitting = [plan for plan in plans if fits(plan, room, reserve_bytes)]
    return max(fitting, key=lambda plan: plan.target.gpu_layers, default=None)


class MemoryFit(IntEnum):
    """How well a plan fits, the worst last."""

    FITS = 0
    # not into the memory that is free now, or only with weights that are read from the disk repeatedly
    TIGHT = 1
    IMPOSSIBLE = 2


@dataclass(frozen=True, kw_only=True)
class MemoryVerdict:
    """How well a plan fits, why, and what to do about it; ``hint`` is None where it fits."""

    outcome: MemoryFit
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
        alternatives: returns what `plan_each_offload` does for the same models and settings, from which the
            hint comes; only called for a plan that does not fit.
        adjusts_layers: the build itself offloads as many of the target's layers as fit ("auto" layers with
            --fit). Then the best of the alternatives is judged, and never found impossible on the GPU.
    """
    if not room.gpus:
        everything = sum((model.host + model.gpu for model in plan.models), plan.projector)
        return _on_host(everything, room, more_layers=False)
    judged = _judge(plan, None, room)
    if judged.outcome is MemoryFit.FITS:
        return judged
    free = sum(gpu.free_bytes for gpu in room.gpus)
    plans = tuple(alternatives())
    best = best_fit(plans, free)
    if adjusts_layers and plans and plan.gpu_bytes > free:
        plan = best or plans[0]
    return _judge(plan, best, room, worst=MemoryFit.TIGHT if adjusts_layers else MemoryFit.IMPOSSIBLE)


def _judge(
    plan: MemoryPlan, best: MemoryPlan | None, room: Room, *, worst: MemoryFit = MemoryFit.IMPOSSIBLE
) -> MemoryVerdict:
    """Judge both sides; ``worst`` is the most that can be wrong with the GPU's."""
    more_layers = best is not None and best.target.gpu_layers > plan.target.gpu_layers
    host = sum((model.host for model in plan.models), Footprint())
    both = _on_gpus(plan, best, room.gpus, worst), _on_host(host, room, more_layers=more_layers)
    worse = max(both, key=lambda verdict: verdict.outcome)
    if worse.outcome is MemoryFit.FITS:
        return MemoryVerdict(outcome=MemoryFit.FITS, reason="; ".join(verdict.reason for verdict in both))
    return worse


def _on_gpus(
    plan: MemoryPlan, best: MemoryPlan | None, gpus: Sequence[Gpu], worst: MemoryFit
) -> MemoryVerdict:
    total, free = sum(gpu.total_bytes for gpu in gpus), sum(gpu.free_bytes for gpu in gpus)
    names = ", ".join(dict.fromkeys(gpu.name for gpu in gpus))
    have = f"{names} has" if len(gpus) == 1 else f"{len(gpus)} GPUs ({names}) have"
    layers = f"{counted(plan.target.gpu_layers, 'layer')} of the target"
    if plan.draft is not None:
        layers += f" and {plan.draft.gpu_layers} of the drafter"
    needs = f"{layers} need {format_bytes(plan.gpu_bytes)} on the GPU"
    available = f"{have} {format_bytes(total)}, of which {format_bytes(free)} are free now"
    if plan.gpu_bytes <= free:
        return MemoryVerdict(outcome=MemoryFit.FITS, reason=f"{needs}, {available}")
    hint = "use a smaller --ctx or quantization"
    if plan.draft is not None:
        hint = f"put fewer layers of the drafter on the GPU (--ngld), or {hint}"
    if best is not None:
        hint = f"--ngl {best.target.gpu_layers} fits into what is free now: {format_bytes(best.gpu_bytes)}"
    fit = MemoryFit.IMPOSSIBLE if plan.gpu_bytes > total else MemoryFit.TIGHT
    return MemoryVerdict(outcome=min(fit, worst), reason=f"{needs}, but {available}", hint=hint)


def _on_host(held: Footprint, room: Room, *, more_layers: bool) -> MemoryVerdict:
    """Judge the host. Weights are mapped from their files: too many of them make a run slow, not fail."""
    total, free = room.total_bytes, room.free_bytes
    mapped, kept = held.weights, held.cache + held.compute
    available = f"the machine has {format_bytes(total)}, of which {format_bytes(free)} are free now"
    hint = "use a smaller --ctx" + (", or put more layers on the GPU (--ngl)" if more_layers else "")
    if kept > total:
        needs = f"caches and compute buffers need {format_bytes(kept)} on the host"
        return MemoryVerdict(outcome=MemoryFit.IMPOSSIBLE, reason=f"{needs}, but {available}", hint=hint)
    needs = f"weights, caches and compute buffers need {format_bytes(mapped + kept)} on the host"
    if mapped + kept <= free:
        return MemoryVerdict(outcome=MemoryFit.FITS, reason=f"{needs}, {available}")
    slow = ""
    if mapped + kept > total:
        slow = ": weights would be read from the disk time and again, which is slow"
        hint = "use smaller models or quantizations" + (", or more layers on the GPU" if more_layers else "")
    elif kept <= free:
        slow = ": some weights may be read from the disk time and again, which is slow"
    return MemoryVerdict(outcome=MemoryFit.TIGHT, reason=f"{needs}, but {available}{slow}", hint=hint)
