"""Which arms a bench measures, from the axes of its options: the step ``arms`` of preparing it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ggufspec import machine
from ggufspec.domain import Chain, Drafting, Method, NgramSettings
from ggufspec.errors import GgufspecError
from ggufspec.llama.command import check_arguments, draft_sizes, longest_draft, unused_settings
from ggufspec.measure import texts, traffic
from ggufspec.measure.configured import choose_sampling
from ggufspec.measure.models import ChosenModels, with_pairs_drafting
from ggufspec.measure.programs import ChosenEngine
from ggufspec.measure.sweep import Sweep, distinct_layers, sizes
from ggufspec.measure.texts import BenchTexts
from ggufspec.options import BenchOptions

_MOST_NAMED = 8


@dataclass(frozen=True, kw_only=True)
class PlannedArms:
    """Everything that is to be combined, and notes on values of axes that are left out."""

    sweep: Sweep
    notes: tuple[str, ...]


def plan_arms(
    request: BenchOptions, models: ChosenModels, engine: ChosenEngine, read: BenchTexts, *, simulated: bool
) -> PlannedArms:
    """Combine the values of all axes, without those that nothing could run or that are the same.

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
            read.plain.prompts,
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
    return PlannedArms(
        sweep=placed,
        notes=(
            *_describe_same_places(sweep, placed),
            *never_drafting_notes,
            *_describe_lowered_sizes(sweep),
            *_describe_refused_p_mins(sweep),
            *without_p_min,
            *_describe_unsampled_drafts(sweep),
            *_describe_same_layers(placed),
            *_describe_same_experts(placed),
            *_describe_missing_drafter(sweep),
            *traffic.describe([sent for sent in sweep.traffics if sent is not None], sweep.ways),
            *traffic.describe_replay(read.recording, request.n_predict),
        ),
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


def _describe_same_layers(sweep: Sweep) -> Iterator[str]:
    """Yield a note for each model of which several numbers of layers would be the same."""
    models = (
        *((model, "--ngl", sweep.target_layers, sweep.target_layers_of(model)) for model in sweep.targets),
        *((model, "--ngld", sweep.draft_layers, sweep.draft_layers_of(model)) for model in sweep.drafters),
    )
    for model, option, asked, kept in models:
        left_out = [str(layers) for layers in asked if layers not in kept]
        if left_out:
            count = sweep.layer_counts[model]
            same = next(layers for layers in kept if distinct_layers((layers, "all"), count) == (layers,))
            yield (
                f"layers: {model.filename} has {count} with its output; {option} {_few(left_out)} would be "
                f"the same as {option} {same}, which is measured"
            )


def _describe_same_experts(sweep: Sweep) -> Iterator[str]:
    """Yield a note for each model of which several places of experts would be the same."""
    models = (
        *((model, "", sweep.target_experts, sweep.target_experts_of(model)) for model in sweep.targets),
        *((model, "-draft", sweep.draft_experts, sweep.draft_experts_of(model)) for model in sweep.drafters),
    )
    for model, suffix, asked, kept in models:
        if len(kept) < len(asked):
            count = sweep.expert_layers[model]
            has = f"experts in {count} layers" if count else "no experts"
            measured = _few([str(layers) for layers in kept])
            yield f"experts: {model.filename} has {has}; of --n-cpu-moe{suffix}, {measured} is measured"


def _describe_lowered_sizes(sweep: Sweep) -> Iterator[str]:
    """Yield a note for each head of which several draft sizes would be the same."""
    for model, head in sweep.heads.items():
        lowered = [str(size) for size in sweep.draft_sizes if head.most is not None and size > head.most]
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
    others = [str(way) for way in sweep.ways if not way.method.samples_drafts]
    if sweep.draft_samplings != (None,) and others:
        yield f"draft sampling: there is no choice for {_few(others)}"


def _few(words: Sequence[str]) -> str:
    """Return words in a row; of many, the first and the last."""
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
