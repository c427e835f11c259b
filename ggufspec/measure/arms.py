"""Which arms a bench measures, from the axes of its options, and whether they fit into memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

from ggufspec import engines, machine
from ggufspec.domain import Chain, Drafting, Layers, Method, ModelFile, NgramSettings, Program, Role, RunSpec
from ggufspec.errors import GgufspecError, OutOfMemoryError
from ggufspec.llama.command import check_arguments, commands, draft_sizes, longest_draft, unused_settings
from ggufspec.llama.install import Install
from ggufspec.llama.rpc import workers
from ggufspec.measure import texts, traffic
from ggufspec.measure.configured import choose_sampling
from ggufspec.measure.models import ChosenModels, with_pairs_drafting
from ggufspec.measure.programs import ChosenEngine
from ggufspec.measure.sweep import Sweep, sizes
from ggufspec.measure.texts import BenchTexts
from ggufspec.modelfiles import gguf, memory
from ggufspec.options import BenchOptions

_MOST_NAMED = 8


def plan_arms(
    request: BenchOptions, models: ChosenModels, engine: ChosenEngine, read: BenchTexts, *, simulated: bool
) -> tuple[Sweep, tuple[str, ...]]:
    """Return what is to be combined, and notes on values of axes that nothing could run or that are the same.

    Args:
        request: the options of the bench.
        models: what is measured.
        engine: with what.
        read: on what.
        simulated: whether places are forecast for a GPU that is not here.

    Raises:
        GgufspecError: a method drafts at no draft size, an argument is refused, or the context is too small
            for the prompts.
    """
    request, without_p_min = with_pairs_drafting(request, engine.name)
    for runtime in request.runtimes:
        check_arguments((*runtime.args, *runtime.draft_args))
    longest, never_drafting_notes = _check_draft_sizes(request, models.ways)
    traffic.check_batches(request.users, longest, request.runtimes)
    cards, heads = models.cards, models.heads
    sweep = Sweep(
        name=models.name,
        targets=models.targets,
        drafters=models.drafters,
        n_predict=request.n_predict,
        context=texts.context(
            request.ctx,
            read.prompts,
            models.targets[0],
            tuple(card for model, card in cards.items() if model in models.targets or model not in heads),
            engine.install,
            n_predict=request.n_predict,
            longest_draft=longest,
            depth=max(request.depths),
            turns=read.most_turns,
        ),
        layer_counts={model: card.n_layers + 1 for model, card in cards.items()},
        expert_layers={model: card.n_layers if card.n_experts else 0 for model, card in cards.items()},
        methods=tuple(way.method for way in models.ways if not way.first),
        chains=tuple(way for way in models.ways if way.first),
        heads=heads,
        n_min=request.draft_min,
        synthetic=request.synthetic_accept,
        **{"threads": (machine.usable_cores(),), **Sweep.axes_of(request)},
        sampling=choose_sampling(request),
        offload=request.offload,
        rpcs=request.rpcs,
        builds=tuple(engine.builds) or (None,),
        traffics=tuple(traffic.plan_traffics(request, read.sent, read.recording)) or (None,),
        askings=request.askings,
    )
    has_gpu = any(install.gpu is not False for install in engine.installs) or any(request.rpcs)
    placed = sweep if has_gpu or simulated else sweep.on_processor
    return placed, (
        *_describe_same_places(sweep, placed),
        *never_drafting_notes,
        *_describe_lowered_sizes(sweep),
        *_describe_refused_p_mins(sweep),
        *without_p_min,
        *_describe_unsampled_drafts(sweep),
        *_describe_same_values(placed),
        *_describe_missing_drafter(sweep),
        *traffic.describe([sent for sent in sweep.traffics if sent is not None], sweep.ways),
        *traffic.describe_replay(read.recording, request.n_predict),
    )


def _check_draft_sizes(request: BenchOptions, ways: tuple[Chain, ...]) -> tuple[int, tuple[str, ...]]:
    """Return the longest draft of all arms in tokens, and notes on sizes at which a method drafts nothing.

    Raises:
        GgufspecError: a method drafts at no draft size, or no method has a setting of n-grams.
    """
    sizes_given = request.draft
    if sizes_given and request.draft_min > min(sizes_given):
        raise GgufspecError(
            f"at γ {min(sizes_given)} nothing is drafted, because drafts of fewer than {request.draft_min} "
            "tokens are dropped",
            "lower --draft-min, or raise --draft",
        )
    longest = 0
    notes: dict[str, None] = {}
    for ngram in request.ngram or (NgramSettings(),):
        unused = unused_settings(ways, ngram)
        if unused:
            raise GgufspecError(
                f"no n-gram method of this bench uses {', '.join(unused)}",
                "leave it out of --ngram, or name a method that uses it with --method",
            )
        for way in ways:
            sizes = draft_sizes(way.method, sizes_given, ngram)
            left_out = ", ".join(str(size) for size in sizes_given if size not in sizes)
            if not sizes:
                default = draft_sizes(way.method)[0]
                raise GgufspecError(
                    f"{way.method.value} drafts nothing at γ {left_out or ngram.size_m}",
                    f"llama.cpp's own γ for it is {default}: add --draft {default}, or leave --draft out",
                )
            if left_out and ngram.size_m is None:
                note = f"draft sizes: {way.method.value} drafts nothing at γ {left_out}, which is left out"
                notes[note] = None
            drafting = Drafting(n_max=max(sizes), method=way.method, first=way.first, ngram=ngram)
            longest = max(longest, longest_draft(drafting))
    return longest, tuple(notes)


def _describe_same_places(asked: Sweep, placed: Sweep) -> Iterator[str]:
    """Yield a note where several places are one, because nothing is on a GPU."""
    left = sizes(placed)
    several = [name for name, count in sizes(asked).items() if count > left.get(name, 1)]
    if several:
        yield f"places: this llama.cpp has no GPU; all values of {', '.join(several)} are measured as one"


def _describe_same_values(sweep: Sweep) -> Iterator[str]:
    """Yield a note for each model of which several numbers of layers, or of experts' layers, are the same."""
    models = (
        *((model, Role.TARGET, sweep.target_layers, sweep.target_experts) for model in sweep.targets),
        *((model, Role.DRAFTER, sweep.draft_layers, sweep.draft_experts) for model in sweep.drafters),
    )
    for model, role, layers, experts in models:
        ngl, moe = ("--ngl", "--n-cpu-moe") if role is Role.TARGET else ("--ngld", "--n-cpu-moe-draft")
        kept_layers, kept_experts = sweep.places_of(model, role)
        if len(kept_layers) < len(layers):
            has = f"{sweep.layer_counts[model]} with its output"
            yield f"layers: {model.filename} has {has}, so {ngl} is measured at {_few(kept_layers)}"
        if len(kept_experts) < len(experts):
            count = sweep.expert_layers[model]
            has = f"experts in {count} layers" if count else "no experts"
            yield f"experts: {model.filename} has {has}, so {moe} is measured at {_few(kept_experts)}"


def _describe_lowered_sizes(sweep: Sweep) -> Iterator[str]:
    """Yield a note for each head of which several draft sizes would be the same."""
    for model, head in sweep.heads.items():
        lowered = [size for size in sweep.draft_sizes if head.most is not None and size > head.most]
        if lowered and any(way.method is head.method for way in sweep.ways):
            yield (
                f"draft sizes: {model.filename} drafts at most {head.most} tokens; "
                f"--draft {_few(lowered)} would be the same as {head.most}, which is measured"
            )


def _describe_refused_p_mins(sweep: Sweep) -> Iterator[str]:
    """Yield a note for each head for which llama.cpp takes no p_min above 0.

    Raises:
        GgufspecError: no other value was asked for.
    """
    methods = {way.method for way in sweep.ways}
    refused = [f"{p_min:g}" for p_min in sweep.p_mins if p_min]
    for model, head in sweep.heads.items():
        if head.knows_p_min or head.method not in methods or not refused:
            continue
        why = f"{model.filename} has no confidence head, so llama.cpp takes no p-min above 0 for it"
        if len(refused) == len(sweep.p_mins):
            raise GgufspecError(why, "add --p-min 0")
        yield f"p-min: {why}; --p-min {_few(refused)} is left out"


def _describe_unsampled_drafts(sweep: Sweep) -> Iterator[str]:
    """Yield a note where some of the methods have no choice of how drafts are sampled."""
    others = [way for way in sweep.ways if not way.method.samples_drafts]
    if sweep.draft_samplings != (None,) and others:
        yield f"draft sampling: there is no choice for {_few(others)}"


def _few(values: Iterable[object]) -> str:
    """Return values in a row; of many, the first and the last."""
    words = [*map(str, values)]
    return ", ".join(words) if len(words) <= _MOST_NAMED else f"{words[0]}, …, {words[-1]}"


def _describe_missing_drafter(sweep: Sweep) -> Iterator[str]:
    """Yield a note where a drafter could draft and none was named."""
    if sweep.drafters or all(way.method is not Method.DRAFT_MODEL for way in sweep.ways):
        return
    others = [str(way) for way in sweep.ways if way.method is not Method.DRAFT_MODEL]
    measured = f"the target alone and drafting by {', '.join(others)} are" if others else "only the target is"
    yield (
        f"drafter: none, so {measured} measured; name one with -md FILE, or find one with `ggufspec suggest`"
    )
    if any(target in sweep.heads for target in sweep.targets) and Chain(Method.DRAFT_MTP) not in sweep.ways:
        yield "drafter: the target has layers for MTP, which draft with --method draft-mtp"


Cards = Mapping[ModelFile, gguf.ModelCard]

_MOST_LOADS = 32  # at once; more would only be processes that wait


def plan_memory(
    request: BenchOptions, models: ChosenModels, engine: ChosenEngine, sweep: Sweep
) -> tuple[int, tuple[str, ...]]:
    """Return how many loads of the models are held at once, and notes on configurations that may not fit.

    Raises:
        OutOfMemoryError: a configuration cannot fit, and it is not forced.
    """
    notes = dict.fromkeys(
        note
        for install in engine.installs
        for note in _describe_tight(sweep, models.cards, install, engine, force=request.force)
    )
    most = (capacity(sweep, models.cards, install) for install in engine.installs)
    return min(_MOST_LOADS, *most), tuple(notes)


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
