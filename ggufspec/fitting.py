"""Will what is asked for fit into memory, and how much of it at once?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial

from ggufspec import gguf, machine, memory
from ggufspec.domain import ModelFile, Offload, Role
from ggufspec.errors import OutOfMemoryError
from ggufspec.llama.install import Install
from ggufspec.sweep import Sweep

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
            memory.Settings(context=arm.context, n_ubatch=arm.ubatch or 512),
        ).host_bytes
        for block in sweep.blocks()
        for arm in block.arms
    )
    return max(1, machine.memory().free_bytes // 2 // most)


def check(sweep: Sweep, cards: Cards, install: Install, *, force: bool) -> Iterator[str]:
    """Yield what will hardly fit.

    Raises:
        OutOfMemoryError: something cannot fit, and nobody insisted.
    """
    room = machine.memory(install.gpus)
    can_adjust = any("--fit" in program.options for program in install.programs.values())
    for spec in (arm for block in sweep.blocks() for arm in block.arms if arm.role is not Role.DRAFTER):
        target, draft = cards[spec.model], cards[spec.drafter] if spec.drafter else None
        offload = spec.offload if install.gpu is not False else Offload(target_layers=0, draft_layers=0)
        settings = memory.Settings(
            context=spec.context,
            kv_type_k=(spec.kv_type or "f16").upper(),
            kv_type_v=(spec.kv_type or "f16").upper(),
            n_ubatch=spec.ubatch or 512,
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
