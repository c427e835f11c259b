"""``fetch --fit``: the largest pair of the catalogue that this machine holds, by the memory plan."""

from __future__ import annotations

from ggufspec import machine
from ggufspec.cli.entry.output import echo, following
from ggufspec.domain import Offload
from ggufspec.errors import GgufspecError, OutOfMemoryError
from ggufspec.llama.install import installs
from ggufspec.modelfiles import catalog, hub, memory
from ggufspec.units import format_bytes

CONTEXT = 4096


def largest(access: hub.Access) -> tuple[str, str]:
    """Return the name of the largest pair that fits wholly, and why.

    Headers are read only of pairs whose files alone would fit, from the largest down.

    Raises:
        OutOfMemoryError: not even the smallest fits.
    """
    room, where, offload = _room()
    surveys = _surveys(access)
    for size, found in sorted(surveys, key=lambda pair: -pair[0]):
        if size + memory.RESERVE_BYTES > room or found.pair.draft is None:
            continue
        cards = [hub.read_card(model, access) for model in (found.pair.target, found.pair.draft)]
        plan = memory.plan(cards[0], cards[1], offload, memory.Settings(context=CONTEXT))
        needed = plan.gpu_bytes if offload.target_layers == "all" else plan.host_bytes
        if needed + memory.RESERVE_BYTES <= room:
            return found.pair.name, (
                f"{found.pair.name} is the largest pair that fits: {format_bytes(needed)} with a context of "
                f"{CONTEXT}, of {format_bytes(room)} {where}"
            )
    raise OutOfMemoryError(
        f"no pair of the catalogue fits into {format_bytes(room)} {where}", "name a smaller one with --target"
    )


def _surveys(access: hub.Access) -> list[tuple[int, hub.Survey]]:
    """Ask for every pair; those that are not to be had are counted and left out."""
    surveys: list[tuple[int, hub.Survey]] = []
    failures: list[GgufspecError] = []
    for pair in following([*catalog.load().values()], lambda each: each.name):
        try:
            found = hub.survey_pair(pair, access)
        except GgufspecError as error:
            failures.append(error)
        else:
            size = sum(model.size_bytes or 0 for model in (found.pair.target, found.pair.draft) if model)
            surveys.append((size, found))
    if failures:
        echo(f"{len(failures)} pairs are left out: {failures[0].message}, …", err=True)
    return surveys


def _room() -> tuple[int, str, Offload]:
    """Return the memory to fill, its name, and what goes to the GPU: all of it, or nothing."""
    vram = sum(gpu.free_bytes for gpu in installs.detect_gpus())
    if vram:
        return vram, "free on the GPU", Offload(target_layers="all", draft_layers="all")
    return machine.snapshot().memory_bytes, "of memory", Offload(target_layers=0, draft_layers=0)
