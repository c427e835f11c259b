"""Plans of a pair on a machine's devices, and the best of them."""

from __future__ import annotations

from dataclasses import dataclass

from ggufspec.domain import Layers, Offload
from ggufspec.modelfiles.gguf import ModelCard
from ggufspec.modelfiles.memory.placement import ModelMemory, place
from ggufspec.modelfiles.memory.settings import MemorySettings

RESERVE_BYTES = 1 << 30
"""What --fit leaves free on a device by default."""


@dataclass(frozen=True, kw_only=True)
class MemoryPlan:
    """What a pair takes; ``draft`` is None where there is no second model."""

    target: ModelMemory
    draft: ModelMemory | None

    @property
    def gpu_bytes(self) -> int:
        """All that goes to the GPU."""
        return self.target.gpu.total + (self.draft.gpu.total if self.draft else 0)

    @property
    def host_bytes(self) -> int:
        """All that goes to the host; weights are mapped from the file and can be given back."""
        return self.target.host.total + (self.draft.host.total if self.draft else 0)


def plan(
    target: ModelCard, draft: ModelCard | None, offload: Offload, settings: MemorySettings
) -> MemoryPlan:
    """Return what a pair takes on each device; "auto" layers count as all.

    Args:
        target: the model whose text is wanted.
        draft: the model that drafts, or None.
        offload: how many layers of each go to the GPU.
        settings: how they are run.
    """
    whole_batch = draft is None or not settings.layout.few_logits
    return MemoryPlan(
        target=place(
            target,
            offload.target_layers,
            settings,
            n_outputs=settings.n_tokens if whole_batch else settings.n_draft + 1,
        ),
        draft=None
        if draft is None
        else place(draft, offload.draft_layers, settings, n_outputs=settings.n_tokens if whole_batch else 1),
    )


def trade(
    target: ModelCard, draft: ModelCard | None, settings: MemorySettings, draft_layers: Layers = "all"
) -> tuple[MemoryPlan, ...]:
    """Return a plan for every number of the target's layers, from none to all."""
    return tuple(
        plan(target, draft, Offload(target_layers=layers, draft_layers=draft_layers), settings)
        for layers in range(target.n_layers + 2)
    )


def best_fit(
    plans: tuple[MemoryPlan, ...], vram_bytes: int, reserve_bytes: int = RESERVE_BYTES
) -> MemoryPlan | None:
    """Return the plan with the most of the target's layers that fits, or None if none does.

    Args:
        plans: what `trade` returns.
        vram_bytes: the GPU's memory.
        reserve_bytes: what to leave free of it.
    """
    fitting = [plan for plan in plans if plan.gpu_bytes + reserve_bytes <= vram_bytes]
    return max(fitting, key=lambda plan: plan.target.gpu_layers, default=None)
