"""``fetch --largest``: the largest pair of the catalogue that fits into memory, by the memory plan."""

from __future__ import annotations

from ggufspec import machine
from ggufspec.domain import ModelRun, Offload
from ggufspec.errors import GgufspecError, OutOfMemoryError
from ggufspec.llama.install import installs
from ggufspec.modelfiles import catalog, hub, memory
from ggufspec.steps import Sink
from ggufspec.units import format_bytes

CONTEXT = 4096


def choose_largest(access: hub.Access, sink: Sink) -> str:
    """Return the name of the largest pair that fits completely; the sink gets the reason.

    The largest target counts, then the smallest drafter. Headers are read only of pairs whose files alone
    would fit, from the largest down.

    Raises:
        OutOfMemoryError: not even the smallest fits.
    """
    available, place, offload = _detect_memory()
    for survey in sorted(_survey_catalogue(access, sink), key=_order):
        target, draft = survey.pair.target, survey.pair.draft
        if draft is None or sum(_sizes(survey)) + memory.RESERVE_BYTES > available:
            continue
        cards = [hub.read_card(model, access) for model in (target, draft)]
        plan = memory.plan(cards[0], cards[1], offload, memory.MemorySettings(context=CONTEXT))
        needed = plan.gpu_bytes if offload.target.layers == "all" else plan.host_bytes
        if needed + memory.RESERVE_BYTES <= available:
            sink.say(
                f"{survey.pair.name} is the largest pair that fits: {format_bytes(needed)} with a context of "
                f"{CONTEXT} tokens, of {format_bytes(available)} {place}"
            )
            return survey.pair.name
    raise OutOfMemoryError(
        f"no pair of the catalogue fits into {format_bytes(available)} {place}",
        "name a smaller one with --target",
    )


def _sizes(survey: hub.Survey) -> tuple[int, int]:
    """Return the bytes of a pair's target and of its drafter."""
    draft = survey.pair.draft
    return survey.pair.target.size_bytes or 0, (draft.size_bytes or 0) if draft else 0


def _order(survey: hub.Survey) -> tuple[int, int]:
    target, draft = _sizes(survey)
    return -target, draft


def _survey_catalogue(access: hub.Access, sink: Sink) -> list[hub.Survey]:
    """Look up every pair on the Hub; unavailable ones are counted and left out."""
    surveys: list[hub.Survey] = []
    failures: list[GgufspecError] = []
    for pair in sink.each([*catalog.load_catalogue().values()], lambda pair: pair.name):
        try:
            surveys.append(hub.survey_pair(pair, access))
        except GgufspecError as error:
            failures.append(error)
    if failures:
        sink.say(f"{len(failures)} unavailable pairs are left out; the first: {failures[0].message}")
    return surveys


def _detect_memory() -> tuple[int, str, Offload]:
    """Return the available memory in bytes, its place, and the offload: all layers, or none."""
    vram = sum(gpu.free_bytes for gpu in installs.detect_gpus())
    if vram:
        return vram, "free on the GPU", Offload(target=ModelRun(layers="all"), drafter=ModelRun(layers="all"))
    return machine.snapshot().memory_bytes, "of memory", Offload().on_processor
