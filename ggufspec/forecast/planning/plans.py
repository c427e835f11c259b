"""``ggufspec.plan``: how many layers of a pair fit on the GPU, and the tokens/s to expect of that at most."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ggufspec.domain import CacheTypes, Chain, ModelRun, Offload, Pair
from ggufspec.forecast.whatif import Machines, parts_of, roofline_rate
from ggufspec.llama.install import installs
from ggufspec.llama.rpc import workers
from ggufspec.machine import Gpu
from ggufspec.modelfiles import choosing, hub, memory
from ggufspec.modelfiles.gguf import ModelCard
from ggufspec.modelfiles.memory import MemoryPlan
from ggufspec.options import PlanOptions, only, takes
from ggufspec.results import Configuration, read_configuration
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


@takes(PlanOptions, "pair")
def plan(asked: PlanOptions) -> Planned:
    """Plan memory and forecast tokens/s, as ``ggufspec plan`` does; only headers are read, also from the Hub.

    Raises:
        ValueError: the options contradict each other.
        GgufspecError: a model is not available, or there is no such tuning.
        WorkerError: a worker cannot be used.
    """
    access = hub.Access.of(asked)
    if asked.tuned is not None:
        configuration = read_configuration(asked.tuned)
        spec = configuration.spec
        pair = choosing.locate_pair(spec)
        settings = memory.settings_for(spec, memory.layout_for(asked.build))
        planned = _plan_as_asked(asked, pair, choosing.read_cards(pair, access), spec.offload, settings)
        return replace(planned, notes=(_describe_tuned(configuration), *planned.notes))
    pair = choosing.chosen_by(asked, access)
    cards = target_card, draft_card = choosing.read_cards(pair, access)
    method = choosing.choose_way(pair, only(asked.method), draft_card)
    settings = memory.MemorySettings(
        context=asked.ctx,
        n_ubatch=only(asked.ubatch),
        mtp=draft_card is None and choosing.drafts_by_mtp(method, target_card),
        layout=memory.layout_for(asked.build),
    )
    target_caches, draft_caches = _caches(asked)
    offload = Offload(
        target=ModelRun(layers=only(asked.ngl), cpu_moe=asked.cpu_moe, caches=target_caches),
        drafter=ModelRun(layers=only(asked.ngld), cpu_moe=asked.draft_cpu_moe, caches=draft_caches),
        tensor_split=asked.tensor_split or (),
        rpc=asked.rpcs[0],
    )
    return _plan_as_asked(asked, pair, cards, offload, settings, method)


def _plan_as_asked(
    asked: PlanOptions,
    pair: Pair,
    cards: tuple[ModelCard, ModelCard | None],
    offload: Offload,
    settings: memory.MemorySettings,
    method: Chain | None = None,
) -> Planned:
    """Return the plan of a pair for the GPUs and the machines of options."""
    return plan_pair(
        pair,
        cards,
        offload,
        settings,
        method=method,
        vram=asked.vram,
        reserve=asked.reserve,
        machine=asked.machine,
        host=asked.host,
    )


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
