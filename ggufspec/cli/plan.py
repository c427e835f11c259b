"""``ggufspec plan``: how many layers fit, without downloading or running a model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from ggufspec.cli.entry.output import echo, echo_sentence
from ggufspec.cli.options.axes import Methods
from ggufspec.cli.options.placement import layer_options, machine_options, rpc_option, share_options
from ggufspec.cli.options.references import model_options
from ggufspec.cli.options.shared import KV_TYPES, Count, Size, Sizes, emit, output_options, pass_options
from ggufspec.cli.options.tuned import tuned_option
from ggufspec.units import format_bytes, format_rate

if TYPE_CHECKING:
    from ggufspec.cli.options.values import PlanOptions
    from ggufspec.forecast import planning


@click.command()
@tuned_option("Plan the configuration of this tuning.")
@model_options()
@click.option(
    "--method",
    metavar="METHOD",
    type=Methods().single(),
    help="What drafts, such as draft-mtp for layers of the target. [default: the pair's own]",
)
@layer_options()
@share_options
@rpc_option(many=False)
@machine_options
@click.option(
    "--vram", type=Sizes(), help="GPU memory to plan with: 24G, or 24G,12G for two. [default: free memory]"
)
@click.option("--reserve", type=Size(), default="1G", show_default=True, help="GPU memory to leave free.")
@click.option("-c", "--ctx", type=Count(16), default=4096, show_default=True, help="Context size in tokens.")
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
    "--kv-type-draft",
    type=click.Choice(KV_TYPES),
    help="Type of both KV caches of the drafter. [default: the target's]",
)
@click.option(
    "-ctkd",
    "--cache-type-k-draft",
    type=click.Choice(KV_TYPES),
    help="Type of the drafter's K cache. [default: --kv-type-draft]",
)
@click.option(
    "-ctvd",
    "--cache-type-v-draft",
    type=click.Choice(KV_TYPES),
    help="Type of the drafter's V cache. [default: --kv-type-draft]",
)
@click.option(
    "-ub",
    "--ubatch-size",
    "ubatch",
    type=Count(1),
    default=512,
    show_default=True,
    help="Physical batch size in tokens.",
)
@click.option("--build", type=Count(1), help="Plan for this build number of llama.cpp. [default: the newest]")
@output_options
@pass_options
def command(options: PlanOptions, *, tuned: str | None, output: str, out: Path | None) -> None:
    """Plan memory for each device, and for each number of layers on the GPU.

    Only the headers of the models are read. Without --pair or -m, the pair is the one fetched last, otherwise
    the embedded one.

    With --machine, and --host for layers on the CPU, there is a column of tokens/s of the target alone. They
    are estimated by a roofline, from the machines' peak rates, with a full context.

    \b
    ggufspec plan --pair llama-3-70b --vram 24G
    ggufspec plan -m user/repo:Q4_K_M --vram 24G --machine rtx-3090 --host ryzen-7950x
    ggufspec plan -m big.gguf -md small.gguf --ngl 45 --kv-type q8_0 -o csv
    ggufspec plan --tuned last --vram 16G
    ggufspec plan --pair llama-3-70b --rpc 192.168.0.7:50052
    """
    from ggufspec.modelfiles import memory
    from ggufspec.modelfiles.compat import mtp_layers
    from ggufspec.report import frames
    from ggufspec.report.text import formats, plans, tables

    try:
        planned = options.ask() if tuned is None else _plan_tuned(options, tuned)
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    for gpu in planned.gpus:
        free, total = format_bytes(gpu.free_bytes), format_bytes(gpu.total_bytes)
        echo(f"detected: {gpu.name}, {free} of {total} free", err=True)
    if planned.method is not None and planned.draft is None:
        echo(f"note: {planned.pair.name} drafts with {planned.method}, which needs no second model", err=True)
    if planned.method is None and mtp_layers(planned.target):
        echo("note: the target has layers for MTP; --method draft-mtp plans memory for them", err=True)
    for role, card in (("target", planned.target), ("drafter", planned.draft)):
        for doubt in memory.doubts(card) if card else ():
            echo(f"note: the memory for the {role} is uncertain: {doubt}", err=True)
    for note in planned.notes:
        echo_sentence(note, err=True)
    if output not in tables.FOR_PEOPLE:
        emit(formats.render(frames.memory_plans(planned), output, title="plan", schema="plan"), out)
        return
    emit(f"{_describe_fit(planned)}\n\n{plans.memory_plan(planned, output)}", out)


def _plan_tuned(options: PlanOptions, tuned: str) -> planning.Planned:
    """Return the plan of a tuned configuration.

    Raises:
        ResultsError: there is no such configuration, or it cannot be trusted.
        ModelFileError: a model is not here, or another file is in its place.
    """
    from ggufspec.forecast import planning
    from ggufspec.measure import locate_models
    from ggufspec.modelfiles import choosing, hub, memory
    from ggufspec.results import read_configuration

    configuration = read_configuration(tuned)
    spec, serving = configuration.spec, configuration.serving
    slots = "" if serving.slots == 1 else f" in each of {serving.slots} slots"
    echo(f"tuned: {configuration.id}, for a context of {serving.context:,} tokens{slots}", err=True)
    pair = locate_models(configuration)
    return planning.plan_pair(
        pair,
        choosing.read_cards(pair, hub.Access(token=options.token, offline=options.offline)),
        spec.offload,
        memory.settings_for(spec, memory.layout_for(options.build)),
        vram=options.vram,
        reserve=options.reserve,
        machine=options.machine,
        host=options.host,
    )


def _describe_fit(planned: planning.Planned) -> str:
    """Return the sentences above the tables: what fits, what would, and how fast that can be at most."""
    shown, best, complete = planned.shown, planned.best, planned.plans[-1]
    layers = f"{shown.target.gpu_layers} of {shown.target.max_layers} layers"
    takes = f"{format_bytes(shown.gpu_bytes)} on the GPU, {format_bytes(shown.host_bytes)} on the host"
    beside = " beside the drafter" if shown.draft else ""
    if not planned.vram_bytes:
        return f"{layers}{beside} take {takes}.{_describe_rate(planned)}"
    sizes = planned.vram_bytes if planned.is_split else (sum(planned.vram_bytes),)
    room = f"{' + '.join(map(format_bytes, sizes))} with {format_bytes(planned.reserve_bytes)} left free"
    fit = "fit" if planned.fits(shown) else "do not fit"
    answer = f"{layers} {fit}{beside} into {room}: {takes}."
    if best is None:
        answer += " Offload fewer layers of the drafter, or none (--ngld 0)."
    elif best is not shown:
        answer += f" At most {best.target.gpu_layers} fit."
    elif best.target.gpu_layers < best.target.max_layers:
        answer += f" All {complete.target.max_layers} would take {format_bytes(complete.gpu_bytes)}."
    return f"{answer}{_describe_rate(planned)}"


def _describe_rate(planned: planning.Planned) -> str:
    rate = planned.rate(planned.shown)
    if rate is None:
        return ""
    return f"\nRoofline: about {format_rate(rate)} tokens/s without drafting, with a full context."
