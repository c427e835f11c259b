"""The outputs for programs: their fields, where the values come from, and their JSON Schemas.

Every field is always there; null is what was not measured or does not apply. Fractions are fractions, units
are in the names.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Annotated, Any, get_args, get_origin

from msgspec import Meta, defstruct

from ggufspec.analysis import review
from ggufspec.choices import Layers
from ggufspec.domain import Estimate, Launch, Serving, SpeedVerdict
from ggufspec.report.columns import Column, Row, column
from ggufspec.report.rows.benches import ComparisonRow, MannerRow, NamedAdvice, OriginRow, SummaryRow
from ggufspec.report.rows.plans import CrossoverRow, FinalistRow, PlanRow, ProspectRow, list_finalists
from ggufspec.report.schemas import schema_name
from ggufspec.results import json_schema


class CheckReport(Row):
    """The result of one check."""

    name: str
    status: str = column(help="ok, remark or missing")
    text: str
    fix: str | None


class DoctorReport(Row):
    """All checks of this machine."""

    schema: str = column(of=lambda _: schema_name("doctor"))
    can_run: bool = column(help="Whether a bench can run, after a build if necessary.")
    findings: list[CheckReport]


class ConfigurationReport(Row):
    """A drafter, draft size and offload; the target alone has neither drafter nor method."""

    target: str = column(of=lambda spec: str(spec.pair.target.path or spec.pair.target.filename))
    drafter: str | None = column(
        of=lambda spec: str(spec.drafter.path or spec.drafter.filename) if spec.drafter else None
    )
    method: str | None = column(of=lambda spec: str(spec.drafting.chain) if spec.drafting else None)
    draft: int | None = column(of="drafting.n_max")
    manner: MannerRow = column(of="drafting")
    requested_ngl: Layers = column(of="offload.target.layers")
    requested_ngld: Layers = column(of="offload.drafter.layers")


class ChoiceReport(Row):
    """What is safe to run for the prompts of a category, or for all of them (null)."""

    configuration: ConfigurationReport = column(of="choice.spec")
    category: str | None
    prompts: int = column(of="choice.prompts")
    tokens_per_s: Estimate = column(of="choice.tokens_per_s")
    verdict: SpeedVerdict | None = column(
        of="choice.judgement.verdict",
        help="Of candidate over the target alone, as speedup and p_value. "
        "Only where candidate is faster, it is also what to run.",
    )
    candidate: ConfigurationReport | None = column(of="choice.candidate", help="A configuration that drafts.")
    speedup: Estimate | None = column(of="choice.judgement.ratio")
    p_value: float | None = column(of="choice.judgement.p_value")


class PassedOverReport(Row):
    """A configuration that was better, and why it is not recommended."""

    configuration: ConfigurationReport = column(of="spec")
    reason: str


class NeedsReport(Row):
    """What alone would have to change for drafting to pay."""

    draft: int = column(of="n_max")
    accept_rate: float | None
    drafter_factor: float | None
    verify_ratio: float | None


class CorrectionsReport(Row):
    """How measured runs corrected the forecast."""

    runs: int
    corrections: dict[str, Estimate]


def _named(warnings: Mapping[str, str]) -> list[NamedAdvice]:
    return [NamedAdvice(name=name, advice=advice) for name, advice in warnings.items()]


class TuneReport(Row):
    """The verdict of a tuning, with commands that run and measure it, and all forecasts."""

    schema: str = column(of=lambda _: schema_name("tune"))
    verdict: str
    drafts: bool = column(of="tuned.overall.drafts")
    overall: Annotated[ChoiceReport, "an object"] = column(of=lambda item: {"choice": item["tuned"].overall})
    by_category: list[ChoiceReport] = column(
        of=lambda item: [
            {"category": name, "choice": choice} for name, choice in item["tuned"].by_category.items()
        ]
    )
    alike: list[ConfigurationReport] = column(of="tuned.selection.alike")
    edge: int | None = column(of="tuned.selection.edge")
    reason: str | None = column(of="tuned.refusal.reason")
    needs: NeedsReport | None = column(of="tuned.refusal.needs")
    engine: str = column(of="tuned.results.meta.engine")
    serving: Serving | None = column(of="tuned.serving")
    launch: Launch | None = column(of="tuned.launch")
    passed_over: list[PassedOverReport] = column(
        of=lambda item: [{"spec": spec, "reason": reason} for spec, reason in item["tuned"].passed_over]
    )
    commands: dict[str, str]
    pair: str
    spent_s: dict[str, float] = column(
        of=lambda item: {**vars(item["tuned"].spent), "total_s": item["tuned"].spent.total_s}
    )
    prompts: list[str] = column(of=lambda item: [prompt.id for prompt in item["tuned"].outlook.prompts])
    n_predict: int = column(of="tuned.outlook.n_predict")
    results: str = column(of="tuned.results.meta.id")
    selection: str = column(of="tuned.selection.results.meta.id")
    warnings: list[NamedAdvice] = column(of=lambda item: _named(review.warnings(item["tuned"].results)))
    finalists: list[FinalistRow] = column(of=lambda item: list_finalists(item["tuned"]))
    calibration: CorrectionsReport | None = column(of="tuned.outlook.calibration")
    forecasts: list[ProspectRow] = column(
        of=lambda item: [
            {"prospect": prospect, "forecast": prospect.overall}
            for prospect in item["tuned"].outlook.prospects
        ]
    )


class DraftReport(Row):
    """What one draft size does for several users; tokens/s are of all users together."""

    draft: int
    gen_tps: float = column(of="tokens_per_s")
    speedup: Estimate


class CellReport(CrossoverRow):
    """A number of users at a depth, with the fastest draft size and all others."""

    drafts: bool = column(of=lambda cell: cell.choice is not None, help="Whether the policy is to draft.")
    by_draft: list[DraftReport] = column(of="gains")


class CrossoverReport(Row):
    """Where drafting pays over users and depth. All intervals hold together in 95 of 100 maps."""

    schema: str = column(of=lambda _: schema_name("crossover"))
    bench: str = column(of="map.bench")
    pair: str = column(of="map.pair")
    policy: str
    users: list[int] = column(of="map.users")
    depths: list[int] = column(of="map.depths")
    cells: list[CellReport] = column(
        of="map.cells", help="Row by row: all depths of the first number of users come first."
    )
    run_sd: float | None = column(of="map.run_sd", help="Standard deviation of log speed-ups between loads.")
    forecast_sd: float = column(of="map.forecast_sd", help="That of forecast log speed-ups.")
    forecast_errors: list[float] = column(
        of="map.forecast_errors", help="Measured over forecast speed-ups - 1."
    )
    warnings: list[NamedAdvice] = column(of=lambda item: _named(item["warnings"]))


def _rows(row: type[Row], *before: type[Row]) -> Any:
    """Return the type of rows in JSON: objects with ``schema``, other rows' columns and their own."""
    fields: dict[str, Any] = {"schema": str}
    for field in (field for part in (*before, row) for field in part.for_programs):
        fields |= {name: _explained(field, hint) for name, hint in field.types.items()}
    return list[_struct(row, fields)]  # type: ignore[misc]  # made at run time


@functools.cache
def _object(row: type[Row]) -> Any:
    """Return the type of a row as one JSON object."""
    fields = {field.name: _explained(field, _with_objects(field.type)) for field in row.for_programs}
    return _struct(row, fields)


def _with_objects(hint: Any) -> Any:
    """Return the type of a field, with the types of objects in place of row types."""
    if hint is None or not any(isinstance(part, type) and issubclass(part, Row) for part in get_args(hint)):
        return hint
    inner = _object(get_args(hint)[0])
    if get_origin(hint) is list:
        return list[inner]  # type: ignore[valid-type]  # made at run time
    return inner | None if type(None) in get_args(hint) else inner


def _struct(row: type[Row], fields: Mapping[str, Any]) -> Any:
    return defstruct(
        row.__name__,
        list(fields.items()),
        module=__name__,
        namespace={"__doc__": row.description},
        forbid_unknown_fields=True,
        kw_only=True,
    )


def _explained(field: Column, hint: Any) -> Any:
    return Annotated[hint, Meta(description=field.help)] if field.help else hint


OUTPUTS: dict[str, tuple[Any, str]] = {
    "summary": (_rows(SummaryRow, OriginRow), "Arms of a bench: `bench`, `sweep` and `show` with -o json"),
    "comparison": (_rows(ComparisonRow), "A comparison of benches: `compare -o json`"),
    "tune": (_object(TuneReport), "A tuning: `tune -o json`"),
    "finalists": (_rows(FinalistRow, OriginRow), "Measured configurations of a tuning: `tune -o jsonl`"),
    "crossover": (_object(CrossoverReport), "Where drafting pays over users and depth: `crossover -o json`"),
    "plan": (_rows(PlanRow), "Memory by layers on the GPU: `plan -o json`"),
    "doctor": (_object(DoctorReport), "Checks of a machine: `doctor -o json`"),
}
"""Output -> its type and title; with ``-o jsonl``, each line is an item of the list."""


def output_schemas() -> dict[str, dict[str, Any]]:
    """Return the schemas of the current versions by file name, made from the types of the outputs."""
    schemas = {}
    for output, (content, title) in OUTPUTS.items():
        name = schema_name(output)
        schema = json_schema(content, f"{title}, schema {name}")
        for definition in schema["$defs"].values():
            if "schema" in definition.get("properties", {}):
                definition["properties"]["schema"] = {"const": name}
        schemas[f"{name}.json"] = schema
    return schemas
