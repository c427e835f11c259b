"""What may be chosen: drafters, draft sizes and methods, each where it fits best on the GPU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ggufspec.domain import Layers, ModelFile, Offload, Role, RunSpec
from ggufspec.measure import Block
from ggufspec.modelfiles import memory
from ggufspec.modelfiles.gguf import ModelCard


def blocks(
    asked: Sequence[Block],
    cards: Mapping[ModelFile, ModelCard],
    *,
    layout: memory.Layout,
    vram_bytes: int | None,
) -> tuple[Block, ...]:
    """Return the configurations by the target's layers: target alone first, then what drafts.

    Layers that were asked for stay. "auto" becomes what the memory plan allows: the target alone gets as
    many layers as fit; a drafter comes once with all of its own layers on the GPU, once with none, which
    leaves room for more of the target's.

    Args:
        asked: a sweep's blocks.
        cards: the headers of all models.
        layout: how the llama.cpp in use lays models out.
        vram_bytes: the GPU's memory; None where there is no GPU.
    """
    found: dict[tuple[object, ...], dict[RunSpec, None]] = {}
    for block in asked:
        for arm in block.arms:
            if arm.role is Role.DRAFTER:
                continue
            for offload in _offloads(arm, cards, layout, vram_bytes):
                spec = replace(arm, offload=offload)
                found.setdefault(_baseline(spec), {})[spec] = None
    for arms in list(found.values()):
        alone = next(iter(arms)).baseline
        arms.pop(alone, None)
        found[_baseline(alone)] = {alone: None, **arms}
    return tuple(Block(arms=tuple(arms)) for arms in found.values())


def _baseline(spec: RunSpec) -> tuple[object, ...]:
    alone = spec.baseline
    return alone.model, alone.offload, alone.kv_type, alone.ubatch, alone.threads


def _offloads(
    spec: RunSpec, cards: Mapping[ModelFile, ModelCard], layout: memory.Layout, vram_bytes: int | None
) -> tuple[Offload, ...]:
    own = spec.offload
    if vram_bytes is None or own.target_layers != "auto":
        return (own,)
    target, draft = cards[spec.model], cards[spec.drafter] if spec.drafter else None
    settings = memory.Settings(
        context=spec.context,
        kv_type_k=(spec.kv_type or "f16").upper(),
        kv_type_v=(spec.kv_type or "f16").upper(),
        n_ubatch=spec.ubatch or 512,
        n_draft=spec.drafting.n_max if spec.drafting else 0,
        layout=layout,
    )
    everything = target.n_layers + 1
    tries: tuple[Layers, ...] = ("all", 0) if own.draft_layers == "auto" and draft else (own.draft_layers,)
    found = []
    for layers in tries:
        best = memory.best_fit(memory.trade(target, draft, settings, layers), vram_bytes)
        if best is None:
            continue
        number = best.target.gpu_layers
        found.append(
            replace(
                own,
                target_layers="all" if number == everything else number,
                draft_layers=layers if draft is not None else "auto",
            )
        )
        if number == everything:
            break  # nothing is left to gain from a drafter beside the GPU
    return tuple(found) or (replace(own, target_layers=0, draft_layers=0 if draft is not None else "auto"),)
