"""A bench as tables: one row for each arm, or one for each run."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence
from importlib import metadata
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ggufspec import units
from ggufspec.analysis import Arm, arms, review, texts, traffic, warnings, windows
from ggufspec.domain import Placement, Role, RunOutcome, RunSpec
from ggufspec.llama.install import releases
from ggufspec.notebooks import named_options
from ggufspec.report.frames.tables import (
    attributes,
    frame,
    list_methods,
)
from ggufspec.results import Meta, ResultSet, Runs

_DEVICES = ("GPU", "CPU")
_ESTIMATES = {"j_per_token": "per_token", "energy_ratio": "ratio"}
_ENDS = {"": "value", "_lo": "lo", "_hi": "hi"}

ENERGY_ARM_COLUMNS = tuple(
    f"{device.lower()}_{name}{end}" for device in _DEVICES for name in _ESTIMATES for end in _ENDS
)
"""Per arm: J per token, and its ratio to the target alone, with intervals; see ``arm.Energy``."""

ENERGY_RUN_COLUMNS = (
    *("cpu_j", "gpu_j", "gpu_memory_mhz", "gpu_peak_w", "gpu_power_limit_w"),
    *("gpu_used_bytes", "gpu_peak_bytes", "gpu_throttled"),
)
"""Per run: fields of ``Conditions``."""


def _energy_of(arm: Arm) -> dict[str, Any]:
    """Return an arm's values of ``ENERGY_ARM_COLUMNS``; a device that was not measured has none."""
    return {
        f"{device.lower()}_{name}{end}": getattr(getattr(energy, field), part, None)
        for device, energy in arm.energy.items()
        for name, field in _ESTIMATES.items()
        for end, part in _ENDS.items()
    }


def _traffic_of(arm: Arm) -> dict[str, Any]:
    """Return an arm's values of ``TRAFFIC_ARM_COLUMNS``; none for one request after another."""
    figures = arm.traffic
    if figures is None:
        return {}
    gain = arm.user_gain.ratio if arm.user_gain else None
    return {
        **{f"user_tps{end}": getattr(arm.user_rate, part, None) for end, part in _ENDS.items()},
        **{f"user_speedup{end}": getattr(gain, part, None) for end, part in _ENDS.items()},
        **{
            f"{name}_p{percent}_s{end}": getattr(getattr(figures, field).get(percent), part, None)
            for name, field in _TRAFFIC_TIMES.items()
            for percent in traffic.PERCENTILES
            for end, part in _ENDS.items()
        },
        "requests": figures.requests,
        "requests_failed": sum(figures.failed.values()),
        **{f"goodput{end}": getattr(figures.goodput, part, None) for end, part in _ENDS.items()},
        "burst_share": figures.burst_share,
        "client_share": figures.client_share,
    }


def _throttled(runs: Runs) -> list[str | None]:
    """Return the reasons of GPU throttling in each run; None without throttling, or where unknown."""
    return ["; ".join(reasons or ()) or None for reasons in runs.column("gpu_throttled")]


SETTING_COLUMNS = (
    *("pair", "role", "target", "draft_model", "requested_ngl", "requested_ngld"),
    *("method", "ngram", "draft", "p_min", "synthetic_accept", "threads", "kv_type", "ubatch"),
    *("settings", "llama_build", "users", "depth", "rate"),
)
"""The settings that distinguish the arms of a bench, in every table with a row for each arm.

They have the names of options. ``requested_ngl`` and ``requested_ngld`` are what was asked for;
``actual_ngl`` and ``actual_ngld`` are how many layers llama.cpp offloaded.
"""

AUDIT_COLUMNS = (
    *("audited_texts", "audited_tokens", "near_tie_tokens", "divergent_tokens", "divergence_bound"),
    *("distribution_p_value", "impossible_tokens", "audit_unjudged"),
)
"""What the audit of texts found; see ``analysis.AuditSummary``."""

_TRAFFIC_TIMES = {"ttft": "ttft_s", "token": "token_s"}

TRAFFIC_ARM_COLUMNS = (
    *("user_tps", "user_tps_lo", "user_tps_hi", "user_speedup", "user_speedup_lo", "user_speedup_hi"),
    *(
        f"{name}_p{percent}_s{end}"
        for name in _TRAFFIC_TIMES
        for percent in traffic.PERCENTILES
        for end in _ENDS
    ),
    *("requests", "requests_failed", "goodput", "goodput_lo", "goodput_hi", "burst_share", "client_share"),
)
"""Per arm with several users: what each saw, in tokens/s and seconds; see ``TrafficFigures``."""

SUMMARY_COLUMNS = (
    *("engine", *SETTING_COLUMNS, "actual_ngl", "actual_ngld"),
    *("prompts", "repeats", "gen_tps", "gen_tps_lo", "gen_tps_hi"),
    *("n_drafted", "n_accepted", "n_rounds", "accept_rate", "mean_accepted_length", "coverage"),
    "by_method",
    *("speedup", "speedup_lo", "speedup_hi", "p_value", "verdict"),
    *("new_over_old", "new_over_old_lo", "new_over_old_hi", "new_over_old_verdict"),
    *("draft_ms_per_round", "verify_ms_per_round", "rest_ms_per_round", "ttft_s"),
    *TRAFFIC_ARM_COLUMNS,
    *ENERGY_ARM_COLUMNS,
    *("text_identical", *AUDIT_COLUMNS),
    *("status", "warnings", "bench_warnings", "llama_version", "llama_commit"),
    *("llama_cpp_python", "backend"),
)
RUN_COLUMNS = (
    *("bench", "engine", *SETTING_COLUMNS, "prompt", "category", "outcome", "status"),
    *("decode_tps", "prompt_tokens", "prompt_tps", "gen_tokens", "gen_s", "gen_tps", "sampling_s"),
    "prompt_in_gen_s",
    *("n_drafted", "n_accepted", "n_rounds", "accept_rate", "draft_s", "verify_s", "ttft_s", "itl_s"),
    *("load_ms", "actual_ngl", "total_layers", "gpu_bytes", "placement"),
    *("actual_ngld", "draft_total_layers", "draft_gpu_bytes", "draft_placement"),
    *(
        "repeat",
        "warmup",
        "anchor",
        "rerun",
        "remeasured",
        "load",
        "wall_s",
        "program_s",
        "peak_rss_bytes",
        "attempts",
        "error",
    ),
    *("log", "others_cores", "steal_cores", "cpu_mhz", "cpu_c", "cpu_w", "swapped_bytes"),
    *("gpu_mhz", "gpu_c", "gpu_w", *ENERGY_RUN_COLUMNS),
    *("text_identical", "differs_at_token", "differs_at_char", "target_token", "drafting_token"),
    *("margin_nats", "text_verdict"),
    *("audited_tokens", "near_tie_tokens", "divergent_tokens", "first_divergent_token"),
    *("worst_margin_nats", "impossible_tokens", "audit_unjudged"),
    *("doubts", "text", "spec_key", "started_at"),
)
_DIFFERENCE = {
    "differs_at_token": "at_token",
    "differs_at_char": "at_char",
    "target_token": "target_token",
    "drafting_token": "drafting_token",
    "margin_nats": "margin",
}
_AUDIT = {
    "audited_tokens": "tokens",
    "near_tie_tokens": "near_ties",
    "divergent_tokens": "divergent",
    "first_divergent_token": "first_divergent",
    "worst_margin_nats": "worst_margin",
    "impossible_tokens": "impossible",
    "audit_unjudged": "unjudged",
}


@named_options
def origin(bench: ResultSet | Meta) -> dict[str, Any]:
    """Return the origin of a bench's rows: run id, date (UTC), machine and versions.

    ``ggufspec_version`` is the version that writes the rows.
    """
    meta = bench.meta if isinstance(bench, ResultSet) else bench
    version = releases.identify(meta.build)
    return {
        "bench": meta.id,
        "date": meta.started_at,
        "processor": meta.machine.cpu,
        "gpus": list(meta.machine.gpus),
        "ggufspec_version": metadata.version("ggufspec"),
        "llama_version": version.tag,
        "llama_commit": version.commit,
        "llama_cpp_python": version.package,
    }


@named_options
def summary(results: ResultSet) -> pd.DataFrame:
    """Return one row per arm: target alone, drafter alone, drafting at each size.

    ``gen_tps`` is the geometric mean over prompts of medians of ``decode_tps``, in tokens/s;
    ``accept_rate``, ``coverage`` and ``speedup`` are fractions; intervals are of 95 %, see stats.
    ``new_over_old`` is the speed over the same arm's with the first llama.cpp, in a bench of several.
    ``warnings`` are those that the arm's runs show, ``bench_warnings`` those about the bench, the same in
    each row; each has a name and advice.
    """
    return frame(summary_rows(results, arms.group(results)), SUMMARY_COLUMNS)


def machines(benches: Mapping[str, ResultSet]) -> pd.DataFrame:
    """Return one row per arm of each machine, with the machine before the columns of ``summary``."""
    rows = [
        {"machine": machine, **row}
        for machine, bench in benches.items()
        for row in summary_rows(bench, arms.group(bench))
    ]
    return frame(rows, ("machine", *SUMMARY_COLUMNS))


def summary_rows(results: ResultSet, groups: Sequence[Arm]) -> list[dict[str, Any]]:
    """Return the cells of each arm by column; what an arm does not have is left out."""
    listed = review.list_warnings(results, groups)
    return [_summary_row(results, arm, listed) for arm in groups]


@named_options
def runs(results: ResultSet) -> pd.DataFrame:
    """Return one row per run; columns mark warm-ups, anchors, failures and disturbed runs."""
    made = {**_requested(results.runs), **_measured(results.runs), "bench": results.meta.id}
    columns = {name: made[name] if name in made else results.runs.column(name) for name in RUN_COLUMNS}
    return pd.DataFrame(columns, index=range(len(results.runs)), dtype=object).convert_dtypes()


def sort_by_arm(frame: pd.DataFrame, results: ResultSet) -> pd.DataFrame:
    """Return a frame of runs or rounds sorted by arm, each arm's rows in the order of measurement."""
    keys = [tuple(settings(arm.spec).values()) for arm in arms.group(results)]
    rank = {key: place for place, key in enumerate(keys)}
    plain = frame[list(SETTING_COLUMNS)].astype(object)
    rows = plain.where(plain.notna(), None).itertuples(index=False, name=None)
    ranks = pd.Series([rank.get(row, len(rank)) for row in rows], index=frame.index, dtype=int)
    return frame.loc[ranks.sort_values(kind="stable").index]


def settings(spec: RunSpec) -> dict[str, Any]:
    """Return the requested settings; a layer column is empty for a model that the run does not load.

    ``p_min`` is empty for a method without it. ``synthetic_accept`` has the simulated probabilities
    that a round accepts each position; it is empty where the target itself decided. ``llama_build``
    names the llama.cpp where a bench compares several. ``users`` is how many sent requests at once, ``depth``
    how many tokens stood before each prompt, ``rate`` how many requests arrived in a second; they are empty
    for one request after another.
    """
    drafting = spec.drafting
    drafts = spec.role is not Role.TARGET and spec.pair.draft is not None
    return {
        "pair": spec.pair.name,
        "role": spec.role.value,
        "target": None if spec.role is Role.DRAFTER else spec.pair.target.filename,
        "draft_model": spec.pair.draft.filename if drafts and spec.pair.draft else None,
        "requested_ngl": None
        if spec.role is Role.DRAFTER or spec.servers
        else str(spec.offload.target_layers),
        "requested_ngld": str(spec.offload.draft_layers) if drafts else None,
        "method": drafting and str(drafting.chain),
        "ngram": (str(drafting.ngram) or None) if drafting else None,
        "draft": spec.draft_size,
        "p_min": drafting.p_min if drafting and drafting.method.drafts_with_model else None,
        "synthetic_accept": ",".join(f"{rate:g}" for rate in drafting.synthetic)
        if drafting and drafting.synthetic
        else None,
        "threads": spec.threads,
        "kv_type": spec.kv_type,
        "ubatch": spec.ubatch,
        "settings": shlex.join(spec.words) or None,
        "llama_build": spec.build,
        "users": spec.traffic and spec.traffic.users,
        "depth": spec.traffic and spec.traffic.depth,
        "rate": spec.traffic and spec.traffic.rate,
    }


def _summary_row(results: ResultSet, arm: Arm, listed: Sequence[review.BenchWarning]) -> dict[str, Any]:
    compared, gain, drafting, change = arm.compared, arm.gain, arm.acceptance, arm.change
    version = releases.identify(arm.build)
    return {
        **settings(arm.spec),
        **attributes(arm.build, ("backend",)),
        "engine": results.meta.engine,
        **attributes(drafting, ("n_drafted", "n_accepted", "n_rounds", "accept_rate", "coverage")),
        **attributes(drafting, ("mean_accepted_length",)),
        "by_method": list_methods(drafting.by_method if drafting else None),
        **arm.round_ms,
        **_traffic_of(arm),
        **_energy_of(arm),
        "actual_ngl": arm.layers and arm.layers.offloaded,
        "actual_ngld": arm.draft_layers and arm.draft_layers.offloaded,
        "prompts": arm.prompts,
        "repeats": arm.repeats,
        "gen_tps": arm.rate and arm.rate.value,
        "gen_tps_lo": arm.rate and arm.rate.lo,
        "gen_tps_hi": arm.rate and arm.rate.hi,
        "speedup": gain and gain.ratio.value,
        "speedup_lo": gain and gain.ratio.lo,
        "speedup_hi": gain and gain.ratio.hi,
        "p_value": gain and gain.p_value,
        "verdict": arm.judgement and arm.judgement.verdict.value,
        "new_over_old": change and change.ratio.value,
        "new_over_old_lo": change and change.ratio.lo,
        "new_over_old_hi": change and change.ratio.hi,
        "new_over_old_verdict": arm.change_judgement and arm.change_judgement.verdict.value,
        "ttft_s": arm.ttft_s,
        "text_identical": all(compared.values()) if compared else None,
        **_audit(arm),
        "status": arm.status,
        "warnings": [_name_and_advice(warning) for warning in listed if arm.spec.key in warning.arms],
        "bench_warnings": [_name_and_advice(warning) for warning in listed if warning.of_bench],
        "llama_version": version.tag,
        "llama_commit": version.commit,
        "llama_cpp_python": version.package,
    }


def _name_and_advice(warning: review.BenchWarning) -> dict[str, str]:
    return {"name": warning.name, "advice": warning.advice}


def _audit(arm: Arm) -> dict[str, Any]:
    """Return what the audit of an arm's texts found; empty where none was audited."""
    summary = texts.summarize_audits(arm.good)
    if summary is None:
        return {}
    return {
        "audited_texts": summary.texts,
        "audited_tokens": summary.tokens,
        "near_tie_tokens": summary.near_ties,
        "divergent_tokens": summary.divergent,
        "divergence_bound": summary.highest_share,
        "distribution_p_value": summary.p_value,
        "impossible_tokens": summary.impossible,
        "audit_unjudged": "; ".join(summary.unjudged) or None,
    }


def _requested(runs: Runs) -> dict[str, list[Any]]:
    """Return the columns of runs from their specifications."""
    specs = runs.specs
    known = {spec.key: settings(spec) for spec in specs}
    return {
        **{name: [known[spec.key][name] for spec in specs] for name in SETTING_COLUMNS},
        "prompt": [spec.prompt.id for spec in specs],
        "category": [spec.prompt.category for spec in specs],
        "spec_key": [spec.key for spec in specs],
    }


def _measured(runs: Runs) -> dict[str, list[Any]]:
    """Return the columns of runs from their measurements."""
    named = list(review.of_each(runs))
    differences = runs.column("difference")
    return {
        "status": [status.value for status in runs.column("status")],
        "outcome": [
            warnings.outcome(runs[place]).value if names else RunOutcome.OK.value
            for place, names in enumerate(named)
        ],
        "doubts": ["; ".join(names) or None for names in named],
        "gpu_throttled": _throttled(runs),
        "decode_tps": _numbers(windows.decode_rates(runs)),
        "prompt_in_gen_s": _numbers(windows.prompt_in_window(runs)),
        **{
            name: [difference and getattr(difference, field) for difference in differences]
            for name, field in _DIFFERENCE.items()
        },
        **{
            name: [audit and getattr(audit, field) for audit in runs.column("audit")]
            for name, field in _AUDIT.items()
        },
        "actual_ngl": runs.column("offloaded_layers"),
        "actual_ngld": runs.column("draft_offloaded_layers"),
        **_places(runs, ""),
        **_places(runs, "draft_"),
        "text_verdict": [
            difference and difference.verdict and difference.verdict.value for difference in differences
        ],
    }


def _numbers(column: NDArray[np.float64]) -> list[float | None]:
    return [None if math.isnan(number) else number for number in column.tolist()]


def _places(runs: Runs, prefix: str) -> dict[str, list[Any]]:
    """Return the columns of a model's memory: its bytes on GPUs, and a text with its bytes per device."""
    return {
        f"{prefix}gpu_bytes": [getattr(output, f"{prefix}gpu_bytes") for output in runs.outputs],
        f"{prefix}placement": [
            _format_placement(placement) for placement in runs.column(f"{prefix}placement")
        ],
    }


def _format_placement(placement: tuple[Placement, ...]) -> str | None:
    parts = (f"{units.format_bytes(device.total_bytes)} on {device.device}" for device in placement)
    return ", ".join(parts) or None
