"""What a user should know before the first run: notes and warnings about what will be measured."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from math import prod

from ggufspec import machine
from ggufspec.analysis import MeasurementWarning
from ggufspec.domain import Chain, Method, ModelFile, offloading
from ggufspec.errors import GgufspecError
from ggufspec.llama.install import Install
from ggufspec.measure import configured
from ggufspec.measure.sweep import Sweep, distinct_layers
from ggufspec.modelfiles import gguf
from ggufspec.results import Configuration

_LEAST_REPEATS = 2  # one says nothing of how far they spread
_MOST_NAMED = 8


def describe_same_builds(builds: Mapping[str, Install]) -> Iterator[str]:
    """Yield a note where two llama.cpps are the same."""
    for name in builds:
        twins = [other for other in builds if other.startswith(f"{name}-")]
        if twins:
            yield f"llama.cpp: {name} and {', '.join(twins)} hold the same programs; any difference is chance"


def describe_same_layers(sweep: Sweep) -> Iterator[str]:
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


def describe_lowered_sizes(sweep: Sweep) -> Iterator[str]:
    """Yield a note for each head of which several draft sizes would be the same."""
    for model, head in sweep.heads.items():
        lowered = [str(size) for size in sweep.draft_sizes if head.most is not None and size > head.most]
        if lowered and any(way.method is head.method for way in sweep.ways):
            yield (
                f"draft sizes: {model.filename} drafts at most {head.most} tokens; "
                f"--draft {_few(lowered)} would be the same as {head.most}, which is measured"
            )


def describe_refused_p_mins(sweep: Sweep) -> Iterator[str]:
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


def _few(words: Sequence[str]) -> str:
    """Return words in a row; of many, the first and the last."""
    return ", ".join(words) if len(words) <= _MOST_NAMED else f"{words[0]}, …, {words[-1]}"


def describe_missing_drafter(sweep: Sweep) -> Iterator[str]:
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


def describe_tuned(configuration: Configuration | None, install: Install) -> Iterator[str]:
    """Yield which configuration is measured, and what is not as it was when that was tuned."""
    if configuration is None:
        return
    yield f"tuned: {configuration.id}, made on {configuration.made_at[:10]}"
    yield from configured.compare_machines(configuration, install)


def find_doubts(
    sweep: Sweep,
    cards: Mapping[ModelFile, gguf.ModelCard],
    install: Install,
    *,
    repeats: int,
    tight: bool,
) -> Iterator[MeasurementWarning]:
    """Yield the warnings before anything runs."""
    layers = (*sweep.target_layers, *(sweep.draft_layers if sweep.drafters else ()))
    if install.gpu is False and () in sweep.rpcs and any(offloading.wants_gpu(number) for number in layers):
        yield MeasurementWarning.GPU_LESS_BUILD
    pairs = product(sweep.targets, sweep.drafters)
    if any(_weights(cards[drafter]) > _weights(cards[target]) for target, drafter in pairs):
        yield MeasurementWarning.MODELS_SWAPPED
    if max(sweep.threads) > machine.usable_cores():
        yield MeasurementWarning.THREADS_ABOVE_FREE_CORES
    if repeats < _LEAST_REPEATS:
        yield MeasurementWarning.FEW_REPEATS
    if tight:
        yield MeasurementWarning.MEMORY_TIGHT


def _weights(card: gguf.ModelCard) -> int:
    """Return how many weights a model has; the one with fewer may be the larger file."""
    return sum(prod(tensor.shape) for tensor in card.tensors)
