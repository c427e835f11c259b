"""``ggufspec.plan``: how many layers of a pair fit on the GPU, and the tokens/s to expect of that at most."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ggufspec.domain import CacheTypes, Chain, Experts, Layers, ModelRun, Offload, Pair
from ggufspec.forecast.whatif import Machines, parts_of, roofline_rate
from ggufspec.llama.install import installs
from ggufspec.llama.rpc import workers
from ggufspec.machine import Gpu
from ggufspec.modelfiles import choosing, hub, memory
from ggufspec.modelfiles.gguf import ModelCard
from ggufspec.modelfiles.memory import MemoryPlan
from ggufspec.notebooks import named_options
from ggufspec.options import NO_WORKERS, parse_workers
from ggufspec.units import parse_memory

Size = str | int
"""An amount of memory: ``24G``, or bytes."""


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
        rates: tokens/s of the target alone for each plan, with a full context, estimated by rooflines.
            Empty without machines; None where layers stay on a CPU that is not known.
        notes: what the rooflines are computed for, as sentences.
    """

    pair: Pair
    target: ModelCard
    draft: ModelCard | None
    method: Chain | None
    plans: tuple[MemoryPlan, ...]
    shown: MemoryPlan
    best: MemoryPlan | None
    vram_bytes: tuple[int, ...]
    reserve_bytes: int
    gpus: tuple[Gpu, ...] = ()
    rates: tuple[float | None, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def is_split(self) -> bool:
        """Whether layers are split over several GPUs whose memory is known."""
        return len(self.vram_bytes) > 1 and len(self.shown.target.gpus) > 1

    def fits(self, plan: MemoryPlan) -> bool | None:
        """Whether a plan fits; None if there is no GPU."""
        return memory.fits(plan, self.vram_bytes, self.reserve_bytes) if self.vram_bytes else None

    def rate(self, plan: MemoryPlan) -> float | None:
        """Return the estimated tokens/s with a plan; None if they are not known."""
        return self.rates[plan.target.gpu_layers] if self.rates else None


@named_options
def plan(
    pair: str | None = None,
    *,
    target: str | None = None,
    draft_model: str | None = None,
    method: str | None = None,
    vram: Size | Sequence[Size] | None = None,
    reserve: Size = memory.RESERVE_BYTES,
    ctx: int = 4096,
    ngl: Layers = "auto",
    ngld: Layers = "auto",
    tensor_split: Sequence[float] | None = None,
    cpu_moe: Experts | None = None,
    draft_cpu_moe: Experts | None = None,
    rpc: str | None = None,
    kv_type: str = "f16",
    cache_type_k: str | None = None,
    cache_type_v: str | None = None,
    kv_type_draft: str | None = None,
    cache_type_k_draft: str | None = None,
    cache_type_v_draft: str | None = None,
    ubatch: int = memory.DEFAULT_UBATCH,
    build: int | None = None,
    machine: str | None = None,
    host: str | None = None,
    offline: bool = False,
    token: str | None = None,
) -> Planned:
    """Plan memory and forecast tokens/s, as ``ggufspec plan`` does; only headers are read, also from the Hub.

    Args:
        pair: pair of the catalogue; by default the one fetched last, otherwise the embedded one.
        target: a path or a model reference such as "user/repo:Q4_K_M", instead of ``pair``.
        draft_model: likewise, for the drafter.
        method: what drafts, such as "draft-mtp" for layers of the target; by default the pair's own method.
        vram: GPU memory such as "24G", or that of each GPU; by default what is free.
        reserve: GPU memory to leave free.
        ctx: context size in tokens.
        ngl: target layers on the GPU; "auto" is as many as fit.
        ngld: drafter layers on the GPU; "auto" is all.
        tensor_split: proportions of the layers on each GPU.
        cpu_moe: layers of the target, counted from the first, whose experts stay on the host.
        draft_cpu_moe: likewise for the drafter.
        rpc: workers whose devices count, such as "a:50052,b:50052", unless ``vram`` says what there is; they
            are asked for their memory.
        kv_type: type of both caches.
        cache_type_k: type of the K cache, instead.
        cache_type_v: type of the V cache, instead.
        kv_type_draft: type of both caches of the drafter; by default the target's.
        cache_type_k_draft: type of the drafter's K cache; by default ``kv_type_draft``.
        cache_type_v_draft: likewise for its V cache.
        ubatch: physical batch size in tokens.
        build: build number of llama.cpp; by default the newest.
        machine: the GPU, for tokens/s: a name of ``costs.DEVICES``, or its memory bandwidth ("936G"); several
            with commas.
        host: likewise, the machine that computes layers that are not on a GPU.
        offline: use only cached files.
        token: access token for the Hub.

    Raises:
        ValueError: the options contradict each other.
        GgufspecError: a model is not available.
        WorkerError: a worker cannot be used.
    """
    access = hub.Access(token=token, offline=offline)
    chosen = choosing.choose_pair(pair, target, draft_model, access)
    target_card, draft_card = choosing.read_cards(chosen, access)
    way = choosing.choose_way(chosen, method, draft_card)
    caches = CacheTypes(cache_type_k or kv_type, cache_type_v or kv_type)
    draft_k, draft_v = cache_type_k_draft or kv_type_draft, cache_type_v_draft or kv_type_draft
    draft_caches = CacheTypes(draft_k or caches.type_k, draft_v or caches.type_v)
    settings = memory.MemorySettings(
        context=ctx,
        n_ubatch=ubatch,
        mtp=draft_card is None and choosing.drafts_by_mtp(way, target_card),
        layout=memory.layout_for(build),
    )
    offload = Offload(
        target=ModelRun(layers=ngl, cpu_moe=cpu_moe, caches=caches),
        drafter=ModelRun(layers=ngld, cpu_moe=draft_cpu_moe, caches=draft_caches),
        tensor_split=tuple(tensor_split or ()),
        rpc=parse_workers(rpc or NO_WORKERS),
    )
    return plan_pair(
        chosen,
        (target_card, draft_card),
        offload,
        settings,
        method=way,
        vram=vram,
        reserve=reserve,
        machine=machine,
        host=host,
    )


def plan_pair(
    pair: Pair,
    cards: tuple[ModelCard, ModelCard | None],
    offload: Offload,
    settings: memory.MemorySettings,
    *,
    method: Chain | None = None,
    vram: Size | Sequence[Size] | None,
    reserve: Size,
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
        vram: GPU memory, or that of each GPU; None for what is free.
        reserve: GPU memory to leave free.
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
    vram_bytes = tuple(gpu.free_bytes for gpu in gpus) if vram is None else _sizes(vram)
    reserve_bytes = parse_memory(reserve)
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


def _sizes(vram: Size | Sequence[Size]) -> tuple[int, ...]:
    return (parse_memory(vram),) if isinstance(vram, str | int) else tuple(map(parse_memory, vram))


def _rates(
    card: ModelCard, count: int, offload: Offload, machines: Machines, settings: memory.MemorySettings
) -> tuple[float | None, ...]:
    """Return the estimated tokens/s for each number of layers on the GPU; None where a machine is missing."""

    def rate(layers: int) -> float | None:
        placed = offload.with_layers(layers)
        try:
            parts = parts_of(card, placed, machines, depth=settings.context, settings=settings)
        except ValueError:  # layers on a host that is not known
            return None
        return roofline_rate(parts, settings.context)

    return tuple(map(rate, range(count)))
