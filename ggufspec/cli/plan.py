"""``ggufspec plan``: how many layers fit, without downloading or running a model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ggufspec import api
from ggufspec.cli.entry.command import command_of, usage_errors
from ggufspec.cli.entry.output import echo, echo_sentence
from ggufspec.cli.entry.tables import emit
from ggufspec.options import PlanOptions
from ggufspec.units import format_bytes, format_rate

if TYPE_CHECKING:
    from ggufspec.forecast import planning


@command_of(PlanOptions)
def command(asked: PlanOptions) -> None:
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

    with usage_errors():
        planned = api.plan(asked)
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
    if asked.output not in tables.FOR_PEOPLE:
        rows = frames.memory_plans(planned)
        emit(formats.render(rows, asked.output, title="plan", schema="plan"), asked.out)
        return
    emit(f"{_describe_fit(planned)}\n\n{plans.memory_plan(planned, asked.output)}", asked.out)


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
