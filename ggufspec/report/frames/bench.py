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
from ggufspec.analysis import Acceptance, Arm, arms, review, texts, traffic, warnings, windows
from ggufspec.domain import Placement, Role, RunOutcome, RunSpec
from ggufspec.llama.install import releases
from ggufspec.notebooks import named_options
from ggufspec.report.frames.tables import attributes, frame, list_methods
from ggufspec.report.schemas import rows
from ggufspec.results import Meta, ResultSet, Runs

ENERGY_RUN_COLUMNS = (
    *("cpu_j", "gpu_j", "gpu_memory_mhz", "gpu_peak_w", "gpu_power_limit_w"),
    *("gpu_used_bytes", "gpu_peak_bytes", "gpu_throttled"),
)
"""Per run: fields of ``Conditions``."""


def _energy_of(arm: Arm) -> rows.EnergyRow:
    """Return J per token of each device that was measured."""
    return rows.EnergyRow(
        **{
            f"{device.lower()}_{name}": getattr(energy, field)
            for device, energy in arm.energy.items()
            for name, field in (("j_per_token", "per_token"), ("energy_ratio", "ratio"))
        }
    )


def _traffic_of(arm: Arm) -> rows.TrafficRow:
    """Return what several users saw; nothing for one request after another."""
    figures = arm.traffic
    if figures is None:
        return rows.TrafficRow()
    return rows.TrafficRow(
        user_tps=arm.user_rate,
        user_speedup=arm.user_gain.ratio if arm.user_gain else None,
        **{
            f"{name}_p{percent}_s": estimates.get(percent)
            for name, estimates in (("ttft", figures.ttft_s), ("token", figures.token_s))
            for percent in traffic.PERCENTILES
        },
        requests=figures.requests,
        requests_failed=sum(figures.failed.values()),
        goodput=figures.goodput,
        burst_share=figures.burst_share,
        client_share=figures.client_share,
    )


def _throttled(runs: Runs) -> list[str | None]:
    """Return the reasons of GPU throttling in each run; None without throttling, or where unknown."""
    return ["; ".join(reasons or ()) or None for reasons in runs.column("gpu_throttled")]


SETTING_COLUMNS = rows.SettingsRow.columns()
SUMMARY_COLUMNS = rows.SummaryRow.columns()
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
    """Return where the rows of a bench come from, see ``rows.Origin``."""
    meta = bench.meta if isinstance(bench, ResultSet) else bench
    version = releases.identify(meta.build)
    return rows.Origin(
        bench=meta.id,
        date=meta.started_at,
        processor=meta.machine.cpu,
        gpus=list(meta.machine.gpus),
        ggufspec_version=metadata.version("ggufspec"),
        llama_version=version.tag,
        llama_commit=version.commit,
        llama_cpp_python=version.package,
    ).cells()


@named_options
def summary(results: ResultSet) -> pd.DataFrame:
    """Return one row per arm: target alone, drafter alone, drafting at each size.

    What the columns hold says ``rows.SummaryRow``; intervals are of 95 %, see stats.
    """
    return frame([row.cells() for row in summary_rows(results, arms.group(results))], SUMMARY_COLUMNS)


def machines(benches: Mapping[str, ResultSet]) -> pd.DataFrame:
    """Return one row per arm of each machine, with the machine before the columns of ``summary``."""
    listed = [
        {"machine": machine, **row.cells()}
        for machine, bench in benches.items()
        for row in summary_rows(bench, arms.group(bench))
    ]
    return frame(listed, ("machine", *SUMMARY_COLUMNS))


def summary_rows(results: ResultSet, groups: Sequence[Arm]) -> list[rows.SummaryRow]:
    """Return the row of each arm."""
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
    keys = [tuple(settings(arm.spec).cells().values()) for arm in arms.group(results)]
    rank = {key: place for place, key in enumerate(keys)}
    plain = frame[list(SETTING_COLUMNS)].astype(object)
    rows = plain.where(plain.notna(), None).itertuples(index=False, name=None)
    ranks = pd.Series([rank.get(row, len(rank)) for row in rows], index=frame.index, dtype=int)
    return frame.loc[ranks.sort_values(kind="stable").index]


def settings(spec: RunSpec) -> rows.SettingsRow:
    """Return the requested settings of a run."""
    drafting = spec.drafting
    drafts = spec.role is not Role.TARGET and spec.pair.draft is not None
    has_target = spec.role is not Role.DRAFTER
    return rows.SettingsRow(
        pair=spec.pair.name,
        role=spec.role,
        target=spec.pair.target.filename if has_target else None,
        draft_model=spec.pair.draft.filename if drafts and spec.pair.draft else None,
        requested_ngl=str(spec.offload.target_layers) if has_target and not spec.servers else None,
        requested_ngld=str(spec.offload.draft_layers) if drafts else None,
        method=str(drafting.chain) if drafting else None,
        ngram=(str(drafting.ngram) or None) if drafting else None,
        draft=spec.draft_size,
        p_min=drafting.p_min if drafting and drafting.method.drafts_with_model else None,
        synthetic_accept=",".join(f"{rate:g}" for rate in drafting.synthetic)
        if drafting and drafting.synthetic
        else None,
        threads=spec.threads,
        kv_type=spec.kv_type,
        ubatch=spec.ubatch,
        settings=shlex.join(spec.words) or None,
        llama_build=spec.build,
        users=spec.traffic.users if spec.traffic else None,
        depth=spec.traffic.depth if spec.traffic else None,
        rate=spec.traffic.rate if spec.traffic else None,
    )


def _summary_row(results: ResultSet, arm: Arm, listed: Sequence[review.BenchWarning]) -> rows.SummaryRow:
    compared, drafting = arm.compared, arm.acceptance
    version = releases.identify(arm.build)
    return rows.SummaryRow(
        engine=results.meta.engine,
        arm=settings(arm.spec),
        actual_ngl=arm.layers.offloaded if arm.layers else None,
        actual_ngld=arm.draft_layers.offloaded if arm.draft_layers else None,
        prompts=arm.prompts,
        repeats=arm.repeats,
        gen_tps=arm.rate,
        acceptance=acceptance_row(drafting),
        by_method=list_methods(drafting.by_method if drafting else None),
        speedup=arm.gain.ratio if arm.gain else None,
        p_value=arm.gain.p_value if arm.gain else None,
        verdict=arm.judgement.verdict if arm.judgement else None,
        new_over_old=arm.change.ratio if arm.change else None,
        new_over_old_verdict=arm.change_judgement.verdict if arm.change_judgement else None,
        round_time=rows.RoundTimeRow(**arm.round_ms),
        ttft_s=arm.ttft_s,
        traffic=_traffic_of(arm),
        energy=_energy_of(arm),
        text_identical=all(compared.values()) if compared else None,
        audit=_audit(arm),
        status=arm.status,
        warnings=[_name_and_advice(warning) for warning in listed if arm.spec.key in warning.arms],
        bench_warnings=[_name_and_advice(warning) for warning in listed if warning.of_bench],
        llama_version=version.tag,
        llama_commit=version.commit,
        llama_cpp_python=version.package,
        backend=arm.build.backend,
    )


def acceptance_row(drafting: Acceptance | None) -> rows.AcceptanceRow:
    """Return what was drafted and accepted; nothing where nothing was drafted."""
    return rows.AcceptanceRow(**attributes(drafting, rows.AcceptanceRow.columns()))


def _name_and_advice(warning: review.BenchWarning) -> rows.Warned:
    return rows.Warned(name=warning.name, advice=warning.advice)


def _audit(arm: Arm) -> rows.AuditRow:
    """Return what the audit of an arm's texts found; nothing where none was audited."""
    summary = texts.summarize_audits(arm.good)
    if summary is None:
        return rows.AuditRow()
    return rows.AuditRow(
        audited_texts=summary.texts,
        audited_tokens=summary.tokens,
        near_tie_tokens=summary.near_ties,
        divergent_tokens=summary.divergent,
        divergence_bound=summary.highest_share,
        distribution_p_value=summary.p_value,
        impossible_tokens=summary.impossible,
        audit_unjudged="; ".join(summary.unjudged) or None,
    )


def _requested(runs: Runs) -> dict[str, list[Any]]:
    """Return the columns of runs from their specifications."""
    specs = runs.specs
    known = {spec.key: settings(spec).cells() for spec in specs}
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
