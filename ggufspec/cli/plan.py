"""``ggufspec plan``: how many layers fit, before anything is downloaded or run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ggufspec.cli.entry.output import echo
from ggufspec.cli.options import completions
from ggufspec.cli.options.shared import KV_TYPES, Count, Layers, Size, emit, output_options
from ggufspec.units import format_bytes

if TYPE_CHECKING:
    from ggufspec.domain import Layers as LayersValue
    from ggufspec.modelfiles.memory import MemoryPlan, Settings


@click.command()
@click.option("--pair", metavar="NAME", shell_complete=completions.pairs, help="A pair of the catalogue.")
@click.option(
    "-m",
    "--target",
    metavar="REF",
    shell_complete=completions.models,
    help="The target: a path, user/repo:QUANT, demo:target.",
)
@click.option(
    "-md", "--draft-model", metavar="REF", shell_complete=completions.models, help="The drafter, likewise."
)
@click.option("--vram", type=Size(), help="The GPU's memory, such as 24G; else what is detected as free.")
@click.option("--reserve", type=Size(), default="1G", show_default=True, help="What to leave free of it.")
@click.option("-c", "--ctx", type=Count(16), default=4096, show_default=True, help="Context in tokens.")
@click.option("-ngl", "--ngl", type=Layers(), help="Target layers on the GPU; the most that fit without it.")
@click.option(
    "-ngld", "--ngld", type=Layers(), default="all", show_default=True, help="Drafter layers there."
)
@click.option(
    "-ctk",
    "--kv-type",
    type=click.Choice(KV_TYPES),
    default="f16",
    show_default=True,
    help="Type of both caches.",
)
@click.option(
    "-ub",
    "--ubatch",
    type=Count(1),
    default=512,
    show_default=True,
    help="Tokens at once.",
)
@click.option("--build", type=Count(1), help="Plan for this build of llama.cpp, not for today's.")
@click.option("--offline", is_flag=True, help="Use what is cached, ask nobody.")
@output_options
def command(*, output: str, out: Path | None, **asked: Any) -> None:
    """Plan memory from the headers alone: per device, and for every number of layers on the GPU.

    Without --pair or -m it is the last fetched pair, else the embedded one.

    \b
    ggufspec plan --pair llama-3-70b --vram 24G
    ggufspec plan -m big.gguf -md small.gguf --ngl 45 --kv-type q8_0 -o csv
    """
    from ggufspec.cli.options import models
    from ggufspec.domain import Offload
    from ggufspec.modelfiles import catalog, hub, memory
    from ggufspec.report import frames
    from ggufspec.report.text import formats, tables

    access = hub.Access(offline=asked["offline"])
    pair = models.choose(asked["pair"], asked["target"], asked["draft_model"], access)
    target, draft = models.cards(pair, access)
    method = catalog.drafting_method(pair)
    if method is not None and not method.needs_drafter:
        echo(f"note: {pair.name} drafts by {method}, which loads no second model", err=True)
    settings = _settings(asked)
    vram = _detected() if asked["vram"] is None else asked["vram"]
    draft_layers: LayersValue = asked["ngld"]
    plans = memory.trade(target, draft, settings, draft_layers)
    best = memory.best_fit(plans, vram, asked["reserve"]) if vram else None
    if asked["ngl"] is not None:
        shown = memory.plan(
            target, draft, Offload(target_layers=asked["ngl"], draft_layers=draft_layers), settings
        )
    else:
        shown = best or plans[0 if vram else -1]
    budget = vram - asked["reserve"] if vram else None
    for which, card in (("target", target), ("drafter", draft)):
        for doubt in memory.doubts(card) if card else ():
            echo(f"note: the {which} may need more or less: {doubt}", err=True)
    if output not in tables.FOR_PEOPLE:
        emit(formats.render(frames.memory_trade(plans, budget), output, title="plan"), out)
        return
    steps = max(1, len(plans) // 16)
    some = [each for number, each in enumerate(plans) if number % steps == 0 or each in (shown, plans[-1])]
    emit(
        f"{_answer(shown, best, plans[-1], vram, asked['reserve'])}\n\n"
        f"{formats.for_people(frames.memory_devices(shown), output)}\n"
        f"{formats.for_people(frames.memory_overview(some, budget), output)}",
        out,
    )


def _detected() -> int | None:
    """Return the free memory of the GPUs that are here, and say which they are."""
    from ggufspec.llama.install import installs

    gpus = installs.detect_gpus()
    for gpu in gpus:
        free, total = format_bytes(gpu.free_bytes), format_bytes(gpu.total_bytes)
        echo(f"detected: {gpu.name}, {free} of {total} free", err=True)
    return sum(gpu.free_bytes for gpu in gpus) or None


def _settings(asked: dict[str, Any]) -> Settings:
    from ggufspec.modelfiles import memory

    kv_type = asked["kv_type"].upper()
    return memory.Settings(
        context=asked["ctx"],
        kv_type_k=kv_type,
        kv_type_v=kv_type,
        n_ubatch=asked["ubatch"],
        layout=memory.layout_for(asked["build"]),
    )


def _answer(
    shown: MemoryPlan, best: MemoryPlan | None, whole: MemoryPlan, vram: int | None, reserve: int
) -> str:
    layers = f"{shown.target.gpu_layers} of {shown.target.max_layers} layers"
    takes = f"{format_bytes(shown.gpu_bytes)} on the GPU, {format_bytes(shown.host_bytes)} on the host"
    beside = " beside the drafter" if shown.draft else ""
    if vram is None:
        return f"{layers}{beside} take {takes}."
    room = f"{format_bytes(vram)} with {format_bytes(reserve)} left free"
    fit = "fit" if shown.gpu_bytes + reserve <= vram else "do not fit"
    answer = f"{layers} {fit}{beside} into {room}: {takes}."
    if best is None:
        return f"{answer} Put fewer layers of the drafter there (--ngld), or none."
    if best is not shown:
        return f"{answer} The most that fit are {best.target.gpu_layers}."
    if best.target.gpu_layers < best.target.max_layers:
        return f"{answer} All {whole.target.max_layers} would take {format_bytes(whole.gpu_bytes)}."
    return answer
