"""The configurations to choose from: drafters in further quantizations, and layers that suit each best."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from ggufspec import machine, paths
from ggufspec.domain import Layers, ModelFile, Offload, Role, RunSpec
from ggufspec.errors import GgufspecError
from ggufspec.llama.command import tools
from ggufspec.llama.install import Install
from ggufspec.measure import Block, find_drafters, identity
from ggufspec.modelfiles import gguf, memory
from ggufspec.modelfiles.gguf import ModelCard
from ggufspec.options import TuneOptions


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


_NAMED = re.compile(r"[-.](?:I?Q\d\w*|BF16|F16|F32)$", re.IGNORECASE)


def add_quantized(asked: TuneOptions, install: Install) -> tuple[TuneOptions, tuple[str, ...]]:
    """Return options with further drafters, and notes on where they come from.

    A drafter is made from each of the drafters, in each quantization that has fewer bits than its own.

    Args:
        asked: names the drafters, or a pair that has one, and the quantizations.
        install: its llama-quantize makes them.

    Raises:
        NoInstallError: the install lacks llama-quantize.
        GgufspecError: there is no drafter, or it cannot be quantized so.
    """
    if not asked.quantize_drafter:
        return asked, ()
    drafters = find_drafters(asked)
    if not drafters:
        raise GgufspecError("there is no drafter to quantize", "name one with --draft-model")
    made: list[ModelFile] = []
    notes = []
    for drafter in drafters:
        assert drafter.path is not None
        own_quant = gguf.read_card(drafter.path).quant
        for quant in asked.quantize_drafter:
            if own_quant is not None and (quant == own_quant or _bits(quant) > _bits(own_quant)):
                notes.append(
                    f"drafters: {drafter.filename} is {own_quant}, so {quant} of it would add nothing"
                )
                continue
            made.append(_quantize_drafter(drafter, quant, install))
            quantized = made[-1].path
            assert quantized is not None
            card = gguf.read_card(quantized)
            notes.append(
                f"drafters: {made[-1].filename} was made from {drafter.filename} by llama-quantize"
                + (f"; it is {card.described_quant}" if card.described_quant != card.quant else "")
            )
    return asked.replace(draft_model=(*drafters, *made)), tuple(notes)


def _quantize_drafter(drafter: ModelFile, quant: str, install: Install) -> ModelFile:
    """Return a drafter in another quantization; it is made unless the same llama.cpp made it before."""
    assert drafter.path is not None
    parts = identity.of_models([drafter])[drafter]
    build = install.describe()
    facts = (*(part.sha256 for part in parts), quant, str(build.version), str(build.commit))
    key = hashlib.sha256("\n".join(facts).encode()).hexdigest()[:16]
    stem = _NAMED.sub("", drafter.path.stem)
    out = paths.quantized_dir() / key / f"{stem}-{quant}.gguf"
    if not out.is_file():
        try:
            tools.quantize(install, drafter.path, quant, out, threads=machine.usable_cores())
        except OSError as error:
            raise GgufspecError(
                f"cannot write {out}: {error.strerror}", "free some disk space, or set GGUFSPEC_CACHE"
            ) from error
    return ModelFile(filename=out.name, path=out, quant=quant)


def _bits(quant: str) -> int:
    """Return the bits of a weight that the name of a quantization states."""
    number = re.search(r"\d+", quant)
    return int(number[0]) if number else 0
