"""The rows of lists: stored benches, models, possible drafters, suites, prompts, and those of a board."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from datetime import datetime

from ggufspec import units
from ggufspec.analysis import ListedBench
from ggufspec.llama.install import releases
from ggufspec.prompts import PromptSuite
from ggufspec.report.columns import Row, column, shown
from ggufspec.report.rows.benches import ArmRow
from ggufspec.units import format_bytes


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
    """An arm of a published bench, see ``analysis.BoardRow``."""

    bundle: str
    sha256: str
    state: str = column("bundle is")
    bench: str = column("report", of="meta.id", link="address")
    engine: str = column(of="meta.engine")
    machine: str
    build: str = column(
        "llama.cpp",
        of=lambda row: f"{releases.identify(row.arm.build)}, {row.arm.build.backend or 'unknown backend'}",
    )
    target_tps: float | None = column(
        "target alone, tokens/s", units.format_rate, of="arm.baseline.rate.value"
    )
    runs: int = column(of=lambda row: len(row.arm.rates))
    arm: ArmRow


class LinkedConfigurationRow(Row):
    """A configuration with the address of its report."""

    row: ConfigurationRow


_WORDS = 8  # of a prompt that are shown


class DrafterRow(Row):
    """A possible drafter; see ``modelfiles.api.SuggestedDrafter``."""

    drafter: str = column(of="name")
    method: str = column("drafts by")
    size_bytes: int | None = column("size", format_bytes, of="file.size_bytes")
    ratio: float = column(show=lambda ratio: f"1/{1 / ratio:.0f}")
    downloads: int | None = column(show="{:,}".format)
    verdict: str = shown(
        "llama.cpp", of=lambda drafter: ": ".join((drafter.verdict.outcome, *drafter.verdict.reasons[:1]))
    )
    outcome: str = column(of="verdict.outcome")
    reasons: list[str] = column(of="verdict.reasons")
    helps: list[str] = column(of="verdict.helps")


class StoredItemRow(Row):
    """A build, a model, a bench or another item that takes disk space; see ``doctor.storage``."""

    name: str
    kind: str
    size_bytes: int = column("size", format_bytes)
    changed_at: str = column(of=lambda item: item.changed_at.isoformat(timespec="seconds"))
    day: str = shown("changed", of=lambda item: item.changed_at.date().isoformat())
    note: str | None = column(of=lambda item: item.note or None)
    path: str = column(of=lambda item: str(item.places[0]))


def _lengths(suite: PromptSuite) -> list[int]:
    return [len(prompt.text) for prompt in suite.prompts]


class ListedSuiteRow(Row):
    """A suite of prompts; lengths are in characters."""

    suite: str = column(of="name")
    categories: list[str] = column(show=", ".join)
    prompts: int = column(of=lambda suite: len(suite.prompts))
    median_characters: int = column(
        "median characters", of=lambda suite: round(statistics.median(_lengths(suite)))
    )
    largest_characters: int = column("largest characters", of=lambda suite: max(_lengths(suite)))
    conversations: int = column(of=lambda suite: sum(bool(prompt.followups) for prompt in suite.prompts))
    licence: str | None


class ListedPromptRow(Row):
    """A prompt of a suite, with how it begins."""

    prompt: str = column(of="id")
    category: str | None
    characters: int = column(of=lambda prompt: len(prompt.text))
    followups: int = column(of=lambda prompt: len(prompt.followups))
    first_words: str = column("first words", of=lambda prompt: " ".join(prompt.text.split()[:_WORDS]))
