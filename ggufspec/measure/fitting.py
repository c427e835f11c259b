"""Will what is asked for fit into memory, and how much of it at once?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

from ggufspec import machine
from ggufspec.domain import Layers, ModelFile, Offload, Role, RunSpec
from ggufspec.errors import OutOfMemoryError
from ggufspec.llama.install import Install
from ggufspec.measure.sweep import Sweep
from ggufspec.modelfiles import gguf, memory

_UBATCH = 512  # llama.cpp's default

Cards = Mapping[ModelFile, gguf.ModelCard]


def capacity(sweep: Sweep, cards: Cards, install: Install) -> int:
    """Return how many loads of these models may be held at once: one on a GPU, half of what is free else.

    Weights are mapped from the file and shared, but some are repacked into copies for the processor.
    """
    if install.gpu is not False:
        return 1
    most = max(
        memory.plan(
            cards[arm.model],
            cards[arm.drafter] if arm.drafter else None,
            Offload(target_layers=0, draft_layers=0),
            memory.Settings(context=arm.context, n_ubatch=arm.ubatch or _UBATCH),
        ).host_bytes
        for arm in _hungriest(sweep)
    )
    return max(1, machine.memory().free_bytes // 2 // most)


def check(sweep: Sweep, cards: Cards, install: Install, *, force: bool) -> Iterator[str]:
    """Yield what will hardly fit.

    Raises:
        OutOfMemoryError: something cannot fit, and nobody insisted.
    """
    room = machine.memory(install.gpus)
    can_adjust = any("--fit" in program.options for program in install.programs.values())
    for spec in (arm for arm in _hungriest(sweep) if arm.role is not Role.DRAFTER):
        target, draft = cards[spec.model], cards[spec.drafter] if spec.drafter else None
        offload = spec.offload if install.gpu is not False else Offload(target_layers=0, draft_layers=0)
        settings = memory.Settings(
            context=spec.context,
            kv_type_k=(spec.kv_type or "f16").upper(),
            kv_type_v=(spec.kv_type or "f16").upper(),
            n_ubatch=spec.ubatch or _UBATCH,
            n_draft=spec.drafting.n_max if spec.drafting else 0,
            layout=memory.layout_for(install.build_number),
        )
        verdict = memory.verdict(
            memory.plan(target, draft, offload, settings),
            room,
            alternatives=partial(memory.trade, target, draft, settings, offload.draft_layers),
            adjusts_layers=can_adjust and offload.target_layers == "auto",
        )
        if verdict.outcome is memory.Fit.IMPOSSIBLE and not force:
            raise OutOfMemoryError(verdict.reason, f"{verdict.hint}, or insist with --force")
        if verdict.outcome is not memory.Fit.FITS:
            yield f"memory: {verdict.reason}" + (f"; {verdict.hint}" if verdict.hint else "")


def _hungriest(sweep: Sweep) -> Iterator[RunSpec]:
    """Yield arms of which at least one needs as much memory on each device as any arm of the sweep.

    Longer drafts and more tokens at once take more of it; layers move it from the host to a GPU.
    """
    few = replace(
        sweep,
        target_layers=_ends(sweep.target_layers),
        draft_layers=_ends(sweep.draft_layers),
        draft_sizes=(max(sweep.draft_sizes),) if sweep.draft_sizes else (),
        ubatches=(max(sweep.ubatches, key=lambda tokens: tokens or _UBATCH),),
        p_mins=sweep.p_mins[:1],
        threads=sweep.threads[:1],
    )
    return (arm for block in few.blocks() for arm in block.arms)


def _ends(asked: Sequence[Layers]) -> tuple[Layers, ...]:
    """Return the fewest and the most layers, and the words."""
    numbers = [layers for layers in asked if isinstance(layers, int)]
    words = [layers for layers in asked if not isinstance(layers, int)]
    return tuple(dict.fromkeys((*([min(numbers), max(numbers)] if numbers else ()), *words)))
