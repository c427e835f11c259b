"""The rows of lists of many benches: those that are stored here, and those of a board."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from ggufspec import units
from ggufspec.analysis import ListedBench
from ggufspec.domain import Estimate
from ggufspec.report.columns import Row, column, shown


def ranges(numbers: Sequence[int]) -> str:
    """Return ascending numbers as ranges: ``1-4, 8``."""
    parts: list[list[int]] = []
    for number in numbers:
        if parts and number == parts[-1][-1] + 1:
            parts[-1].append(number)
        else:
            parts.append([number])
    return ", ".join(f"{part[0]}-{part[-1]}" if len(part) > 1 else str(part[0]) for part in parts)


def _date(bench: ListedBench) -> str:
    try:
        return f"{datetime.fromisoformat(bench.started_at or ''):%Y-%m-%d %H:%M}"
    except ValueError:
        return ""


def _gain(bench: ListedBench) -> str:
    if bench.speedup is None:
        return ""
    at = f" at γ {bench.draft_size}" if len(bench.draft_sizes) > 1 else ""
    is_open = f", {bench.verdict.value}" if bench.verdict is not None and not bench.verdict.is_finding else ""
    synthetic = " (synthetic acceptance)" if bench.synthetic else ""
    return f"{units.format_factor(bench.speedup)}{at}{is_open}{synthetic}"


def _complete(bench: ListedBench) -> str:
    complete = {True: "yes", False: f"{bench.runs} of {bench.planned_runs} runs", None: "not recorded"}
    if bench.damage is None:
        return complete[bench.is_complete]
    return "damaged" if bench.started_at is None else f"{complete[bench.is_complete]}, damaged"


class ListedBenchRow(Row):
    """A stored bench; ``complete`` is whether it has every planned run."""

    name: str
    date: str = shown("started (UTC)", of=_date)
    started_at: str | None
    model_names: str = shown("models", of=lambda bench: " + ".join(bench.models))
    models: list[str] = column(of=lambda bench: list(bench.models))
    sizes: str = shown("γ", ranges, of="draft_sizes")
    draft: list[int] = column(of=lambda bench: list(bench.draft_sizes))
    gain: str = shown("speed-up", of=_gain)
    speedup: float | None = column(show=units.format_factor)
    verdict: str | None
    draft_size: int | None
    synthetic: bool
    runs: int
    planned_runs: int | None
    damage: str | None
    is_complete: str = shown("complete", of=_complete)
    complete: bool | None = column(of="is_complete")


class LocalModelRow(Row):
    """A model on this machine; see ``modelfiles.api.LocalModel``."""

    name: str
    place: str = column("kept by")
    size_bytes: int = column("size", units.format_bytes, of="card.size_bytes")
    quant: str = column(
        of="card.described_quant", help="With the types of its tensors where most are of another one."
    )
    architecture: str = column(of="card.architecture")
    context_length: int = column("context", of="card.context_length", help="For which it was trained.")
    head: str | None = column(help="How it drafts as a head, or with layers of its own.")
    path: str = column(of=lambda model: str(model.path))


class LocalPairRow(Row):
    """A model on this machine that can draft for another one."""

    target: str = column(of="target.name")
    drafter: str = column(of="drafter.name", help="The target itself where its own layers draft.")
    method: str = column("drafts by")
    ratio: float = column("size of the target", units.format_percent, help="Bytes of drafter to target.")
    speedup: float | None = column(
        "speed-up", units.format_factor, help="By the newest bench of this pair; null where none measured it."
    )
    bench: str | None = column("measured in")
    target_path: str = column(of=lambda pair: str(pair.target.path))
    drafter_path: str = column(of=lambda pair: str(pair.drafter.path))


class ConfigurationRow(Row):
    """An arm of a published bench, see ``analysis.BoardRow``; ``address`` is that of its report."""

    bundle: str
    sha256: str
    pair: str
    machine: str
    build: str = column("llama.cpp")
    gamma: int | None = column("γ")
    rate: float = shown("tokens/s", units.format_rate, of="tps.value")
    tps: Estimate = column("tokens/s", units.format_rate)
    speedup: Estimate | None = column("speed-up", units.format_factor)
    verdict: str | None
    bench: str = column("report", link="address")
    state: str = column("bundle is")
    target_tps: float | None = column("target alone, tokens/s", units.format_rate)
    accept_rate: float | None = column("accepted", units.format_percent)
    layers: int | None = column("GPU layers")
    threads: int | None
    users: int | None
    p_min: float | None = column("p-min")
    engine: str
    runs: int
