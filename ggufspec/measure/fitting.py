"""Whether the requested configurations fit into memory, and how many loads of them at once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from ggufspec import engines, machine
from ggufspec.domain import Layers, ModelFile, Program, Role, RunSpec
from ggufspec.errors import OutOfMemoryError
from ggufspec.llama.command import commands
from ggufspec.llama.install import Install
from ggufspec.llama.rpc import workers
from ggufspec.measure.arms import PlannedArms
from ggufspec.measure.models import ChosenModels
from ggufspec.measure.programs import ChosenEngine
from ggufspec.measure.sweep import Sweep
from ggufspec.modelfiles import gguf, memory
from ggufspec.options import BenchOptions

Cards = Mapping[ModelFile, gguf.ModelCard]

_MOST_LOADS = 32  # at once; more would only be processes that wait


@dataclass(frozen=True, kw_only=True)
class PlannedMemory:
    """How many loads of the models are held at once, and notes on configurations that may not fit."""

    loads_at_once: int
    notes: tuple[str, ...]


def plan_memory(
    request: BenchOptions, models: ChosenModels, engine: ChosenEngine, arms: PlannedArms
) -> PlannedMemory:
    """Compare what the arms need with what is free.

    Raises:
        OutOfMemoryError: a configuration cannot fit, and it is not forced.
    """
    notes = dict.fromkeys(
        note
        for install in engine.installs
        for note in _describe_tight(arms.sweep, models.cards, install, engine, force=request.force)
    )
    most = (capacity(arms.sweep, models.cards, install) for install in engine.installs)
    return PlannedMemory(loads_at_once=min(_MOST_LOADS, *most), notes=tuple(notes))


def capacity(sweep: Sweep, cards: Cards, install: Install) -> int:
    """Return how many loads of these models may be held at once: one on a GPU, else half of the free memory.

    A worker serves one program at a time.

    Weights are mapped from the file and shared, but llama.cpp repacks some of them into copies for the
    processor.
    """
    if install.gpu is not False or any(sweep.rpcs):
        return 1
    layout = memory.layout_for(install.build_number)
    most = max(
        memory.plan(
            cards[arm.model],
            cards[arm.drafter] if arm.drafter else None,
            arm.offload.on_processor,
            memory.settings_for(arm, layout),
        ).all_bytes
        for arm in _largest_arms(sweep)
    )
    return max(1, machine.memory().free_bytes // 2 // most)


def _describe_tight(
    sweep: Sweep, cards: Cards, install: Install, engine: ChosenEngine, *, force: bool
) -> Iterator[str]:
    """Yield a note for each configuration that may not fit; with ``force``, for those that cannot, too.

    Arms on workers that did not answer are not judged.
    """
    can_adjust = any(commands.can_adjust(program.options) for program in install.programs.values())
    layout = memory.layout_for(install.build_number)
    for spec in (arm for arm in _largest_arms(sweep) if arm.role is not Role.DRAFTER):
        target, draft = cards[spec.model], cards[spec.drafter] if spec.drafter else None
        if not engine.workers.keys() >= {*spec.offload.rpc}:
            continue
        lent = [engine.workers[address] for address in spec.offload.rpc]
        with_workers = workers.with_devices(install, lent)
        room = machine.memory(with_workers.gpus)
        offload = spec.offload if with_workers.gpu is not False else spec.offload.on_processor
        if install.gpu is False and not offload.lends_to_drafter:
            offload = offload.with_layers(drafter=0)
        is_plain = engines.program_for(engine.name, spec) is Program.PLAIN
        settings = memory.settings_for(spec, layout, plain=is_plain)
        verdict = memory.verdict(
            memory.plan(target, draft, offload, settings),
            room,
            alternatives=partial(memory.plan_each_offload, target, draft, settings, offload),
            adjusts_layers=can_adjust and offload.target.wants_gpu is None,
        )
        if verdict.outcome is memory.MemoryFit.IMPOSSIBLE and not force:
            raise OutOfMemoryError(verdict.reason, f"{verdict.hint}, or run it anyway with --force")
        if verdict.outcome is not memory.MemoryFit.FITS:
            yield f"memory: {verdict.reason}" + (f"; {verdict.hint}" if verdict.hint else "")


def _largest_arms(sweep: Sweep) -> Iterator[RunSpec]:
    """Yield arms of which at least one needs as much memory on each device as any arm of the sweep.

    Longer drafts and larger batches need more; layers move it from the host to a GPU.
    """
    few = replace(
        sweep,
        target_layers=_ends(sweep.target_layers),
        draft_layers=_ends(sweep.draft_layers),
        draft_sizes=(max(sweep.draft_sizes),) if sweep.draft_sizes else (),
        ubatches=(max(sweep.ubatches, key=lambda tokens: tokens or memory.DEFAULT_UBATCH),),
        p_mins=sweep.p_mins[:1],
        threads=sweep.threads[:1],
        traffics=(max(sweep.traffics, key=lambda traffic: traffic.users if traffic else 0),),
    )
    return (arm for block in few.blocks() for arm in block.arms)


def _ends(choices: Sequence[Layers]) -> tuple[Layers, ...]:
    """Return the smallest and the largest number of layers, and the words ("all", "auto")."""
    numbers = [layers for layers in choices if isinstance(layers, int)]
    words = [layers for layers in choices if not isinstance(layers, int)]
    return tuple(dict.fromkeys((*([min(numbers), max(numbers)] if numbers else ()), *words)))
