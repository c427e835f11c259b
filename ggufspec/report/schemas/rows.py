"""The rows of tables for programs. A field is a column of a data frame, of JSON and its schema, CSV and SQL.

A field that is an ``Estimate`` is three columns: its value, and under its name with ``_lo`` and ``_hi`` the
ends of its 95 % interval. A field that is a row itself is all columns of that row. So a new column is a new
field here, and its value where the row is made, in ``report.frames``.

A null is what was not measured or does not apply. Fractions are fractions, units are in the names.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Iterator
from enum import Enum
from types import GenericAlias
from typing import Any, get_args, get_type_hints

from msgspec import Struct, defstruct, structs

from ggufspec.choices import Role
from ggufspec.domain import Estimate, SpeedVerdict

_ENDS = {"": "value", "_lo": "lo", "_hi": "hi"}
"""What is added to the name of an estimate's field -> the attribute that the column holds."""


class TableRow(Struct, frozen=True, kw_only=True):
    """A row of a table; see the module."""

    @classmethod
    def columns(cls) -> tuple[str, ...]:
        """Return the names of the columns, in order."""
        return tuple(name for name, _ in _columns(cls))

    def cells(self) -> dict[str, Any]:
        """Return the value of each column, an enum as its text."""
        cells: dict[str, Any] = {}
        for name in self.__struct_fields__:
            value, field = getattr(self, name), _kind(type(self), name)
            if field is TableRow:
                cells |= value.cells()
            elif field is Estimate:
                cells |= {f"{name}{end}": getattr(value, attribute, None) for end, attribute in _ENDS.items()}
            else:
                cells[name] = plain(value)
        return cells


def json_type(row: type[TableRow], *before: type[TableRow]) -> Any:
    """Return the type of rows in JSON: objects with ``schema``, other rows' columns and their own."""
    fields: dict[str, Any] = {"schema": str}
    for part in (*before, row):
        fields |= dict(_columns(part))
    item = defstruct(
        row.__name__,
        list(fields.items()),
        module=__name__,
        namespace={"__doc__": "\n\n".join(_descriptions(row))},
        forbid_unknown_fields=True,
        kw_only=True,
    )
    return GenericAlias(list, (item,))


def plain(value: Any) -> Any:
    """Return a value of a column without the types of this package."""
    if isinstance(value, list):
        return [structs.asdict(item) if isinstance(item, Struct) else item for item in value]
    return value.value if isinstance(value, Enum) else value


@functools.cache
def _columns(row: type[TableRow]) -> tuple[tuple[str, Any], ...]:
    """Return the name and the type of each column."""
    return tuple(_named_types(row))


def _named_types(row: type[TableRow]) -> Iterator[tuple[str, Any]]:
    hints = _hints(row)
    for name in (field.name for field in structs.fields(row)):
        match _kind(row, name):
            case kind if kind is TableRow:
                yield from _columns(hints[name])
            case kind if kind is Estimate:
                yield from ((f"{name}{end}", float | None) for end in _ENDS)
            case _:
                yield name, hints[name]


def _descriptions(row: type[TableRow]) -> Iterator[str]:
    """Yield what a row says of its columns, and what the rows within it say of theirs."""
    yield inspect.cleandoc(row.__doc__ or "")
    for name, declared in _hints(row).items():
        if _kind(row, name) is TableRow:
            yield from _descriptions(declared)


@functools.cache
def _hints(row: type[TableRow]) -> dict[str, Any]:
    return get_type_hints(row)


@functools.cache
def _kind(row: type[TableRow], name: str) -> type:
    """Return what kind of field it is: TableRow, Estimate, or object for a single column."""
    declared = _hints(row)[name]
    if isinstance(declared, type) and issubclass(declared, TableRow):
        return TableRow
    return Estimate if Estimate in (declared, *get_args(declared)) else object


class Warned(Struct, forbid_unknown_fields=True, kw_only=True):
    """A named warning and its advice."""

    name: str
    advice: str


class BenchWarned(Struct, forbid_unknown_fields=True, kw_only=True):
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


class Origin(TableRow, frozen=True, kw_only=True):
    """Where the rows of a bench come from: its id, its date (UTC), the machine and the versions.

    ``ggufspec_version`` is the version that writes the rows.
    """

    bench: str
    date: str
    processor: str
    gpus: list[str]
    ggufspec_version: str
    llama_version: str | None
    llama_commit: str | None
    llama_cpp_python: str | None


class SettingsRow(TableRow, frozen=True, kw_only=True):
    """The settings that distinguish the arms of a bench, under the names of their options.

    ``requested_ngl`` and ``requested_ngld`` are what was asked for; ``actual_ngl`` and ``actual_ngld`` of an
    arm are how many layers llama.cpp offloaded. A layer column is null for a model that the run does not
    load, ``p_min`` for a method without it. ``synthetic_accept`` has the simulated probabilities that a round
    accepts each position; it is null where the target itself decided. ``llama_build`` names the llama.cpp
    where a bench compares several. ``users`` is how many sent requests at once, ``depth`` how many tokens
    stood before each prompt, ``rate`` how many requests arrived in a second; null for one after another.
    """

    pair: str
    role: Role
    target: str | None
    draft_model: str | None
    requested_ngl: str | None
    requested_ngld: str | None
    method: str | None
    ngram: str | None
    draft: int | None
    p_min: float | None
    synthetic_accept: str | None
    threads: int
    kv_type: str | None
    ubatch: int | None
    settings: str | None
    llama_build: str | None
    users: int | None
    depth: int | None
    rate: float | None


class AcceptanceRow(TableRow, frozen=True, kw_only=True):
    """What was drafted and accepted; null where nothing was drafted. See ``analysis.Acceptance``."""

    n_drafted: int | None = None
    n_accepted: int | None = None
    n_rounds: int | None = None
    accept_rate: float | None = None
    mean_accepted_length: float | None = None
    coverage: float | None = None


class RoundTimeRow(TableRow, frozen=True, kw_only=True):
    """Milliseconds of a round; null where the logs do not tell. See ``analysis.Arm.round_ms``."""

    draft_ms_per_round: float | None = None
    verify_ms_per_round: float | None = None
    rest_ms_per_round: float | None = None


class TrafficRow(TableRow, frozen=True, kw_only=True):
    """What several users saw of an arm, in tokens/s and seconds; null without. See ``TrafficFigures``."""

    user_tps: Estimate | None = None
    user_speedup: Estimate | None = None
    ttft_p50_s: Estimate | None = None
    ttft_p95_s: Estimate | None = None
    ttft_p99_s: Estimate | None = None
    token_p50_s: Estimate | None = None
    token_p95_s: Estimate | None = None
    token_p99_s: Estimate | None = None
    requests: int | None = None
    requests_failed: int | None = None
    goodput: Estimate | None = None
    burst_share: float | None = None
    client_share: float | None = None


class EnergyRow(TableRow, frozen=True, kw_only=True):
    """J per token of a device, and its ratio to the target alone; null where it was not measured."""

    gpu_j_per_token: Estimate | None = None
    gpu_energy_ratio: Estimate | None = None
    cpu_j_per_token: Estimate | None = None
    cpu_energy_ratio: Estimate | None = None


class AuditRow(TableRow, frozen=True, kw_only=True):
    """What the audit of an arm's texts found; null where none was audited. See ``analysis.AuditSummary``."""

    audited_texts: int | None = None
    audited_tokens: int | None = None
    near_tie_tokens: int | None = None
    divergent_tokens: int | None = None
    divergence_bound: float | None = None
    distribution_p_value: float | None = None
    impossible_tokens: int | None = None
    audit_unjudged: str | None = None


class SummaryRow(TableRow, frozen=True, kw_only=True):
    """An arm of a bench.

    ``gen_tps`` is the geometric mean over prompts of tokens decoded per second, ``speedup`` its ratio to the
    target alone, and ``new_over_old`` that to the same arm of the first llama.cpp of several. ``accept_rate``
    and ``coverage`` are fractions. ``warnings`` are those that the arm's runs show, ``bench_warnings`` those
    about the bench, the same in each row.
    """

    engine: str
    arm: SettingsRow
    actual_ngl: int | None
    actual_ngld: int | None
    prompts: int
    repeats: int
    gen_tps: Estimate | None
    acceptance: AcceptanceRow
    by_method: list[MethodAcceptance] | None
    speedup: Estimate | None
    p_value: float | None
    verdict: SpeedVerdict | None
    new_over_old: Estimate | None
    new_over_old_verdict: SpeedVerdict | None
    round_time: RoundTimeRow
    ttft_s: float | None
    traffic: TrafficRow
    energy: EnergyRow
    text_identical: bool | None
    audit: AuditRow
    status: str
    warnings: list[Warned]
    bench_warnings: list[Warned]
    llama_version: str | None
    llama_commit: str | None
    llama_cpp_python: str | None
    backend: str | None


class FinalistRow(TableRow, frozen=True, kw_only=True):
    """An arm that a tuning measured, with its forecast; only the confirmation's figures are a verdict.

    ``stage`` is ``confirmation`` or ``selection``. ``recommended`` marks what to run over all prompts, which
    may be the target alone.
    """

    tuning: str
    stage: str
    recommended: bool
    forecast_tps: float | None
    forecast_speedup: float | None
    serve_context: int | None
    serve_slots: int | None
    summary: SummaryRow


class ComparisonRow(TableRow, frozen=True, kw_only=True):
    """An arm that both sides of a comparison have; ``ratio`` is tokens/s after over tokens/s before.

    ``guard_lo`` and ``guard_hi`` are the interval of the test against the limit of a guard.
    ``bench_warnings`` are those of all compared benches, the same in each row.
    """

    arm: SettingsRow
    before_tps: float
    after_tps: float
    ratio: Estimate
    p_value: float | None
    verdict: SpeedVerdict | None
    guard_lo: float | None
    guard_hi: float | None
    guard: str | None
    design: str
    before_accept_rate: float | None
    after_accept_rate: float | None
    texts_equal: int | None
    texts: int
    bench_warnings: list[BenchWarned]


class PlanRow(TableRow, frozen=True, kw_only=True):
    """Memory for a number of layers on the GPU; ``fits`` is null where the GPU's memory is not known.

    ``roofline_tps`` estimates the target's tokens/s without drafting from peak rates; null without machines.
    """

    requested_ngl: int
    requested_ngld: int | None
    gpu_bytes: int
    host_bytes: int
    fits: bool | None
    roofline_tps: float | None
    target_gpu_weights_bytes: int
    target_gpu_cache_bytes: int
    target_gpu_compute_bytes: int
    target_host_weights_bytes: int
    target_host_cache_bytes: int
    target_host_compute_bytes: int
    drafter_gpu_weights_bytes: int | None = None
    drafter_gpu_cache_bytes: int | None = None
    drafter_gpu_compute_bytes: int | None = None
    drafter_host_weights_bytes: int | None = None
    drafter_host_cache_bytes: int | None = None
    drafter_host_compute_bytes: int | None = None
