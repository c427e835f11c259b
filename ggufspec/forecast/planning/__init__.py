"""How many layers of a pair fit on the GPU, and the tokens/s to expect at most? From headers alone.

Of one pair, for each number of layers; and which pairs of the catalogue fit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from ggufspec import machine
from ggufspec.domain import CacheTypes, Chain, Estimate, ModelRun, Offload, Pair
from ggufspec.errors import GgufspecError, NetworkError
from ggufspec.forecast import costs, profiles
from ggufspec.forecast.whatif import MachineMemory, Machines, PlacedPair, Places, forecast_rate, parts_of
from ggufspec.llama.install import installs
from ggufspec.llama.rpc import workers
from ggufspec.modelfiles import choosing, gguf, hub, memory
from ggufspec.modelfiles.memory import MemoryPlan
from ggufspec.options import PlanOptions, only, takes
from ggufspec.results import Configuration, read_configuration

__all__ = ["CONTEXT", "FetchState", "PairFit", "Planned", "Site", "detect_site", "fit_pair", "plan"]

PLACED_SIZES = (0, 1, 2, 4, 8, 16)
"""The draft sizes γ for which the fastest places are searched; 0 is the target alone."""

CONTEXT = 4096
"""Tokens in the context that pairs are planned with."""


@dataclass(frozen=True, kw_only=True)
class Planned:
    """The memory that a pair takes, for each number of the target's layers on the GPU.

    Attributes:
        pair: what is planned.
        target: the target's header.
        draft: the drafter's header; None without one.
        method: what drafts: the named method, or the pair's own; None where neither is known.
        plans: one for each number of layers, from none to all.
        shown: the plan for the requested number of layers, or else the best one.
        best: the plan with the most layers that fits; None if none does, or if ``vram_bytes`` is empty.
        vram_bytes: the memory of the GPUs, together or of each; empty if there is no GPU.
        reserve_bytes: what is left free of it.
        gpus: the GPUs that were detected; empty if their memory was given.
        rates: tokens/s of the target alone for each plan, with a full context, forecast from headers.
            Empty without machines; None where layers stay on a CPU that is not known.
        places: the fastest places that fit, by forecast, for each of ``PLACED_SIZES``; empty without
            machines or memory, and where places were asked for.
        notes: what the forecasts are computed for, as sentences.
    """

    pair: Pair
    target: gguf.ModelCard
    draft: gguf.ModelCard | None
    method: Chain | None
    plans: tuple[MemoryPlan, ...]
    shown: MemoryPlan
    best: MemoryPlan | None
    vram_bytes: tuple[int, ...]
    reserve_bytes: int
    gpus: tuple[machine.Gpu, ...] = ()
    rates: tuple[Estimate | None, ...] = ()
    places: tuple[Places, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def is_split(self) -> bool:
        """Whether layers are split over several GPUs whose memory is known."""
        return len(self.vram_bytes) > 1 and len(self.shown.target.gpus) > 1

    def fits(self, plan: MemoryPlan) -> bool | None:
        """Whether a plan fits; None if there is no GPU."""
        return memory.fits(plan, self.vram_bytes, self.reserve_bytes) if self.vram_bytes else None

    def rate(self, plan: MemoryPlan) -> Estimate | None:
        """Return the forecast tokens/s with a plan; None if they are not known."""
        return self.rates[plan.target.gpu_layers] if self.rates else None


@takes(PlanOptions, "pair")
def plan(asked: PlanOptions) -> Planned:
    """Plan memory and forecast tokens/s, as ``ggufspec plan`` does; only headers are read, also from the Hub.

    Raises:
        ValueError: the options contradict each other.
        GgufspecError: a model is not available, or there is no such tuning.
        WorkerError: a worker cannot be used.
    """
    access = hub.Access.of(asked)
    layout = memory.layout_for(asked.build)
    notes: tuple[str, ...] = ()
    if asked.tuned is not None:
        configuration = read_configuration(asked.tuned)
        spec = configuration.spec
        pair, offload, method = choosing.locate_pair(spec), spec.offload, None
        cards = choosing.read_cards(pair, access)
        settings = memory.settings_for(spec, layout)
        notes = (_describe_tuned(configuration),)
    else:
        pair = choosing.choose_pair(asked.pair, only(asked.target), only(asked.draft_model), access)
        cards = target_card, draft_card = choosing.read_cards(pair, access)
        method = choosing.choose_way(pair, only(asked.method), draft_card)
        settings = memory.MemorySettings(
            context=asked.ctx,
            n_ubatch=only(asked.ubatch),
            mtp=draft_card is None and choosing.drafts_by_mtp(method, target_card),
            layout=layout,
            projector_bytes=gguf.projector_bytes(only(asked.mmproj)),
        )
        target_caches, draft_caches = _caches(asked)
        offload = Offload(
            target=ModelRun(layers=only(asked.ngl), cpu_moe=only(asked.cpu_moe), caches=target_caches),
            drafter=ModelRun(layers=only(asked.ngld), cpu_moe=only(asked.draft_cpu_moe), caches=draft_caches),
            tensor_split=only(asked.tensor_split) or (),
            rpc=asked.rpcs[0],
        )
    planned = plan_pair(
        pair,
        cards,
        offload,
        settings,
        method=method,
        vram=asked.vram,
        reserve_bytes=asked.reserve,
        machine=asked.machine,
        host=asked.host,
    )
    places = _fastest_places(asked, planned, offload, settings)
    if places and planned.target.n_experts:
        notes = (*notes, costs.describe_experts(profiles.kept_experts(planned.target)))
    return replace(planned, places=places, notes=(*notes, *planned.notes))


def _fastest_places(
    asked: PlanOptions, planned: Planned, offload: Offload, settings: memory.MemorySettings
) -> tuple[Places, ...]:
    """Return the fastest places for each draft size; () where they were asked for, or too little is known."""
    is_open = offload.target.layers == "auto" and offload.target.cpu_moe is None
    if asked.machine is None or asked.host is None or not planned.vram_bytes or not is_open:
        return ()
    n_gpus = max(len(planned.vram_bytes), len(offload.tensor_split))
    return PlacedPair(
        target=planned.target,
        draft=planned.draft,
        settings=settings,
        offload=offload,
        machines=Machines.named(asked.machine, asked.host, n_gpus=n_gpus),
        room=MachineMemory(
            vram_bytes=planned.vram_bytes, host_bytes=asked.ram, reserve_bytes=planned.reserve_bytes
        ),
        depth=settings.context,
        experts=profiles.kept_experts(planned.target),
    ).fastest(PLACED_SIZES if planned.draft is not None else PLACED_SIZES[:1])


def _caches(asked: PlanOptions) -> tuple[CacheTypes, CacheTypes]:
    """Return the types of the target's caches, and of the drafter's, which are the same unless named."""
    both, draft = only(asked.kv_type), only(asked.kv_type_draft)
    target = CacheTypes(only(asked.cache_type_k) or both, only(asked.cache_type_v) or both)
    return target, CacheTypes(
        only(asked.cache_type_k_draft) or draft or target.type_k,
        only(asked.cache_type_v_draft) or draft or target.type_v,
    )


def _describe_tuned(configuration: Configuration) -> str:
    serving = configuration.serving
    slots = "" if serving.slots == 1 else f" in each of {serving.slots} slots"
    return f"tuned: {configuration.id}, for a context of {serving.context:,} tokens{slots}"


def plan_pair(
    pair: Pair,
    cards: tuple[gguf.ModelCard, gguf.ModelCard | None],
    offload: Offload,
    settings: memory.MemorySettings,
    *,
    method: Chain | None = None,
    vram: Sequence[int] | None,
    reserve_bytes: int,
    machine: str | None,
    host: str | None,
) -> Planned:
    """Return the plan of a pair.

    Args:
        pair: the models.
        cards: their headers.
        offload: where their layers go; "auto" layers of the target are as many as fit. A drafter beside
            workers is on this machine.
        settings: how they are run.
        method: what drafts, if that is known.
        vram: the memory of each GPU in bytes; None for what is free.
        reserve_bytes: GPU memory to leave free.
        machine: the GPU, for tokens/s; see ``plan``.
        host: the machine that computes layers that are not on a GPU.

    Raises:
        ValueError: the arguments contradict each other.
        WorkerError: a worker cannot be used.
    """
    target_card, draft_card = cards
    gpus = installs.detect_gpus() if vram is None else ()
    if offload.rpc and vram is None:
        if not gpus and not offload.lends_to_drafter:
            offload = offload.with_layers(drafter=0)
        gpus = (*workers.list_gpus(workers.read_workers(offload.rpc)), *gpus)
    vram_bytes = tuple(gpu.free_bytes for gpu in gpus) if vram is None else tuple(vram)
    plans = memory.plan_each_offload(target_card, draft_card, settings, offload)
    best = memory.best_fit(plans, vram_bytes, reserve_bytes) if vram_bytes else None
    shown = best or plans[0 if vram_bytes else -1]
    if offload.target.layers != "auto":
        layers = offload.target.layers
        shown = plans[min(layers, len(plans) - 1) if isinstance(layers, int) else -1]
    if machine is None and host is not None:
        raise ValueError("--host needs --machine, the GPU")
    machines = machine and Machines.named(machine, host, n_gpus=len(offload.tensor_split))
    return Planned(
        pair=pair,
        target=target_card,
        draft=draft_card,
        method=method,
        plans=plans,
        shown=shown,
        best=best,
        vram_bytes=vram_bytes,
        reserve_bytes=reserve_bytes,
        gpus=gpus,
        rates=_rates(target_card, len(plans), offload, machines, settings) if machines else (),
        notes=machines.notes if machines else (),
    )


def _rates(
    card: gguf.ModelCard, count: int, offload: Offload, machines: Machines, settings: memory.MemorySettings
) -> tuple[Estimate | None, ...]:
    """Return the forecast tokens/s for each number of layers on the GPU; None where a machine is missing."""

    def rate(layers: int) -> Estimate | None:
        placed = offload.with_layers(layers)
        try:
            parts = parts_of(card, placed, machines, depth=settings.context, settings=settings)
        except ValueError:  # layers on a host that is not known
            return None
        return forecast_rate(parts, settings.context)

    return tuple(map(rate, range(count)))


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
        host: the host's name there, or its bandwidth; None if that is not known.
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
        fitting_layers: layers of the target that fit on the GPU, beside the drafter; None without a GPU.
        max_layers: how many the target has, with its output.
        quant: the largest quant of the target's repository that fits completely.
        quant_bytes: the size of its files.
        rate: tokens/s of the target alone, forecast from headers and the machine's peaks.
        in_cache: whether the processor's cache can hold what is read for a token; there is no rate then.
        error: why anything is not known.
        is_unreachable: whether that is the network.
    """

    pair: str
    size_bytes: int | None = None
    fetched: FetchState = FetchState.NO
    fits: bool | None = None
    fitting_layers: int | None = None
    max_layers: int | None = None
    quant: str | None = None
    quant_bytes: int | None = None
    rate: Estimate | None = None
    in_cache: bool = False
    error: str | None = None
    is_unreachable: bool = False


def detect_site(vram: Sequence[int] | None, gpu: str | None, host: str | None) -> Site:
    """Return the machine to plan for.

    Args:
        vram: the memory of each GPU; None for what is free on those that are here.
        gpu: a name of ``costs.DEVICES`` or a bandwidth; None for the detected GPU's, if it is known.
        host: a name of ``costs.DEVICES`` or a bandwidth; None to read this machine's memory bandwidth.

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
    known: dict[str, Any] = {"pair": pair.name}
    try:
        survey = hub.survey_pair(pair, access)
        size, missing = sum(model.size_bytes or 0 for model in survey.pair.models), survey.missing_bytes
        here = FetchState.YES if not missing else FetchState.PARTLY if missing < size else FetchState.NO
        known |= {"size_bytes": size, "fetched": here}
        planned = _plan(pair, survey.pair, site, access)
        quant = _largest_quant(survey.pair, planned, site, access)
    except (GgufspecError, ValueError) as error:
        said = error.message if isinstance(error, GgufspecError) else str(error)
        return PairFit(**known, error=said, is_unreachable=isinstance(error, NetworkError))
    chosen = planned.best or planned.plans[0]
    in_cache = not site.has_gpu and _read_bytes(planned, site) <= (site.cache_bytes or 0)
    return PairFit(
        **known,
        fits=_needed_bytes(planned, site) <= _room_bytes(site),
        fitting_layers=chosen.target.gpu_layers if site.has_gpu else None,
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
        reserve_bytes=memory.RESERVE_BYTES,
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
