"""The configurations to choose from, each with the layers on the GPU that suit it best."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ggufspec.domain import Layers, ModelFile, Offload, Role, RunSpec
from ggufspec.measure import Block
from ggufspec.modelfiles import memory
from ggufspec.modelfiles.gguf import ModelCard


def blocks(
    requested: Sequence[Block],
    cards: Mapping[ModelFile, ModelCard],
    *,
    layout: memory.Layout,
    vram_bytes: int | None,
) -> tuple[Block, ...]:
    """Return the configurations by the target's layers: the target alone first, then the drafting ones.

    Requested numbers of layers stay. "auto" becomes what the memory plan allows: the target alone gets as
    many layers as fit; a drafter is tried with all of its layers on the GPU and with none, which leaves room
    for more of the target's.

    Args:
        requested: a sweep's blocks.
        cards: the headers of all models.
        layout: how the llama.cpp in use lays models out.
        vram_bytes: the GPU's memory; None where there is no GPU.
    """
    specs: dict[tuple[object, ...], dict[RunSpec, None]] = {}
    for block in requested:
        for arm in block.arms:
            if arm.role is Role.DRAFTER:
                continue
            for offload in _offloads(arm, cards, layout, vram_bytes):
                spec = replace(arm, offload=offload)
                specs.setdefault(_baseline(spec), {})[spec] = None
    for arms in list(specs.values()):
        alone = next(iter(arms)).baseline
        arms.pop(alone, None)
        specs[_baseline(alone)] = {alone: None, **arms}
    return tuple(Block(arms=tuple(arms)) for arms in specs.values())


def _baseline(spec: RunSpec) -> tuple[object, ...]:
    alone = spec.baseline
    return alone.model, alone.offload, alone.ubatch, alone.threads, alone.runtime


def _offloads(
    spec: RunSpec, cards: Mapping[ModelFile, ModelCard], layout: memory.Layout, vram_bytes: int | None
) -> tuple[Offload, ...]:
    offload = spec.offload
    if vram_bytes is None or offload.target.layers != "auto":
        return (offload,)
    target, draft = cards[spec.model], cards[spec.drafter] if spec.drafter else None
    settings = memory.settings_for(spec, layout)
    all_layers = target.n_layers + 1
    choices: tuple[Layers, ...] = (offload.drafter.layers,)
    if offload.drafter.layers == "auto" and draft:
        choices = ("all", 0)
    offloads = []
    for layers in choices:
        best = memory.best_fit(
            memory.plan_each_offload(target, draft, settings, offload.with_layers(drafter=layers)),
            vram_bytes,
        )
        if best is None:
            continue
        number = best.target.gpu_layers
        offloads.append(
            offload.with_layers(
                "all" if number == all_layers else number, layers if draft is not None else "auto"
            )
        )
        if number == all_layers:
            break  # a drafter on the processor would leave no room that the target needs
    return tuple(offloads) or (offload.with_layers(0, 0 if draft is not None else "auto"),)
