"""ResultSet -> pandas.DataFrame; the only module that imports pandas at run time.

Fractions stay fractions, absent is null, and the units are in the columns' names.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from ggufspec import arms
from ggufspec.domain import RunResult, Sample
from ggufspec.memory import Footprint, MemoryPlan
from ggufspec.results import ResultSet
from ggufspec.units import format_bytes

SUMMARY_COLUMNS = (
    *("pair", "role", "engine", "n_gpu_layers", "n_gpu_layers_draft", "draft_n_max", "prompts", "repeats"),
    *("gen_tps", "gen_tps_lo", "gen_tps_hi", "accept_rate", "n_drafted", "n_accepted"),
    *("speedup", "speedup_lo", "speedup_hi", "text_identical", "status", "warnings"),
    *("llama_version", "llama_commit", "backend"),
)
RUN_COLUMNS = (
    *("run", "pair", "role", "engine", "prompt", "category", "repeat", "warmup", "draft_n_max", "status"),
    *("decode_tps", "prompt_tokens", "prompt_tps", "gen_tokens", "gen_s", "gen_tps", "sampling_s"),
    *("n_drafted", "n_accepted", "accept_rate", "load_ms", "offloaded_layers", "total_layers"),
    *("text_identical", "differs_at_token", "differs_at_char", "wall_s", "program_s", "peak_rss_bytes"),
    *("others_cores", "attempts", "error", "doubts", "text", "log", "spec_key", "started_at"),
)
LOG_COLUMNS = (
    *("file", "program", "build", "prompt_tokens", "prompt_tps", "gen_tokens", "gen_tps", "n_draft"),
    *("n_drafted", "n_accepted", "accept_rate", "load_ms", "offloaded_layers", "total_layers", "status"),
)

_DEVICES = ("target_gpu", "target_host", "drafter_gpu", "drafter_host")
_PARTS = ("weights", "cache", "compute")
MEMORY_COLUMNS = (
    *("n_gpu_layers", "n_gpu_layers_draft", "gpu_bytes", "host_bytes", "fits"),
    *(f"{device}_{part}_bytes" for device in _DEVICES for part in _PARTS),
)


def summary(results: ResultSet) -> pd.DataFrame:
    """Return one row per arm: target alone, drafter alone, drafting at each size.

    ``gen_tps`` is the geometric mean over prompts of ``Sample.decode_tps``, in tokens/s; ``accept_rate`` and
    ``speedup`` are fractions; intervals are 95 % over repeats.
    """
    advice = arms.warnings(results)
    return _frame([_summary_row(results, arm, advice) for arm in arms.group(results)], SUMMARY_COLUMNS)


def runs(results: ResultSet) -> pd.DataFrame:
    """Return one tidy row per measured run; warm-ups and failures are marked, not hidden."""
    return _frame([_run_row(results, run) for run in results.runs], RUN_COLUMNS)


def logs(samples: Sequence[tuple[str, Sample]]) -> pd.DataFrame:
    """Return one row per parsed log: (file name, what it says)."""
    return _frame(
        [{"file": file, **_fields(sample, LOG_COLUMNS[1:])} for file, sample in samples], LOG_COLUMNS
    )


def memory_trade(plans: Sequence[MemoryPlan], budget_bytes: int | None) -> pd.DataFrame:
    """Return one row per plan, in bytes; ``fits`` is null where no budget is known."""
    rows = [
        {
            "n_gpu_layers": plan.target.gpu_layers,
            "n_gpu_layers_draft": plan.draft and plan.draft.gpu_layers,
            "gpu_bytes": plan.gpu_bytes,
            "host_bytes": plan.host_bytes,
            "fits": None if budget_bytes is None else plan.gpu_bytes <= budget_bytes,
            **{
                f"{device}_{part}_bytes": getattr(footprint, part)
                for device, footprint in _footprints(plan).items()
                for part in _PARTS
            },
        }
        for plan in plans
    ]
    return _frame(rows, MEMORY_COLUMNS)


def memory_overview(plans: Sequence[MemoryPlan], budget_bytes: int | None) -> pd.DataFrame:
    """Return one row per plan for people to read."""
    rows = [
        {
            "target layers on the GPU": plan.target.gpu_layers,
            "GPU": format_bytes(plan.gpu_bytes),
            "host": format_bytes(plan.host_bytes),
            "fits": "" if budget_bytes is None else "yes" if plan.gpu_bytes <= budget_bytes else "no",
        }
        for plan in plans
    ]
    columns = ("target layers on the GPU", "GPU", "host", *(("fits",) if budget_bytes is not None else ()))
    return _frame(rows, columns)


def memory_devices(plan: MemoryPlan) -> pd.DataFrame:
    """Return one row per model and device of a plan, for people to read."""
    rows = [
        {
            "memory of": device.replace("_", " on the ").replace("gpu", "GPU"),
            **{part: format_bytes(getattr(footprint, part)) for part in _PARTS},
            "total": format_bytes(footprint.total),
        }
        for device, footprint in _footprints(plan).items()
    ]
    return _frame(rows, ("memory of", *_PARTS, "total"))


def _footprints(plan: MemoryPlan) -> dict[str, Footprint]:
    models = {"target": plan.target, "drafter": plan.draft}
    return {
        f"{name}_{device}": getattr(model, device)
        for name, model in models.items()
        if model is not None
        for device in ("gpu", "host")
    }


def _summary_row(results: ResultSet, arm: arms.Arm, advice: Mapping[str, str]) -> dict[str, Any]:
    compared = arm.compared
    build = results.meta.build
    return {
        "pair": arm.runs[0].spec.pair.name,
        "role": arm.role.value,
        "engine": results.meta.engine,
        "n_gpu_layers": arm.layers and arm.layers.offloaded,
        "n_gpu_layers_draft": arm.draft_layers and arm.draft_layers.offloaded,
        "draft_n_max": arm.draft_size,
        "prompts": arm.prompts,
        "repeats": arm.repeats,
        "gen_tps": arm.rate and arm.rate.value,
        "gen_tps_lo": arm.rate and arm.rate.lo,
        "gen_tps_hi": arm.rate and arm.rate.hi,
        "accept_rate": arm.accept_rate,
        "n_drafted": arm.n_drafted,
        "n_accepted": arm.n_accepted,
        "speedup": arm.gain and arm.gain.value,
        "speedup_lo": arm.gain and arm.gain.lo,
        "speedup_hi": arm.gain and arm.gain.hi,
        "text_identical": all(compared.values()) if compared else None,
        "status": arm.status,
        "warnings": [
            {"name": name, "advice": text}
            for name, text in advice.items()
            if name in arm.doubts or name in results.meta.doubts
        ],
        "llama_version": build.version,
        "llama_commit": build.commit,
        "backend": build.backend,
    }


def _run_row(results: ResultSet, run: RunResult) -> dict[str, Any]:
    spec, difference = run.spec, run.difference
    return {
        **_fields(run.sample, RUN_COLUMNS),
        **_fields(run, RUN_COLUMNS),
        "run": results.meta.id,
        "pair": spec.pair.name,
        "role": spec.role.value,
        "prompt": spec.prompt.id,
        "category": spec.prompt.category,
        "draft_n_max": spec.drafting and spec.drafting.n_max,
        "differs_at_token": difference and difference.at_token,
        "differs_at_char": difference and difference.at_char,
        "doubts": "; ".join(run.doubts) or None,
        "spec_key": spec.key,
    }


def _fields(value: Sample | RunResult, names: Sequence[str]) -> dict[str, Any]:
    """Return the attributes of these names that the value has; enums as their text."""
    found = {name: getattr(value, name) for name in names if hasattr(value, name)}
    return {name: getattr(item, "value", item) for name, item in found.items()}


def _frame(rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> pd.DataFrame:
    """Make a frame whose integers stay integers where some are absent."""
    return pd.DataFrame([dict(row) for row in rows], columns=list(columns), dtype=object).convert_dtypes()
