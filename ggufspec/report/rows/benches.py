"""The rows of benches: an arm with what was measured of it, and an arm that two benches have."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable, Sequence
from importlib import metadata
from typing import NamedTuple

from msgspec import Struct

from ggufspec import units
from ggufspec.analysis import Arm, BenchComparison, ComparedArm, Guard, GuardedRow, arms, review
from ggufspec.domain import Estimate, MethodCounts, Role, RunSpec, SpeedVerdict, TextVerdict
from ggufspec.llama.install import releases
from ggufspec.report.columns import Row, column, shown
from ggufspec.report.text import figures
from ggufspec.results import ResultSet

two_digits = "{:.2f}".format
with_commas = "{:,}".format


class NamedAdvice(Struct, forbid_unknown_fields=True, kw_only=True):
    """A named warning and its advice."""

    name: str
    advice: str


class BenchAdvice(Struct, forbid_unknown_fields=True, kw_only=True):
    """A named warning of one of several benches, and its advice."""

    bench: str
    name: str
    advice: str


class MethodAcceptance(Struct, forbid_unknown_fields=True, kw_only=True):
    """What one method of a chain drafted; ``name`` has the method and accepted over drafted tokens."""

    name: str
    method: str
    n_drafts: int
    n_drafted: int
    n_accepted: int


def list_methods(by_method: Sequence[MethodCounts] | None) -> list[MethodAcceptance] | None:
    """Return what each method of a chain drafted as a cell of a table; None for a single method."""
    return [
        MethodAcceptance(name=f"{counts.method} {counts.n_accepted}/{counts.n_drafted}", **counts._asdict())
        for counts in by_method or ()
    ] or None


def _name_files(words: str) -> str:
    """Return options with the names of files in place of their paths."""
    return re.sub(r"(?<![^\s'])/[^\s']*/", "", words)


def _target(spec: RunSpec) -> str | None:
    return None if spec.role is Role.DRAFTER else spec.pair.target.filename


def _drafter(spec: RunSpec) -> str | None:
    return None if spec.role is Role.TARGET or spec.pair.draft is None else spec.pair.draft.filename


class MannerRow(Row):
    """How a model drafts besides its draft size: every table of arms shows what varies of it."""

    p_min: float | None = column(
        "p-min",
        of=lambda drafting: drafting.p_min if drafting.method.drafts_with_model else None,
        help="Null for a method without it.",
    )
    draft_min: int | None = column(
        "shortest draft",
        of=lambda drafting: drafting.n_min or None,
        help="Drafts of a model that were shorter were dropped; null where none was.",
    )
    draft_sampling: str | None = column(
        "drafts are",
        of="sampling",
        help="Whether drafts are the likeliest tokens (greedy) or sampled; null where that was not chosen.",
    )


MANNER = MannerRow.fields()
BLANK_IS_DEFAULT = ("kv_type", "ubatch", "settings")
"""Settings that every run has: without a text it is the default, which is another one than any text."""


class SettingsRow(Row):
    """The settings that distinguish the arms of a bench, under the names of their options."""

    pair: str = column(of="pair.name")
    role: Role = column("measured")
    target: str | None = column(of=_target)
    draft_model: str | None = column(of=_drafter)
    requested_ngl: str | None = column(
        of=lambda spec: str(spec.offload.target.layers) if _target(spec) and not spec.servers else None,
        help="Layers on the GPU that were asked for; null for a model that the run does not load.",
    )
    requested_ngld: str | None = column(
        of=lambda spec: str(spec.offload.drafter.layers) if _drafter(spec) else None,
        help="The same of the drafter.",
    )
    method: str | None = column(of=lambda spec: str(spec.drafting.chain) if spec.drafting else None)
    ngram: str | None = column(
        "n-grams", of=lambda spec: str(spec.drafting.ngram) or None if spec.drafting else None
    )
    draft: int | None = column("γ", of="draft_size")
    manner: MannerRow = column(of="drafting")
    synthetic_accept: str | None = column(
        of=lambda spec: (
            ",".join(f"{rate:g}" for rate in (spec.drafting and spec.drafting.synthetic) or ()) or None
        ),
        help="The simulated probabilities that a round accepts each position; null where the target decided.",
    )
    threads: int = column()
    kv_type: str | None = column("KV type")
    ubatch: int | None = column()
    settings: str | None = column("settings", _name_files, of=lambda spec: shlex.join(spec.words) or None)
    llama_build: str | None = column(
        "llama.cpp", of="build", help="Which of the llama.cpps that a bench compares."
    )
    users: int | None = column(of="traffic.users", help="How many sent requests at once.")
    depth: int | None = column("depth", with_commas, of="traffic.depth", help="Tokens before each prompt.")
    rate: float | None = column("requests/s", of="traffic.rate", help="Requests that arrived in a second.")


class VersionRow(Row):
    """A version of llama.cpp."""

    llama_version: str | None = column(of=lambda build: releases.identify(build).tag)
    llama_commit: str | None = column(of=lambda build: releases.identify(build).commit)
    llama_cpp_python: str | None = column(of=lambda build: releases.identify(build).package)


class OriginRow(Row):
    """Where the rows of a bench come from: its id, its date (UTC), the machine and the versions."""

    bench: str = column(of="id")
    date: str = column(of="started_at")
    processor: str = column(of="machine.cpu")
    gpus: list[str] = column(of=lambda meta: list(meta.machine.gpus))
    ggufspec_version: str = column(
        of=lambda _: metadata.version("ggufspec"), help="The version that writes the rows."
    )
    llama: VersionRow = column(of="build")


class AcceptanceRow(Row):
    """What was drafted and accepted; null where nothing was drafted. See ``analysis.Acceptance``."""

    n_drafted: int | None
    n_accepted: int | None
    n_rounds: int | None
    accept_rate: float | None = column("accepted", units.format_percent)
    mean_accepted_length: float | None = column("tokens/round", two_digits)
    coverage: float | None = column(
        "coverage", units.format_percent, help="The share of the text that was drafted."
    )


class RoundTimeRow(Row):
    """Milliseconds of a round; null where the logs do not tell. See ``analysis.Arm.round_ms``."""

    draft_ms_per_round: float | None
    verify_ms_per_round: float | None
    rest_ms_per_round: float | None


def _percentile(name: str, percent: int) -> Callable[[Arm], Estimate | None]:
    return lambda arm: getattr(arm.traffic, name).get(percent)


def milliseconds(seconds: float) -> str:
    """Return a short time as the number of its milliseconds."""
    return figures.three_digits(1000 * seconds)


class TrafficRow(Row):
    """What several users saw of an arm, in tokens/s and seconds; null without. See ``TrafficFigures``."""

    user_tps: Estimate | None = column("tokens/s per user", units.format_rate, of="user_rate")
    user_speedup: Estimate | None = column("gain per user", units.format_factor, of="user_gain.ratio")
    ttft_p50_s: Estimate | None = column("first token p50 ms", milliseconds, of=_percentile("ttft_s", 50))
    ttft_p95_s: Estimate | None = column("first token p95 ms", milliseconds, of=_percentile("ttft_s", 95))
    ttft_p99_s: Estimate | None = column("first token p99 ms", milliseconds, of=_percentile("ttft_s", 99))
    token_p50_s: Estimate | None = column(
        "between tokens p50 ms", milliseconds, of=_percentile("token_s", 50)
    )
    token_p95_s: Estimate | None = column(
        "between tokens p95 ms", milliseconds, of=_percentile("token_s", 95)
    )
    token_p99_s: Estimate | None = column(
        "between tokens p99 ms", milliseconds, of=_percentile("token_s", 99)
    )
    prompt_tps: float | None = shown("prompt tokens/s", units.format_rate, of="traffic.prompt_tps")
    requests: int | None = column(of="traffic.requests")
    requests_failed: int | None = column("failed", of=lambda arm: sum(arm.traffic.failed.values()))
    failures: str | None = shown(
        "failed",
        of=lambda arm: ", ".join(f"{n} {outcome.value}" for outcome, n in arm.traffic.failed.items()),
    )
    goodput: Estimate | None = column("good/s", figures.three_digits, of="traffic.goodput")
    burst_share: float | None = column("bursts", units.format_percent, of="traffic.burst_share")
    client_share: float | None = column("client", units.format_percent, of="traffic.client_share")


class EnergyRow(Row):
    """J per token of a device, and its ratio to the target alone; null where it was not measured."""

    gpu_j_per_token: Estimate | None = column("GPU J/token", figures.three_digits, of="GPU.per_token")
    gpu_energy_ratio: Estimate | None = column("GPU J over target alone", units.format_factor, of="GPU.ratio")
    cpu_j_per_token: Estimate | None = column("CPU J/token", figures.three_digits, of="CPU.per_token")
    cpu_energy_ratio: Estimate | None = column("CPU J over target alone", units.format_factor, of="CPU.ratio")


class AuditRow(Row):
    """What the audit of an arm's texts found; null where none was audited. See ``analysis.AuditSummary``."""

    audited_texts: int | None = column(of="texts")
    audited_tokens: int | None = column(of="tokens")
    near_tie_tokens: int | None = column(of="near_ties")
    divergent_tokens: int | None = column(of="divergent")
    divergent_texts: int | None = column(of="divergent_texts")
    divergent_texts_bound: float | None = column(
        of="highest_share_of_texts", help="The highest share compatible with what was found, at 95 %."
    )
    divergent_tokens_bound: float | None = column(
        of="highest_share_of_tokens", help="The same, if tokens differ independently of each other."
    )
    distribution_p_value: float | None = column(of="p_value")
    impossible_tokens: int | None = column(of="impossible")
    audit_unjudged: str | None = column(of=lambda summary: "; ".join(summary.unjudged) or None)


class BuildRow(VersionRow):
    """The llama.cpp that measured."""

    backend: str | None


def _texts(arm: Arm) -> str:
    """Return on how many prompts the text is the target's, and on how many near-ties differ."""
    text = figures.unchanged(arm)
    ties = {
        spec.prompt.id
        for spec, difference in zip(arm.good.specs, arm.good.column("difference"), strict=True)
        if difference is not None and difference.verdict is TextVerdict.NEAR_TIE
    }
    return f"{text}, {units.counted(len(ties), 'near-tie')}" if ties else text


class ArmRow(Row):
    """An arm: what it ran, and what was measured."""

    what: str = shown("", of="what")
    models: str = shown("model", of=lambda arm: " + ".join(arm.models))
    drafts_with: str = shown("model", of=lambda arm: arm.drafts_with or arm.models[0])
    spec: SettingsRow
    layers: str = shown("GPU layers", of=figures.layers)
    actual_ngl: int | None = column(of="layers.offloaded", help="Layers that llama.cpp put on the GPU.")
    actual_ngld: int | None = column(of="draft_layers.offloaded", help="The same of the drafter.")
    prompts: int
    repeats: int
    gen_tps: Estimate | None = column(
        "tokens/s",
        units.format_rate,
        of="rate",
        help="Geometric mean over prompts of tokens decoded after the prompt per second.",
    )
    acceptance: AcceptanceRow
    by_method: list[MethodAcceptance] | None = column(
        of=lambda arm: list_methods(arm.acceptance.by_method) if arm.acceptance else None
    )
    method_shares: str = shown("by method", of=lambda arm: figures.by_method(arm.acceptance))
    speedup: Estimate | None = column(
        "speed-up", units.format_factor, of="gain.ratio", help="Tokens/s over those of the target alone."
    )
    p_value: float | None = column("p", figures.p_value, of="gain.p_value")
    verdict: SpeedVerdict | None = column(of="judgement.verdict")
    new_over_old: Estimate | None = column(
        "new/old",
        units.format_factor,
        of="change.ratio",
        help="Tokens/s over those of the same arm with the first llama.cpp of several.",
    )
    new_over_old_verdict: SpeedVerdict | None = column(of="change_judgement.verdict")
    round_time: RoundTimeRow = column(of="round_ms")
    ttft_s: float | None
    traffic: TrafficRow = column(of=lambda arm: arm if arm.traffic else None)
    energy: EnergyRow
    text_identical: bool | None = column(of=lambda arm: all(arm.compared.values()) if arm.compared else None)
    texts: str = shown("text unchanged", of=_texts)
    valid: float | None = column(
        "valid",
        units.format_percent,
        of="validity.share",
        help="The share of answers that satisfy the schema of their prompt, or the parameters of the tools "
        "that they call; null where no prompt has one.",
    )
    audit: AuditRow
    status: str
    build: BuildRow


class BenchArm(NamedTuple):
    """An arm with its bench and the bench's warnings, for ``SummaryRow``."""

    bench: ResultSet
    arm: Arm
    warnings: Sequence[review.BenchWarning]

    @classmethod
    def list(cls, results: ResultSet, groups: Sequence[Arm] | None = None) -> list[BenchArm]:
        """Return the arms of a bench."""
        groups = arms.group(results) if groups is None else groups
        warnings = review.list_warnings(results, groups)
        return [cls(results, arm, warnings) for arm in groups]


def _advice(warnings: Iterable[review.BenchWarning]) -> list[NamedAdvice]:
    return [NamedAdvice(name=warning.name, advice=warning.advice) for warning in warnings]


class SummaryRow(Row):
    """An arm of a bench."""

    engine: str = column(of="bench.meta.engine")
    arm: ArmRow
    warnings: list[NamedAdvice] = column(
        of=lambda item: _advice(w for w in item.warnings if item.arm.spec.key in w.arms),
        help="Those that the arm's runs show.",
    )
    bench_warnings: list[NamedAdvice] = column(
        of=lambda item: _advice(w for w in item.warnings if w.of_bench),
        help="Those about the bench, the same in each row.",
    )


class MachineRow(Row):
    """An arm of one of several machines."""

    machine: str
    summary: SummaryRow


class ComparedItem(NamedTuple):
    """An arm that both sides of a comparison have, with the comparison, for ``ComparisonRow``."""

    row: ComparedArm
    compared: BenchComparison
    guarded: GuardedRow | None

    @classmethod
    def list(cls, compared: BenchComparison, guard: Guard | None = None) -> list[ComparedItem]:
        """Return the arms of a comparison."""
        guarded = {tested.row.before.spec: tested for tested in guard.rows} if guard else {}
        return [cls(row, compared, guarded.get(row.before.spec)) for row in compared.rows]


def _accepted(item: ComparedItem) -> str:
    sides = (item.row.before, item.row.after)
    rates = [arm.acceptance.accept_rate if arm.acceptance else None for arm in sides]
    return (
        " → ".join("" if rate is None else units.format_percent(rate) for rate in rates) if any(rates) else ""
    )


def _tested(item: ComparedItem) -> str:
    tested = item.guarded
    return "" if tested is None else f"{tested.state.value} [{tested.lo:.3f}, {tested.hi:.3f}]"


class ComparisonRow(Row):
    """An arm that both sides of a comparison have."""

    what: str = shown("", of="row.before.what")
    models: str = shown("model", of=lambda item: " + ".join(item.row.before.models))
    spec: SettingsRow = column(of="row.before.spec")
    before_tps: float = column("before", units.format_rate, of="row.before_tps")
    after_tps: float = column("after", units.format_rate, of="row.after_tps")
    ratio: Estimate = column(
        "after/before", "{:.3f}".format, of="row.change.ratio", help="Tokens/s after over tokens/s before."
    )
    p_value: float | None = column("p", figures.p_value, of="row.change.p_value")
    verdict: SpeedVerdict | None = column(of="row.change.verdict")
    tested: str = shown("guard", of=_tested)
    guard_lo: float | None = column(
        of="guarded.lo",
        help="guard_lo and guard_hi are the interval of the test against the limit of a guard.",
    )
    guard_hi: float | None = column(of="guarded.hi")
    guard: str | None = column(of="guarded.state.value")
    design: str = column(of="compared.design.value")
    before_accept_rate: float | None = column(
        show=units.format_percent, of="row.before.acceptance.accept_rate"
    )
    after_accept_rate: float | None = column(show=units.format_percent, of="row.after.acceptance.accept_rate")
    accepted: str = shown("accepted", of=_accepted)
    texts_equal: int | None = column(of="row.texts_equal")
    texts: int = column(of="row.texts")
    equal: str = shown(
        "texts equal",
        of=lambda item: "" if item.row.texts_equal is None else f"{item.row.texts_equal} of {item.row.texts}",
    )
    bench_warnings: list[BenchAdvice] = column(
        of=lambda item: [
            BenchAdvice(bench=bench, name=name, advice=advice)
            for bench, warnings in item.compared.warnings.items()
            for name, advice in warnings.items()
        ],
        help="Those of all compared benches, the same in each row.",
    )
