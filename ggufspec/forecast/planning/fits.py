"""Which pairs of the catalogue run on a machine: layers, the largest quant that fits, estimated tokens/s."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from ggufspec import machine
from ggufspec.domain import ModelRun, Offload, Pair
from ggufspec.errors import GgufspecError, NetworkError
from ggufspec.forecast import costs
from ggufspec.forecast.planning.plans import Planned, plan_pair
from ggufspec.forecast.whatif import Machines, parts_of
from ggufspec.llama.install import installs
from ggufspec.modelfiles import choosing, hub, memory

CONTEXT = 4096
"""Tokens in the context that pairs are planned with."""


class FetchState(StrEnum):
    """Whether the files of a pair are on this machine."""

    YES = "yes"
    PARTLY = "partly"
    NO = "no"


@dataclass(frozen=True, kw_only=True)
class Site:
    """The machine that pairs are planned for.

    Attributes:
        vram_bytes: the memory of each GPU; empty without one.
        memory_bytes: the memory of the host.
        gpu: the GPU's name in ``costs.DEVICES``, or its bandwidth; None if that is not known.
        host: likewise, the host's.
        cache_bytes: the largest cache of the host's processor; None if that is not known.
        notes: where these come from, as sentences.
    """

    vram_bytes: tuple[int, ...]
    memory_bytes: int
    gpu: str | None
    host: str
    cache_bytes: int | None = None
    notes: tuple[str, ...] = ()

    @property
    def has_gpu(self) -> bool:
        """Whether layers can be on a GPU."""
        return bool(self.vram_bytes)


@dataclass(frozen=True, kw_only=True)
class PairFit:
    """A pair on a machine; None is not known.

    Attributes:
        pair: its name.
        size_bytes: of all its files.
        fetched: whether these are here.
        fits: whether both models fit completely, on the GPU if there is one.
        gpu_layers: layers of the target that fit on the GPU, beside the drafter; None without a GPU.
        max_layers: how many the target has, with its output.
        quant: the largest quant of the target's repository that fits completely.
        quant_bytes: the size of its files.
        rate: tokens/s of the target alone, estimated by the machine's roofline.
        in_cache: whether the processor's cache can hold what is read for a token; there is no rate then.
        error: why anything is not known.
        is_unreachable: whether that is the network.
    """

    pair: str
    size_bytes: int | None = None
    fetched: FetchState = FetchState.NO
    fits: bool | None = None
    gpu_layers: int | None = None
    max_layers: int | None = None
    quant: str | None = None
    quant_bytes: int | None = None
    rate: float | None = None
    in_cache: bool = False
    error: str | None = None
    is_unreachable: bool = False


def detect_site(vram: Sequence[int] | None, gpu: str | None, host: str | None) -> Site:
    """Return the machine to plan for.

    Args:
        vram: the memory of each GPU; None for what is free on those that are here.
        gpu: a name of ``costs.DEVICES`` or a bandwidth; None for the detected GPU's, if it is known.
        host: likewise; None to read this machine's memory bandwidth.

    Raises:
        ValueError: a name is not known.
    """
    detected = installs.detect_gpus() if vram is None else ()
    notes = [f"detected: {card.name}" for card in detected]
    if gpu is None and detected:
        gpu = costs.match_device(detected[0].name)
    vram_bytes = tuple(card.free_bytes for card in detected) if vram is None else tuple(vram)
    cache_bytes = machine.last_cache_bytes() if host is None else None
    if host is None:
        bandwidth = machine.read_bandwidth(machine.usable_cores())
        host = f"{bandwidth / 1e9:.1f}G"
        notes.append(f"host: memory read here at {bandwidth / 1e9:.1f} GB/s")
    for name in filter(None, (gpu, host)):
        costs.find_device(name)
    if vram_bytes and gpu is None:
        notes.append("tokens/s of layers on the GPU are not known: name it with --machine")
    return Site(
        vram_bytes=vram_bytes,
        memory_bytes=machine.memory().total_bytes,
        gpu=gpu,
        host=host,
        cache_bytes=cache_bytes,
        notes=tuple(notes),
    )


def fit_pair(pair: Pair, site: Site, access: hub.Access) -> PairFit:
    """Return how a pair fits a machine; its headers are read, from the Hub where they are not here.

    A pair that is not available is a value with an error.
    """
    try:
        survey = hub.survey_pair(pair, access)
    except GgufspecError as error:
        return PairFit(pair=pair.name, error=error.message, is_unreachable=isinstance(error, NetworkError))
    size = sum(model.size_bytes or 0 for model in survey.pair.models)
    missing = survey.missing_bytes
    here = FetchState.YES if not missing else FetchState.PARTLY if missing < size else FetchState.NO
    try:
        planned = _plan(pair, survey.pair, site, access)
        quant = _largest_quant(survey.pair, planned, site, access)
    except (GgufspecError, ValueError) as error:
        return PairFit(
            pair=pair.name,
            size_bytes=size,
            fetched=here,
            error=error.message if isinstance(error, GgufspecError) else str(error),
            is_unreachable=isinstance(error, NetworkError),
        )
    chosen = planned.best or planned.plans[0]
    in_cache = not site.has_gpu and _read_bytes(planned, site) <= (site.cache_bytes or 0)
    return PairFit(
        pair=pair.name,
        size_bytes=size,
        fetched=here,
        fits=_needed_bytes(planned, site) <= _room_bytes(site),
        gpu_layers=chosen.target.gpu_layers if site.has_gpu else None,
        max_layers=chosen.target.max_layers,
        quant=None if quant is None else quant.quant or quant.filename,
        quant_bytes=None if quant is None else quant.size_bytes,
        rate=None if in_cache else planned.rate(chosen),
        in_cache=in_cache,
    )


def _plan(listed: Pair, pair: Pair, site: Site, access: hub.Access) -> Planned:
    """Return the plan of a pair; ``listed`` is how the catalogue names it, ``pair`` has its files."""
    cards = choosing.read_cards(pair, access)
    method = choosing.choose_way(listed, None, cards[1])
    settings = memory.MemorySettings(
        context=CONTEXT, mtp=cards[1] is None and choosing.drafts_by_mtp(method, cards[0])
    )
    offload = Offload() if site.has_gpu else Offload().on_processor
    return plan_pair(
        pair,
        cards,
        offload,
        settings,
        method=method,
        vram=site.vram_bytes,
        reserve=memory.RESERVE_BYTES,
        machine=site.gpu if site.has_gpu else site.host,
        host=site.host if site.gpu or not site.has_gpu else None,
    )


def _read_bytes(planned: Planned, site: Site) -> float:
    """Return what the host reads for one token of the target, with a full context."""
    machines = Machines.named(site.host, site.host, n_gpus=0)
    parts = parts_of(planned.target, Offload(target=ModelRun(layers=0)), machines, depth=CONTEXT)
    return sum(part.shape.read_bytes(1, CONTEXT) for part in parts)


def _needed_bytes(planned: Planned, site: Site) -> int:
    """Return what both models take completely on the GPU, or without one on the host."""
    return planned.plans[-1].gpu_bytes if site.has_gpu else planned.plans[0].host_bytes


def _room_bytes(site: Site) -> int:
    """Return the memory for models: of the GPUs together, or without one of the host."""
    return (sum(site.vram_bytes) if site.has_gpu else site.memory_bytes) - memory.RESERVE_BYTES


def _largest_quant(pair: Pair, planned: Planned, site: Site, access: hub.Access) -> hub.RemoteModel | None:
    """Return the largest quant of the target's repository that fits completely beside its drafter.

    Caches and scratch memory are those of the listed quant: they do not depend on it.
    """
    target = pair.target
    if target.repo is None:
        return None
    spare = _room_bytes(site) - _needed_bytes(planned, site) + (target.size_bytes or 0)
    fitting = [model for model in hub.list_models(target.repo, access) if model.size_bytes <= spare]
    return max(fitting, key=lambda model: model.size_bytes, default=None)
