"""The options of the commands as typed values; imported when a command runs, so that ``--help`` is fast."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ggufspec.choices import Experts, Layers, SplitMode
from ggufspec.domain import ModelRun, NgramSettings, Offload, Runtime, ServiceLevel
from ggufspec.errors import GgufspecError

if TYPE_CHECKING:
    from ggufspec.forecast import planning
    from ggufspec.forecast.whatif import WhatIf
    from ggufspec.measure import Request

_F16 = "f16"  # llama.cpp's default of each cache, in every era


@dataclass(frozen=True, kw_only=True)
class PlacementOptions:
    """Where models go, besides --ngl and --ngld. None where an option was not given."""

    fit: str | None
    devices: tuple[str, ...] | None
    draft_devices: tuple[str, ...] | None
    tensor_split: tuple[float, ...] | None
    split_mode: str | None
    main_gpu: int | None
    cpu_moe: Experts | None
    draft_cpu_moe: Experts | None
    rpc: str | tuple[str, ...] | None

    def to_offload(self) -> Offload:
        """Return the placement, with llama.cpp's defaults for numbers of layers."""
        return Offload(
            fit=None if self.fit is None else self.fit == "on",
            target=ModelRun(devices=self.devices or (), cpu_moe=self.cpu_moe),
            drafter=ModelRun(devices=self.draft_devices or (), cpu_moe=self.draft_cpu_moe),
            tensor_split=self.tensor_split or (),
            split_mode=None if self.split_mode is None else SplitMode(self.split_mode),
            main_gpu=self.main_gpu,
        )


@dataclass(frozen=True, kw_only=True)
class RuntimeOptions:
    """llama.cpp's settings besides placement. Tuples are axes; None where an option was not given."""

    kv_type: tuple[str, ...] | None
    cache_type_k: tuple[str, ...] | None
    cache_type_v: tuple[str, ...] | None
    kv_type_draft: tuple[str, ...] | None
    cache_type_k_draft: tuple[str, ...] | None
    cache_type_v_draft: tuple[str, ...] | None
    draft_backend_sampling: tuple[str, ...] | None
    flash_attn: tuple[str, ...] | None
    batch: tuple[int, ...] | None
    ubatch: tuple[int, ...] | None
    override_tensor: str | tuple[str, ...] | None
    mlock: bool
    no_mmap: bool
    numa: tuple[str, ...] | None
    cpu_mask: str | tuple[str, ...] | None
    prio: tuple[str, ...] | None
    poll: tuple[int, ...] | None
    args: str | tuple[str, ...] | None
    draft_args: str | tuple[str, ...] | None

    def to_caches(self) -> tuple[str, ...] | None:
        """Return the types of the target's caches, see ``CacheTypes.parse``.

        A type of a cache that llama.cpp leaves at f16 is f16.

        Raises:
            GgufspecError: both caches and one of them were given.
        """
        if self.kv_type and (self.cache_type_k or self.cache_type_v):
            raise GgufspecError("--kv-type is for both caches", "give either --kv-type or -ctk and -ctv")
        return self.kv_type or _pairs(self.cache_type_k, self.cache_type_v)

    def to_draft_caches(self) -> tuple[str, ...] | None:
        """Return the types of the drafter's caches, likewise.

        Raises:
            GgufspecError: both caches and one of them were given.
        """
        if self.kv_type_draft and (self.cache_type_k_draft or self.cache_type_v_draft):
            raise GgufspecError(
                "--kv-type-draft is for both caches", "give either --kv-type-draft or -ctkd and -ctvd"
            )
        return self.kv_type_draft or _pairs(self.cache_type_k_draft, self.cache_type_v_draft)

    def to_runtimes(self) -> Runtime | tuple[Runtime, ...]:
        """Return every combination of the settings, or the only one.

        Raises:
            GgufspecError: the quotes of arguments are not closed.
        """
        axes: dict[str, tuple[Any, ...] | None] = {
            "draft_backend_sampling": self.draft_backend_sampling,
            "flash_attn": self.flash_attn,
            "batch": self.batch,
            "override_tensor": _texts(self.override_tensor),
            "numa": self.numa,
            "cpu_mask": _texts(self.cpu_mask),
            "prio": tuple(map(int, self.prio or ())),
            "poll": self.poll,
            "args": _arguments(self.args),
            "draft_args": _arguments(self.draft_args),
        }
        fixed: dict[str, Any] = {"mlock": self.mlock or None, "mmap": False if self.no_mmap else None}
        combinations = product(*(values or (None,) for values in axes.values()))
        runtimes = (Runtime(**dict(zip(axes, values, strict=True)), **fixed) for values in combinations)
        first, *others = dict.fromkeys(runtimes)
        return (first, *others) if others else first


def _pairs(k: tuple[str, ...] | None, v: tuple[str, ...] | None) -> tuple[str, ...] | None:
    """Return every pair of types of K and V caches; llama.cpp leaves the one that is not named at f16."""
    if not k and not v:
        return None
    return tuple(f"{one},{other}" for one, other in product(k or (_F16,), v or (_F16,)))


def _texts(given: str | tuple[str, ...] | None) -> tuple[str, ...]:
    return given if isinstance(given, tuple) else () if given is None else (given,)


def _arguments(given: str | tuple[str, ...] | None) -> tuple[tuple[str, ...], ...]:
    """Return the arguments of each value; ``|`` separates values, and ``--`` may stand before them.

    Raises:
        GgufspecError: quotes are not closed.
    """
    values: list[list[str]] = []
    for text in _texts(given):
        try:
            words = shlex.split(text)
        except ValueError as error:
            message = f"the arguments {text!r} cannot be read: {error}"
            raise GgufspecError(message, "close the quotes") from error
        values.append([])
        for word in words[1:] if words[:1] == ["--"] else words:
            if word == "|":
                values.append([])
            else:
                values[-1].append(word)
    return tuple(map(tuple, values)) or ((),)


@dataclass(frozen=True, kw_only=True)
class RunOptions(PlacementOptions, RuntimeOptions):
    """A pair and how it runs: what a bench and a chat have in common.

    Tuples are axes. None, or an empty tuple, where an option was not given and has no default.
    """

    pair: str | None
    target: str | tuple[str, ...] | None
    draft_model: str | tuple[str, ...] | None
    offline: bool
    token: str | None
    yes: bool
    method: tuple[str, ...] | None
    ngram: NgramSettings | tuple[NgramSettings, ...] | None
    draft: int | tuple[int, ...] | None
    ngl: Layers | tuple[Layers, ...]
    ngld: Layers | tuple[Layers, ...]
    ctx: int | None
    threads: int | tuple[int, ...] | None
    n_predict: int
    temp: float | None
    top_k: int | None
    top_p: float
    min_p: float
    seed: int
    chat: bool | None
    system: str | None
    llama: Path | tuple[Path, ...] | None
    force: bool

    def to_request(self) -> Request:
        """Return the request of one bench with these options."""
        from ggufspec.measure import Request

        return Request(
            pair=self.pair,
            target=self.target or None,
            draft_model=self.draft_model or None,
            method=self.method,
            ngram=self.ngram or NgramSettings(),
            offline=self.offline,
            token=self.token,
            draft=self.draft or (),
            ngl=self.ngl,
            ngld=self.ngld,
            offload=self.to_offload(),
            rpc=self.rpc or None,
            kv_type=self.to_caches(),
            kv_type_draft=self.to_draft_caches(),
            ubatch=self.ubatch,
            runtime=self.to_runtimes(),
            ctx=self.ctx,
            threads=self.threads,
            n_predict=self.n_predict,
            temp=self.temp,
            top_k=self.top_k,
            top_p=self.top_p,
            min_p=self.min_p,
            seed=self.seed,
            chat=self.chat,
            system=self.system,
            llama=self.llama or None,
            force=self.force,
        )


@dataclass(frozen=True, kw_only=True)
class MeasureOptions(RunOptions):
    """What a bench, a sweep and a tuning have in common; ``timeout`` is in seconds."""

    p_min: tuple[float, ...] | None
    suite: str | None
    prompt: tuple[str, ...]
    prompt_file: tuple[Path, ...]
    per_category: int | None
    timeout: float
    engine: str | None

    def to_request(self) -> Request:
        """Return the request of one bench with these options."""
        return replace(
            super().to_request(),
            p_min=self.p_min,
            suite=self.suite,
            prompt=self.prompt,
            prompt_file=self.prompt_file,
            per_category=self.per_category,
            timeout=self.timeout,
            engine=self.engine,
        )


@dataclass(frozen=True, kw_only=True)
class BenchOptions(MeasureOptions):
    """What a bench or a sweep measures; ``max_time`` is in seconds, ``precision`` a fraction."""

    synthetic_accept: tuple[float, ...] | None
    parallel: tuple[int, ...] | None
    depth: tuple[int, ...] | None
    context_file: Path | None
    rate: tuple[float, ...] | None
    slo: ServiceLevel | None
    replay: Path | None
    url: tuple[str, ...]
    url_drafting: tuple[str, ...]
    served_model: str | None
    api_key_file: tuple[Path, ...]
    repeats: int | None
    loads: int | None
    warmup: int
    precision: float | None
    until: str | None
    max_repeats: int | None
    max_time: float | None

    def to_request(self) -> Request:
        """Return the request of a bench."""
        return replace(
            super().to_request(),
            synthetic_accept=self.synthetic_accept,
            parallel=self.parallel,
            depth=self.depth,
            context_file=self.context_file,
            rate=self.rate,
            slo=self.slo,
            replay=self.replay,
            url=self.url or None,
            url_drafting=self.url_drafting or None,
            served_model=self.served_model,
            api_key_file=self.api_key_file,
            repeats=self.repeats,
            loads=self.loads,
            warmup=self.warmup,
            precision=self.precision,
            until=self.until,
            max_repeats=self.max_repeats,
            max_time=self.max_time,
        )


@dataclass(frozen=True, kw_only=True)
class TuneOptions(MeasureOptions):
    """What a tuning chooses from; ``max_time`` is in seconds, ``precision`` a fraction, ``vram`` in bytes.

    ``serve_ctx`` is in tokens for each of ``serve_parallel`` requests, or of those of ``parallel`` users.
    """

    parallel: int | None
    serve_ctx: int | None
    serve_parallel: int
    quantize_drafter: tuple[str, ...] | None
    vram: int | None
    max_time: float
    precision: float
    fresh: bool

    def to_request(self) -> Request:
        """Return the request whose axes are what can be chosen; the tuning decides on the methods."""
        from ggufspec import tuning

        return replace(
            super().to_request(),
            method=None,
            p_min=self.p_min or tuning.default().p_min,
            parallel=self.parallel,
        )


@dataclass(frozen=True, kw_only=True)
class CrossoverOptions(MeasureOptions):
    """What a crossover maps; ``max_time`` is in seconds. None where an axis is left at its default."""

    parallel: tuple[int, ...] | None
    depth: tuple[int, ...] | None
    context_file: Path | None
    max_time: float

    def to_request(self) -> Request:
        """Return the request of the bench with all cells."""
        from ggufspec import tuning

        asked = super().to_request()
        axes = {"parallel": self.parallel, "depth": self.depth, "draft": asked.draft}
        defaults = tuning.crossover_request(**axes)
        return replace(
            asked,
            parallel=defaults.parallel,
            depth=defaults.depth,
            draft=defaults.draft,
            context_file=self.context_file,
        )


@dataclass(frozen=True, kw_only=True)
class BisectOptions(MeasureOptions):
    """What a bisection measures with each version of llama.cpp, and how it makes them."""

    llama: None = field(default=None, init=False)  # every version is built
    quantity: str
    source: Path | None
    backend: str
    jobs: int | None
    max_repeats: int


@dataclass(frozen=True, kw_only=True)
class _PlacedModels:
    """Models by name, and where their layers go; None where an option was not given."""

    pair: str | None
    target: str | None
    draft_model: str | None
    offline: bool
    token: str | None
    ngl: tuple[Layers, ...]
    ngld: tuple[Layers, ...]
    tensor_split: tuple[float, ...] | None
    cpu_moe: Experts | None
    draft_cpu_moe: Experts | None
    machine: str | None
    host: str | None

    def to_arguments(self) -> dict[str, Any]:
        """Return the arguments of the function of the same name for notebooks."""
        return {**vars(self), "ngl": self.ngl[0], "ngld": self.ngld[0]}


@dataclass(frozen=True, kw_only=True)
class PlanOptions(_PlacedModels):
    """What to plan memory for; None where an option was not given. Sizes are in bytes."""

    method: tuple[str, ...] | None
    rpc: str | None
    vram: tuple[int, ...] | None
    reserve: int
    ctx: int
    kv_type: str
    cache_type_k: str | None
    cache_type_v: str | None
    kv_type_draft: str | None
    cache_type_k_draft: str | None
    cache_type_v_draft: str | None
    ubatch: int
    build: int | None

    def ask(self) -> planning.Planned:
        """Return the plan for these options.

        Raises:
            ValueError: they are incomplete, or contradict each other.
        """
        from ggufspec.forecast import planning

        method = self.method[0] if self.method else None
        return planning.plan(**{**self.to_arguments(), "method": method})


@dataclass(frozen=True, kw_only=True)
class WhatIfOptions(_PlacedModels):
    """What to forecast, and from what; None where an option was not given.

    Rates are in tokens/s, ``bandwidth`` in bytes/s, ``flops`` in operations/s, ``overhead`` and ``rtt``
    in milliseconds.
    """

    accept: str | None
    alpha: str | None
    draft: tuple[int, ...]
    target_tps: float | None
    drafter_tps: float | None
    verify_cost: tuple[float, ...] | None
    verify_ratio: float | None
    observed: float | None
    profile: str | None
    like: Path | None
    bandwidth: float | None
    flops: float | None
    ctx: int
    depth: tuple[int, ...] | None
    parallel: tuple[int, ...] | None
    overhead: float
    rtt: float | None
    round_trips: float
    token_bytes: float | None
    program: str

    def ask(self) -> WhatIf:
        """Return the projections for these options.

        Raises:
            ValueError: they are incomplete, or contradict each other.
        """
        from ggufspec.forecast.whatif import whatif

        users = {"parallel": self.parallel[0] if self.parallel else 1}
        return whatif(**{**self.to_arguments(), "depth": self.depth and self.depth[0], **users})
