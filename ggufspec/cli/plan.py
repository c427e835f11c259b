"""``ggufspec plan``: how many layers fit, without downloading or running a model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from ggufspec.cli.entry.output import echo
from ggufspec.cli.options import completions
from ggufspec.cli.options.axes import Methods
from ggufspec.cli.options.shared import KV_TYPES, Count, LayersParam, Size, emit, output_options, pass_options
from ggufspec.cli.options.tuned import tuned_option
from ggufspec.units import format_bytes

if TYPE_CHECKING:
    from ggufspec.cli.options.values import PlanOptions
    from ggufspec.domain import Chain, Pair
    from ggufspec.modelfiles.memory import MemoryPlan, MemorySettings


@click.command()
@tuned_option("Plan the configuration of this tuning.")
@click.option("--pair", metavar="NAME", shell_complete=completions.pairs, help="Pair from the catalogue.")
@click.option(
    "-m",
    "--target",
    metavar="REF",
    shell_complete=completions.models,
    help="Target: a path, user/repo:QUANT, or half of a pair (demo:target).",
)
@click.option(
    "-md",
    "--draft-model",
    metavar="REF",
    shell_complete=completions.models,
    help="Drafter, in the same forms.",
)
@click.option(
    "--method",
    metavar="METHOD",
    type=Methods().single(),
    help="What drafts, such as draft-mtp for layers of the target. [default: the pair's own]",
)
@click.option("--vram", type=Size(), help="GPU memory to plan with, such as 24G. [default: free memory]")
@click.option("--reserve", type=Size(), default="1G", show_default=True, help="GPU memory to leave free.")
@click.option("-c", "--ctx", type=Count(16), default=4096, show_default=True, help="Context size in tokens.")
@click.option("-ngl", "--ngl", type=LayersParam(), help="Target layers on the GPU. [default: as many as fit]")
@click.option(
    "-ngld", "--ngld", type=LayersParam(), default="all", show_default=True, help="Drafter layers on the GPU."
)
@click.option(
    "--kv-type", type=click.Choice(KV_TYPES), default="f16", show_default=True, help="Type of both KV caches."
)
@click.option(
    "-ctk", "--cache-type-k", type=click.Choice(KV_TYPES), help="Type of the K cache. [default: --kv-type]"
)
@click.option(
    "-ctv", "--cache-type-v", type=click.Choice(KV_TYPES), help="Type of the V cache. [default: --kv-type]"
)
@click.option(
    "-ctkd",
    "--cache-type-k-draft",
    type=click.Choice(KV_TYPES),
    help="Type of the drafter's K cache. [default: the target's]",
)
@click.option(
    "-ctvd",
    "--cache-type-v-draft",
    type=click.Choice(KV_TYPES),
    help="Type of the drafter's V cache. [default: the target's]",
)
@click.option(
    "-ub",
    "--ubatch-size",
    "--ubatch",
    "ubatch",
    type=Count(1),
    default=512,
    show_default=True,
    help="Physical batch size in tokens.",
)
@click.option("--build", type=Count(1), help="Plan for this build number of llama.cpp. [default: the newest]")
@click.option("--offline", is_flag=True, help="Use only cached files; do not connect to the Hub.")
@output_options
@pass_options
def command(options: PlanOptions, *, tuned: str | None, output: str, out: Path | None) -> None:
    """Plan memory for each device, and for each number of layers on the GPU.

    Only the headers of the models are read. Without --pair or -m, the pair is the one fetched last, otherwise
    the embedded one.

    \b
    ggufspec plan --pair llama-3-70b --vram 24G
    ggufspec plan -m big.gguf -md small.gguf --ngl 45 --kv-type q8_0 -o csv
    ggufspec plan --tuned last --vram 16G
    """
    from ggufspec.cli.options import models
    from ggufspec.domain import Offload
    from ggufspec.modelfiles import hub, memory
    from ggufspec.report import frames
    from ggufspec.report.text import formats, tables

    access = hub.Access(offline=options.offline)
    if tuned is None:
        pair = models.choose_pair(options.pair, options.target, options.draft_model, access)
        way = models.choose_way(pair, options.method)
        _print_method(pair, way)
        target, draft = models.read_cards(pair, access)
        settings = options.to_settings(mtp=draft is None and models.drafts_by_mtp(way, target))
    else:
        options, pair, settings = _read_tuned(options, tuned)
        target, draft = models.read_cards(pair, access)
    vram = _detect_vram() if options.vram is None else options.vram
    plans = memory.trade(target, draft, settings, options.ngld)
    best = memory.best_fit(plans, vram, options.reserve) if vram else None
    if options.ngl is not None:
        offload = Offload(target_layers=options.ngl, draft_layers=options.ngld)
        shown = memory.plan(target, draft, offload, settings)
    else:
        shown = best or plans[0 if vram else -1]
    budget = vram - options.reserve if vram else None
    for role, card in (("target", target), ("drafter", draft)):
        for doubt in memory.doubts(card) if card else ():
            echo(f"note: the memory for the {role} is uncertain: {doubt}", err=True)
    if output not in tables.FOR_PEOPLE:
        emit(formats.render(frames.memory_trade(plans, budget), output, title="plan", schema="plan"), out)
        return
    steps = max(1, len(plans) // 16)
    rows = [plan for number, plan in enumerate(plans) if number % steps == 0 or plan in (shown, plans[-1])]
    emit(
        f"{_describe_fit(shown, best, plans[-1], vram, options.reserve)}\n\n"
        f"{formats.for_people(frames.memory_devices(shown), output)}\n"
        f"{formats.for_people(frames.memory_overview(rows, budget), output)}",
        out,
    )


def _print_method(pair: Pair, way: Chain | None) -> None:
    """Print how a pair drafts, if it needs no second model."""
    if way is not None and pair.draft is None:
        echo(f"note: {pair.name} drafts with {way}, which needs no second model", err=True)


def _read_tuned(options: PlanOptions, tuned: str) -> tuple[PlanOptions, Pair, MemorySettings]:
    """Return the options, models and settings of a tuned configuration.

    Raises:
        ResultsError: there is no such configuration, or it cannot be trusted.
        ModelFileError: a model is not here, or another file is in its place.
    """
    from dataclasses import replace

    from ggufspec.measure import locate_models
    from ggufspec.modelfiles import memory
    from ggufspec.results import read_configuration

    configuration = read_configuration(tuned)
    spec, serving = configuration.spec, configuration.serving
    slots = "" if serving.slots == 1 else f" in each of {serving.slots} slots"
    echo(f"tuned: {configuration.id}, for a context of {serving.context:,} tokens{slots}", err=True)
    layers, draft_layers = spec.offload.target_layers, spec.offload.draft_layers
    placed = replace(
        options,
        ngl=options.ngl if layers == "auto" else layers,
        ngld=options.ngld if draft_layers == "auto" else draft_layers,
    )
    return placed, locate_models(configuration), memory.settings_for(spec, memory.layout_for(options.build))


def _detect_vram() -> int | None:
    """Return the free memory of this machine's GPUs in bytes, and print them; None without a GPU."""
    from ggufspec.llama.install import installs

    gpus = installs.detect_gpus()
    for gpu in gpus:
        free, total = format_bytes(gpu.free_bytes), format_bytes(gpu.total_bytes)
        echo(f"detected: {gpu.name}, {free} of {total} free", err=True)
    return sum(gpu.free_bytes for gpu in gpus) or None


def _describe_fit(
    shown: MemoryPlan, best: MemoryPlan | None, complete: MemoryPlan, vram: int | None, reserve: int
) -> str:
    """Return the sentences above the tables: what fits, and what would."""
    layers = f"{shown.target.gpu_layers} of {shown.target.max_layers} layers"
    takes = f"{format_bytes(shown.gpu_bytes)} on the GPU, {format_bytes(shown.host_bytes)} on the host"
    beside = " beside the drafter" if shown.draft else ""
    if vram is None:
        return f"{layers}{beside} take {takes}."
    room = f"{format_bytes(vram)} with {format_bytes(reserve)} left free"
    fit = "fit" if shown.gpu_bytes + reserve <= vram else "do not fit"
    answer = f"{layers} {fit}{beside} into {room}: {takes}."
    if best is None:
        return f"{answer} Offload fewer layers of the drafter, or none (--ngld 0)."
    if best is not shown:
        return f"{answer} At most {best.target.gpu_layers} fit."
    if best.target.gpu_layers < best.target.max_layers:
        return f"{answer} All {complete.target.max_layers} would take {format_bytes(complete.gpu_bytes)}."
    return answer
