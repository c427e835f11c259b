"""What a tuning may choose from, checked before anything runs: TuneOptions -> Plan."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache, partial

from ggufspec import machine, measure, paths, units
from ggufspec.analysis import warnings
from ggufspec.domain import (
    Chain,
    Drafting,
    DraftSampling,
    Layers,
    Method,
    ModelFile,
    Offload,
    Program,
    Role,
    RunSpec,
    Serving,
)
from ggufspec.engines import ENGINES
from ggufspec.errors import GgufspecError
from ggufspec.forecast import costs, profiles
from ggufspec.forecast.concurrency import BATCH, most_rows
from ggufspec.forecast.trace import draft_sizes
from ggufspec.forecast.whatif import MachineMemory, Machines, PlacedPair, describe_device
from ggufspec.llama.command import LEARNING_METHODS, check_chain, check_draft_sampling, commands, tools
from ggufspec.llama.install import Install, installs
from ggufspec.llama.rpc import workers
from ggufspec.measure import identity
from ggufspec.modelfiles import gguf, memory
from ggufspec.modelfiles.gguf import ModelCard
from ggufspec.options import BenchOptions, TuneOptions
from ggufspec.tuning import launching, prospects, untraced
from ggufspec.tuning.values import Plan


def plan_blocks(
    requested: Sequence[measure.Block],
    cards: Mapping[ModelFile, ModelCard],
    *,
    layout: memory.Layout,
    vram_bytes: int | None,
    ram_bytes: int | None = None,
    machines: Machines | None = None,
    can_fit: bool = False,
) -> tuple[measure.Block, ...]:
    """Return the configurations by the target's layers: the target alone first, then the drafting ones.

    Requested numbers of layers stay. "auto" becomes what the memory plan allows: the target alone gets as
    many layers as fit; a drafter is tried with all of its layers on the GPU and with none, which leaves room
    for more of the target's. A mixture of experts, with its drafter, is tried at the places that are fastest
    by forecast, see ``whatif.PlacedPair``.

    Args:
        requested: a sweep's blocks.
        cards: the headers of all models.
        layout: how the llama.cpp in use lays models out.
        vram_bytes: the GPU's memory; None where there is no GPU.
        ram_bytes: the host's, for a mixture; None is not limited.
        machines: what computes a mixture; None to place it like other models.
        can_fit: llama.cpp can place a mixture by itself (``--fit``), which is measured beside these places.
    """
    asked = [arm for block in requested for arm in block.arms if arm.role is not Role.DRAFTER]
    longest = max((arm.drafts_by.n_max for arm in asked if arm.drafting is not None), default=0)

    @cache
    def places(arm: RunSpec) -> tuple[Offload, ...]:
        assert vram_bytes is not None
        assert machines is not None
        room = MachineMemory(vram_bytes=(vram_bytes,), host_bytes=ram_bytes)
        return _places(arm, cards, memory.settings_for(arm, layout), machines, room)

    specs: dict[tuple[object, ...], dict[RunSpec, None]] = {}
    for arm in asked:
        if machines is not None and _has_open_experts(arm, cards):
            drafting = arm.drafting and Drafting(n_max=longest, method=arm.drafting.method)
            offloads = places(replace(arm, drafting=drafting))  # which all drafts of the method share
            if can_fit and arm.offload.fit is None:
                offloads = (*offloads, replace(arm.offload, fit=True))
        else:
            offloads = _offloads(arm, cards, layout, vram_bytes)
        for offload in offloads:
            spec = replace(arm, offload=offload)
            specs.setdefault(_baseline(spec), {})[spec] = None
    for arms in list(specs.values()):
        alone = next(iter(arms)).baseline
        arms.pop(alone, None)
        specs[_baseline(alone)] = {alone: None, **arms}
    return tuple(measure.Block(arms=tuple(arms)) for arms in specs.values())


def _baseline(spec: RunSpec) -> tuple[object, ...]:
    alone = spec.baseline
    return alone.model, alone.offload, alone.ubatch, alone.threads, alone.runtime


def _offloads(
    spec: RunSpec, cards: Mapping[ModelFile, ModelCard], layout: memory.Layout, vram_bytes: int | None
) -> tuple[Offload, ...]:
    offload = spec.offload
    if vram_bytes is None or offload.target.layers != "auto":
        return (offload,)
    target, draft = cards[spec.model], cards[spec.drafter] if spec.drafter else None
    settings = memory.settings_for(spec, layout)
    all_layers = target.n_layers + 1
    choices: tuple[Layers, ...] = (offload.drafter.layers,)
    if offload.drafter.layers == "auto" and draft:
        choices = ("all", 0)
    offloads = []
    for layers in choices:
        best = memory.best_fit(
            memory.plan_each_offload(target, draft, settings, offload.with_layers(drafter=layers)), vram_bytes
        )
        if best is None:
            continue
        number = best.target.gpu_layers
        offloads.append(
            offload.with_layers(
                "all" if number == all_layers else number, layers if draft is not None else "auto"
            )
        )
        if number == all_layers:
            break  # a drafter on the processor would leave no room that the target needs
    return tuple(offloads) or (offload.with_layers(0, 0 if draft is not None else "auto"),)


_PLACED_SIZES = (1, 4, 16)  # γ whose fastest places are tried: where batches need few experts, some and most
_FASTER = 10  # times the host's memory, of a GPU that is not known: places depend on the ratio alone


def _has_open_experts(spec: RunSpec, cards: Mapping[ModelFile, ModelCard]) -> bool:
    """Whether a target is a mixture whose places were not asked for."""
    target = spec.offload.target
    return bool(cards[spec.model].n_experts) and (target.layers, target.cpu_moe) == ("auto", None)


def _places(
    spec: RunSpec,
    cards: Mapping[ModelFile, ModelCard],
    settings: memory.MemorySettings,
    machines: Machines,
    room: MachineMemory,
) -> tuple[Offload, ...]:
    """Return the fastest places of a mixture for some draft sizes, or those of the target alone."""
    target = cards[spec.model]
    pair = PlacedPair(
        target=target,
        draft=cards[spec.drafter] if spec.drafter else None,
        settings=settings,
        offload=spec.offload,
        machines=machines,
        room=room,
        depth=spec.context,
        experts=profiles.kept_experts(target),
    )
    found = [place.offload for place in pair.fastest(_PLACED_SIZES if spec.drafting else (0,))]
    whole = [  # in the words of other plans
        offload.with_layers("all") if offload.target.layers == target.n_layers + 1 else offload
        for offload in found
    ]
    return tuple(dict.fromkeys(whole)) or (spec.offload.with_layers(0, 0 if spec.drafter else "auto"),)


def _choose_machines(asked: TuneOptions, install: Install) -> Machines:
    """Return what computes the parts of a mixture: as named, or this machine, by what is known of it.

    Raises:
        GgufspecError: no machine has such a name.
    """
    host = asked.host or f"{machine.read_bandwidth(machine.usable_cores()) / 1e9:.1f}G"
    known = filter(None, (costs.match_device(gpu.name) for gpu in install.gpus))
    try:
        peaks = costs.find_device(host, costs.ON_HOST)
        unknown = replace(
            peaks,
            name="a GPU that is not known",
            bandwidth=_FASTER * peaks.bandwidth,
            efficiency=costs.ON_GPU,
        )
        gpu = asked.machine or next(known, None)
        return Machines(gpus=(unknown if gpu is None else costs.find_device(gpu),), host=peaks)
    except ValueError as error:
        raise GgufspecError(str(error), "`ggufspec whatif --machine list` says more of them") from error


_NAMED = re.compile(r"[-.](?:I?Q\d\w*|BF16|F16|F32)$", re.IGNORECASE)


def add_quantized(asked: TuneOptions, install: Install) -> tuple[TuneOptions, tuple[str, ...]]:
    """Return options with further drafters, and notes on where they come from.

    A drafter is made from each of the drafters, in each quantization that has fewer bits than its own.

    Args:
        asked: names the drafters, or a pair that has one, and the quantizations.
        install: its llama-quantize makes them.

    Raises:
        NoInstallError: the install lacks llama-quantize.
        GgufspecError: there is no drafter, or it cannot be quantized so.
    """
    if not asked.quantize_drafter:
        return asked, ()
    drafters = measure.find_drafters(asked)
    if not drafters:
        raise GgufspecError("there is no drafter to quantize", "name one with --draft-model")
    made: list[ModelFile] = []
    notes = []
    for drafter in drafters:
        assert drafter.path is not None
        own_quant = gguf.read_card(drafter.path).quant
        for quant in asked.quantize_drafter:
            if own_quant is not None and (quant == own_quant or _bits(quant) > _bits(own_quant)):
                notes.append(
                    f"drafters: {drafter.filename} is {own_quant}, so {quant} of it would add nothing"
                )
                continue
            made.append(_quantize_drafter(drafter, quant, install))
            quantized = made[-1].path
            assert quantized is not None
            card = gguf.read_card(quantized)
            notes.append(
                f"drafters: {made[-1].filename} was made from {drafter.filename} by llama-quantize"
                + (f"; it is {card.described_quant}" if card.described_quant != card.quant else "")
            )
    return asked.replace(draft_model=(*drafters, *made)), tuple(notes)


def _quantize_drafter(drafter: ModelFile, quant: str, install: Install) -> ModelFile:
    """Return a drafter in another quantization; it is made unless the same llama.cpp made it before."""
    assert drafter.path is not None
    parts = identity.of_models([drafter])[drafter]
    build = install.describe()
    facts = (*(part.sha256 for part in parts), quant, str(build.version), str(build.commit))
    key = hashlib.sha256("\n".join(facts).encode()).hexdigest()[:16]
    stem = _NAMED.sub("", drafter.path.stem)
    out = paths.quantized_dir() / key / f"{stem}-{quant}.gguf"
    if not out.is_file():
        try:
            tools.quantize(install, drafter.path, quant, out, threads=machine.usable_cores())
        except OSError as error:
            raise GgufspecError(
                f"cannot write {out}: {error.strerror}", "free some disk space, or set GGUFSPEC_CACHE"
            ) from error
    return ModelFile(filename=out.name, path=out, quant=quant)


def _bits(quant: str) -> int:
    """Return the bits of a weight that the name of a quantization states."""
    number = re.search(r"\d+", quant)
    return int(number[0]) if number else 0


_ENGINE, _LIBRARY_ENGINE = "server", "inprocess"  # the latter where llama.cpp is a library without programs
_SIZES = tuple(range(1, 17))  # of drafts by a model
_LOOKUP_SIZES = (8, 12, 16, 32, 48)  # of drafts from the text so far
_BEYOND = (20, 24, 32, 48)  # further sizes of drafts by a model, tried where the largest one is the best


def prepare_tuning(
    asked: TuneOptions, deadline: measure.Deadline | None = None, *, forecast_only: bool = False
) -> Plan:
    """Check what was asked for, and lay out what may be chosen; each step uses what the earlier ones found.

    Args:
        asked: what to choose from, and for how long.
        deadline: the time limit, if it has begun before.
        forecast_only: nothing will be measured.

    Raises:
        GgufspecError: a subclass for each thing that cannot work, before any model is loaded.
    """
    if deadline is None:
        deadline = measure.Deadline.start(asked.max_time, run_share=measure.RUN_SHARE)
    install, engine = _choose_engine(asked)
    begun_s = deadline.elapsed_s
    with_quantized, about_drafters = add_quantized(asked, install)
    if asked.quantize_drafter:  # like downloads, this is done once, and does not count
        deadline = deadline.without(deadline.elapsed_s - begun_s)
    threads, about_threads = choose_threads(asked.threads)
    methods, about_users = _choose_methods(with_quantized, install, engine)
    request = _bench_options(with_quantized, install, engine, methods).replace(threads=threads)
    prepare = partial(measure.prepare_session, simulates_gpu=asked.vram is not None)
    session = prepare(request)
    measure.refuse_endless(session.suite)
    why_untraced = untraced.why_untraced(session)
    _refuse_several_targets(session.suite.blocks)
    with_devices = workers.with_devices(session.install, session.workers)
    vram = _vram_bytes(asked, with_devices)
    to_serve, about_serving = _choose_serving(asked, session, vram)
    context = to_serve.total_context if asked.users is None else to_serve.context
    if context != session.suite.blocks[0].arms[0].context:
        session = prepare(request.replace(ctx=context))
    target = session.cards[session.suite.blocks[0].arms[0].model]
    is_simulated = vram is not None and with_devices.gpu is False
    machines = None
    if vram is not None and (target.n_experts or is_simulated):
        machines = _choose_machines(asked, with_devices)
    blocks = plan_blocks(
        session.suite.blocks,
        session.cards,
        layout=memory.layout_for(session.install.build_number),
        vram_bytes=vram,
        ram_bytes=asked.ram,
        machines=machines if target.n_experts else None,
        can_fit=with_devices.gpu is not False and _can_fit(install, engine),
    )
    if asked.users is not None:
        session, blocks = _one_at_a_time(session, blocks, to_serve)
    about_sampled = tuple(_describe_sampled_drafts(asked, prospects.drafting_arms(blocks)))
    blocks, beyond = _divide_sizes(asked, blocks)
    notes = (
        *(() if asked.engine else measure.describe_engine(engine, install)),
        *(note for note in session.notes if asked.draft or not note.startswith("draft sizes")),
        *about_drafters,
        *about_threads,
        *_describe_untraced(why_untraced, asked.users),
        about_serving,
        *_describe_places(machines, target, is_simulated=is_simulated),
        *about_users,
        *about_sampled,
    )
    return Plan(
        session=replace(session, notes=notes),
        serving=to_serve,
        blocks=blocks,
        vram_bytes=vram,
        deadline=deadline,
        precision=asked.precision,
        forecast_only=forecast_only,
        fresh=asked.fresh,
        beyond=beyond,
        why_untraced=why_untraced,
        users=asked.users,
        mixture=target if target.n_experts else None,
        simulated=machines if is_simulated else None,
    )


def _choose_engine(asked: TuneOptions) -> tuple[Install, str]:
    """Return the llama.cpp that is tuned, and the engine that is named or its usual one.

    Raises:
        GgufspecError: several llama.cpps are named, or there is none.
    """
    llama, *others = asked.llamas
    if others:
        raise GgufspecError("a tuning uses one llama.cpp", "name one, and compare two with `ggufspec bench`")
    install = installs.find_install(llama)
    return install, asked.engine or (_ENGINE if install.programs else _LIBRARY_ENGINE)


def _choose_methods(
    asked: TuneOptions, install: Install, engine: str
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return what may draft, and notes where that is for several users.

    Raises:
        GgufspecError: nothing may, or the pair's own method cannot be measured here.
    """
    methods = asked.method or _methods(install, asked, engine)
    notes = []
    if asked.users is not None:
        users = units.counted(asked.users, "user")
        notes.append(f"users: the choice is for {users} at once, and is measured with them")
        left_out = [name for name in methods if not _serves_users(name)]
        methods = tuple(name for name in methods if name not in left_out)
        if left_out:
            notes.append(
                f"methods: {', '.join(left_out)} left out, because they learn from earlier requests, and "
                "users send every prompt more than once"
            )
    if not methods:
        raise _nothing_drafts()
    return methods, tuple(notes)


def _bench_options(
    asked: TuneOptions, install: Install, engine: str, methods: tuple[str, ...]
) -> BenchOptions:
    """Return the options of a bench of everything that may be chosen.

    Raises:
        GgufspecError: two contexts were given.
    """
    batch = min(runtime.batch or BATCH for runtime in asked.runtimes)
    sizes = [
        size
        for size in sorted({*_SIZES, *_LOOKUP_SIZES, *_BEYOND})
        if asked.users is None or most_rows(asked.users, size) <= batch  # the drafts of all fit into a batch
    ]
    options = asked.to(
        BenchOptions,
        engine=engine,
        p_min=(0.0,) if ENGINES[engine] is Program.TREE else asked.p_min,  # it knows none
        method=methods,
        draft_sampling=asked.draft_sampling or _draft_samplings(asked, install, engine, methods),
        draft=asked.draft or sizes,
        precision=asked.precision,
        max_time=None,
        ctx=_slot_context(asked),
    )
    is_open = options.ngld == ("auto",) and not options.offload.drafter.devices
    if is_open and install.gpu is False and any(options.rpcs):
        return options.replace(ngld=0)  # workers have the target's layers, and this machine has no GPU
    return options


def _refuse_several_targets(blocks: Sequence[measure.Block]) -> None:
    settings = {
        (arm.model, arm.caches, arm.ubatch, arm.threads, arm.runtime, arm.offload.rpc, arm.asking)
        for arm in (block.arms[0] for block in blocks)
    }
    if len(settings) > 1:
        raise GgufspecError(
            "only one target under one setting can be tuned at once",
            "name one target, and one --threads, --kv-type, --ubatch-size, --rpc, --constrain and "
            "--reasoning; `ggufspec sweep` takes several",
        )


def _choose_serving(
    asked: TuneOptions, session: measure.Session, vram_bytes: int | None
) -> tuple[Serving, str]:
    """Return what the choice is to serve, and a note on that.

    Raises:
        GgufspecError: the target was trained for less than the requested context.
    """
    arms = (arm for block in session.suite.blocks for arm in block.arms if arm.role is not Role.DRAFTER)
    serving, why = launching.choose_serving(
        _slot_context(asked),
        asked.users or asked.serve_parallel,
        [replace(arm, traffic=None) for arm in arms],
        session.cards,
        layout=memory.layout_for(session.install.build_number),
        vram_bytes=vram_bytes,
    )
    slots = "one request at a time" if serving.slots == 1 else f"{serving.slots} requests at once"
    return (
        serving,
        f"serving: {slots}, each with a context of {serving.context:,} tokens, {why} (--serve-ctx)",
    )


def _divide_sizes(
    asked: TuneOptions, blocks: Sequence[measure.Block]
) -> tuple[tuple[measure.Block, ...], tuple[RunSpec, ...]]:
    """Return the configurations to begin with, and drafts of models that are larger; see ``Plan.beyond``.

    Raises:
        GgufspecError: none drafts.
    """
    usual = {True: _SIZES, False: _LOOKUP_SIZES}  # of a model, and of the text so far

    def is_usual(arm: RunSpec) -> bool:
        drafting = arm.drafting
        return drafting is None or drafting.n_max in usual[drafting.method.drafts_with_model]

    tried = tuple(block.where(lambda arm: not _ends_sampled_drafts(arm)) for block in blocks)
    first = tried if asked.draft else tuple(block.where(is_usual) for block in tried)
    if not prospects.drafting_arms(first):
        raise _nothing_drafts()
    known = {arm for block in first for arm in block.arms}
    beyond = (arm for arm in prospects.drafting_arms(tried) if arm.drafts_by.method.drafts_with_model)
    return first, tuple(arm for arm in beyond if arm not in known)


def _can_fit(install: Install, engine: str) -> bool:
    """Whether an engine's program lowers layers and experts on the GPU by itself until they fit."""
    program = install.programs.get(ENGINES[engine])
    return program is not None and commands.can_adjust(program.options)


def _describe_places(machines: Machines | None, target: ModelCard, *, is_simulated: bool) -> Iterator[str]:
    """Yield notes on the machine for which models are placed, and on how many experts batches need."""
    if machines is None:
        return
    gpu, host = (peaks and describe_device(peaks) for peaks in (machines.gpus[0], machines.host))
    if is_simulated:
        yield f"simulated: nothing is timed; costs are forecast for {gpu}, beside {host}"
    if target.n_experts:
        yield f"places: the fastest by forecast for {gpu}, beside {host}"
        yield costs.describe_experts(profiles.kept_experts(target))


def _describe_untraced(reason: str | None, users: int | None) -> Iterator[str]:
    if reason is not None:
        how = "for several users, everything is measured"
        if users is None:
            how = "measured rounds of draft models forecast their other draft sizes, and the rest is measured"
        yield f"forecast: without a trace, because {reason}; {how}, which takes longer"


Threads = tuple[int, ...] | None


def choose_threads(asked: Threads) -> tuple[Threads, tuple[str, ...]]:
    """Return the threads to use, and a note where they are fewer than all cores, or more than are free.

    Where none were named, only as many are used as other programs leave cores free: with more, llama.cpp's
    threads wait for each other, and a run takes many times as long. Threads that were named are kept.
    """
    cores = machine.usable_cores()
    free = warnings.free_cores(cores, machine.busy_cores())
    most = cores if asked is None else max(asked)
    if most <= free:
        return asked, ()
    if asked is None:
        return (free,), (f"threads: {free} of {cores}, because other programs are busy; -t {cores} uses all",)
    note = (
        f"threads: {most} as requested, but other programs leave {units.counted(free, 'core')} free, so runs "
        f"may take many times as long; -t {free} avoids that"
    )
    return asked, (note,)


def _nothing_drafts() -> GgufspecError:
    return GgufspecError(
        "there is nothing to choose from: no drafter, and no method that drafts without one",
        "name a drafter with --draft-model, or find one with `ggufspec suggest`",
    )


def _serves_users(method: str) -> bool:
    """Whether several users can measure a method: their prompts are sent more than once."""
    try:
        return LEARNING_METHODS.isdisjoint(Chain.parse(method).methods)
    except ValueError:  # an unknown method, which is refused by its name later
        return True


def _one_at_a_time(
    session: measure.Session, blocks: tuple[measure.Block, ...], to_serve: Serving
) -> tuple[measure.Session, tuple[measure.Block, ...]]:
    """Return a session with the prompts of several users, and its configurations with one request at a time.

    Costs are timed with these, with as much context as all slots have together.
    """
    requests = blocks[0].arms[0].traffic
    assert requests is not None
    alone = [block.replace(traffic=None, context=to_serve.total_context) for block in blocks]
    suite = replace(session.suite, blocks=tuple(alone), prompts=requests.prompts)
    notes = tuple(note for note in session.notes if not note.startswith("traffic:"))
    return replace(session, suite=suite, notes=notes), tuple(alone)


def _slot_context(asked: TuneOptions) -> int | None:
    """Return the requested context of a slot; --ctx is that, too.

    Raises:
        GgufspecError: two were given.
    """
    if asked.serve_ctx is not None and asked.ctx not in {None, asked.serve_ctx}:
        raise GgufspecError(
            f"--ctx {asked.ctx} and --serve-ctx {asked.serve_ctx} differ",
            "a tuning measures at the context that is to be served: leave --ctx out",
        )
    return asked.serve_ctx or asked.ctx


def identify(plan: Plan) -> Plan:
    """Return a plan whose models and llama.cpp are known by their content, see ``session.identify``.

    Raises:
        ModelFileError: a file cannot be read.
    """
    everything = (*plan.blocks, measure.Block(arms=plan.beyond))
    models = identity.of_models(identity.models((*plan.session.suite.blocks, *everything)))
    *blocks, beyond = identity.with_contents(everything, models)
    return replace(plan, session=measure.identify(plan.session), blocks=tuple(blocks), beyond=beyond.arms)


def _methods(install: Install, request: TuneOptions, engine: str) -> tuple[str, ...]:
    """Return what the models draft by, and the n-gram methods of the engine at some of the given draft sizes.

    Raises:
        GgufspecError: the pair's own method cannot be measured here.
    """
    methods = dict.fromkeys((Method.DRAFT_MODEL.value, *measure.find_methods(request)))
    program = ENGINES[engine]
    for method in Method:
        if method.drafts_with_model or engine == "inprocess" or not draft_sizes(method, request.draft):
            continue
        with suppress(GgufspecError):
            check_chain(install, program, Chain(method))
            methods[method.value] = None
    return tuple(methods)


def _draft_samplings(
    asked: TuneOptions, install: Install, engine: str, methods: Sequence[str]
) -> tuple[DraftSampling, ...] | None:
    """Return both ways to choose drafts where there is a choice and it matters; None for llama.cpp's."""
    with suppress(GgufspecError, ValueError):  # an unknown method is refused by its name later
        check_draft_sampling(install, ENGINES[engine])
        is_choice = any(Chain.parse(way).method.samples_drafts for way in methods)
        return tuple(DraftSampling) if is_choice and not measure.choose_sampling(asked).greedy else None
    return None


def _ends_sampled_drafts(arm: RunSpec) -> bool:
    """Whether a p-min ends drafts that are sampled, which no trace can tell and so is not tried."""
    drafting = arm.drafting
    return drafting is not None and drafting.sampling is DraftSampling.PROBABILISTIC and drafting.p_min > 0


def _describe_sampled_drafts(asked: TuneOptions, arms: Sequence[RunSpec]) -> Iterator[str]:
    """Yield notes about drafts that are sampled."""
    if not asked.draft_sampling and any(arm.drafting and arm.drafting.sampling for arm in arms):
        yield "draft sampling: greedy and probabilistic drafts are compared (--draft-sampling)"
    if any(map(_ends_sampled_drafts, arms)):
        yield "draft sampling: probabilistic drafts are tried without a p-min, whose effect no trace tells"


def _vram_bytes(asked: TuneOptions, install: Install) -> int | None:
    """Return the GPU memory to plan with, that of workers included; None where nothing can be offloaded.

    Raises:
        GgufspecError: GPU memory was named for a build that uses none, and no machine to simulate.
    """
    if install.gpu is False:
        if asked.vram is not None and None in {asked.machine, asked.host}:
            raise GgufspecError(
                f"the llama.cpp in {install.root} is built for the processor alone",
                "leave --vram out, or build one for the GPU: `ggufspec build --backend cuda`; --machine, "
                "--host and --forecast simulate one",
            )
        return asked.vram
    free_bytes = sum(gpu.free_bytes for gpu in machine.memory(install.gpus).gpus)
    return asked.vram or free_bytes or None
