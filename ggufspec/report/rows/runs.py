"""The rows of runs: a run of a bench or of a log, what several runs have in common, and the data of charts.

A chart's data are mappings: what a mark says when it is pointed at, and the table below the chart. ``tps`` is
beside ``tps_lo`` and ``tps_hi``, the ends of its interval. A page has the docstring of their row type as the
title and the caption of the chart.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import zip_longest
from operator import attrgetter
from statistics import fmean
from typing import Any

from ggufspec import stats, units
from ggufspec.analysis import Acceptance, Arm, acceptance, is_meaningful, rates, review, warnings
from ggufspec.domain import (
    Estimate,
    LoadedModel,
    Prompt,
    RequestOutcome,
    Role,
    Sample,
    Segment,
    SpeedJudgement,
    SpeedVerdict,
    Status,
    Traffic,
)
from ggufspec.harmless import one_line
from ggufspec.report.columns import Column, Row, column
from ggufspec.report.rows.benches import (
    MANNER,
    AcceptanceRow,
    BenchArm,
    MethodAcceptance,
    SettingsRow,
    SummaryRow,
    list_methods,
    milliseconds,
    two_digits,
    with_commas,
)
from ggufspec.report.text import figures
from ggufspec.results import ResultSet, Runs


@dataclass(frozen=True)
class RunColumns:
    """The columns of many runs, each as a list: those of ``Runs.column``, and some that follow from them."""

    runs: Runs

    def __getattr__(self, name: str) -> list[Any]:
        return self.runs.column(name)

    @cached_property
    def doubtful(self) -> list[tuple[warnings.MeasurementWarning, ...]]:
        """The warnings about each run."""
        return list(review.of_each(self.runs))

    @property
    def outcomes(self) -> list[str]:
        """What each run is worth."""
        return [
            warnings.outcome(self.runs[place]).value if names else Status.OK.value
            for place, names in enumerate(self.doubtful)
        ]


def _of(column_name: str, field: str) -> Any:
    """Return the function from runs to a field of what a column holds, such as the verdict of an audit."""

    def fields(runs: RunColumns) -> list[Any]:
        values = (value and getattr(value, field) for value in getattr(runs, column_name))
        return [getattr(value, "value", value) for value in values]

    return fields


def _known(numbers: Any) -> list[float | None]:
    return [None if math.isnan(number) else number for number in numbers.tolist()]


def _of_model(model: str, figure: Callable[[LoadedModel], Any]) -> Callable[[RunColumns], list[Any]]:
    """Return the function from runs to a figure of their target or drafter; None where no log shows it."""
    return lambda runs: [None if loaded is None else figure(loaded) for loaded in getattr(runs, model)]


def _describe_placement(loaded: LoadedModel) -> str | None:
    """Return a text with a model's bytes on each device."""
    parts = (f"{units.format_bytes(part.total_bytes)} on {part.device}" for part in loaded.placement)
    return ", ".join(parts) or None


class MeasuredRow(Row):
    """What a program says of a run, or as lists of several runs."""

    prompt_tokens: int | None
    prompt_tps: float | None
    gen_tokens: int | None
    gen_tps: float | None = column("tokens/s", units.format_rate)
    n_drafted: int | None
    n_accepted: int | None
    accept_rate: float | None = column("accepted", units.format_percent)
    n_rounds: int | None
    draft_s: float | None
    verify_s: float | None
    load_ms: float | None


class RunRow(Row):
    """A run: its settings, what was measured, and the machine meanwhile. Sources are lists over all runs."""

    bench: str
    engine: str
    spec: SettingsRow
    prompt: str = column(of=lambda runs: [spec.prompt.id for spec in runs.runs.specs])
    category: str = column(of=lambda runs: [spec.prompt.category for spec in runs.runs.specs])
    outcome: str = column(of="outcomes")
    status: str = column(of=lambda runs: [status.value for status in runs.status])
    decode_tps: float = column(
        "tokens/s", units.format_rate, of=lambda runs: _known(rates.decode_rates(runs.runs))
    )
    measured: MeasuredRow = column(of=lambda runs: runs)
    cached_tokens: int
    kept_tokens: int = column(help="What the turn before left in the cache, at least.")
    gen_s: float
    sampling_s: float
    prompt_in_gen_s: float = column(of=lambda runs: _known(rates.prompt_in_window(runs.runs)))
    ttft_s: float
    itl_s: float
    actual_ngl: int = column(of=_of_model("target", attrgetter("offloaded_layers")))
    total_layers: int = column(of=_of_model("target", attrgetter("total_layers")))
    gpu_bytes: int = column(of=_of_model("target", attrgetter("gpu_bytes")))
    placement: str = column(of=_of_model("target", _describe_placement))
    actual_ngld: int = column(of=_of_model("drafter", attrgetter("offloaded_layers")))
    draft_total_layers: int = column(of=_of_model("drafter", attrgetter("total_layers")))
    draft_gpu_bytes: int = column(of=_of_model("drafter", attrgetter("gpu_bytes")))
    draft_placement: str = column(of=_of_model("drafter", _describe_placement))
    repeat: int
    warmup: bool
    anchor: bool
    rerun: int
    remeasured: bool
    load: int
    wall_s: float
    program_s: float
    peak_rss_bytes: int
    attempts: int
    error: str
    log: str
    others_cores: float
    steal_cores: float
    cpu_mhz: float
    cpu_c: float
    cpu_w: float
    swapped_bytes: int
    gpu_mhz: float
    gpu_c: float
    gpu_w: float
    cpu_j: float
    gpu_j: float
    gpu_memory_mhz: float
    gpu_peak_w: float
    gpu_power_limit_w: float
    gpu_used_bytes: int
    gpu_peak_bytes: int
    gpu_throttled: str = column(
        of=lambda runs: ["; ".join(reasons or ()) or None for reasons in runs.gpu_throttled],
        help="Null without throttling, or where that is not known.",
    )
    text_identical: bool
    differs_at_token: int = column(of=_of("difference", "at_token"))
    differs_at_char: int = column(of=_of("difference", "at_char"))
    target_token: int = column(show=str, of=_of("difference", "target_token"))
    drafting_token: int = column(show=str, of=_of("difference", "drafting_token"))
    margin_nats: float = column(of=_of("difference", "margin"))
    text_verdict: str = column(of=_of("difference", "verdict"))
    audited_tokens: int = column(of=_of("audit", "tokens"))
    near_tie_tokens: int = column(of=_of("audit", "near_ties"))
    divergent_tokens: int = column(of=_of("audit", "divergent"))
    first_divergent_token: int = column(of=_of("audit", "first_divergent"))
    worst_margin_nats: float = column(of=_of("audit", "worst_margin"))
    impossible_tokens: int = column(of=_of("audit", "impossible"))
    audit_unjudged: str = column(of=_of("audit", "unjudged"))
    doubts: str = column(of=lambda runs: ["; ".join(names) or None for names in runs.doubtful])
    text: str
    spec_key: str = column(of=lambda runs: [spec.key for spec in runs.runs.specs])
    started_at: str


class LogRow(Row):
    """A run in a log, with the lines that have its figures."""

    file: str
    lines: str | None = column(of=lambda run: run.lines and "-".join(map(str, run.lines)))
    program: str | None = column(of="sample.program")
    build: str | None = column(show=str, of="sample.build")
    draft: int | None = column(of="sample.n_draft")
    sample: MeasuredRow
    by_method: list[MethodAcceptance] | None = column(of=lambda run: list_methods(run.sample.by_method))
    actual_ngl: int | None = column(of="sample.target.offloaded_layers")
    total_layers: int | None = column(of="sample.target.total_layers")
    gpu_bytes: int | None = column(of="sample.target.gpu_bytes")
    draft_gpu_bytes: int | None = column(of="sample.drafter.gpu_bytes")
    status: str = column(of="sample.status")


@dataclass(frozen=True, kw_only=True)
class ArmOnPrompts:
    """An arm on some of its prompts: all of a category, or a single one."""

    arm: Arm
    prompts: tuple[Prompt, ...]

    @classmethod
    def by_category(cls, arm: Arm) -> Iterator[ArmOnPrompts]:
        """Yield an arm on the prompts of each category."""
        prompts = dict.fromkeys(spec.prompt for spec in arm.good.specs)
        for category in dict.fromkeys(prompt.category for prompt in prompts):
            yield cls(arm=arm, prompts=tuple(prompt for prompt in prompts if prompt.category == category))

    @classmethod
    def by_turn(cls, arm: Arm) -> Iterator[ArmOnPrompts]:
        """Yield an arm on the first, second, … turns of all conversations."""
        sent = () if arm.spec.traffic is None else arm.spec.traffic.prompts
        prompts = dict.fromkeys(sent or (spec.prompt for spec in arm.good.specs))
        for turn in sorted({prompt.turn for prompt in prompts} - {0}):
            yield cls(arm=arm, prompts=tuple(prompt for prompt in prompts if prompt.turn == turn))

    def mean(self, name: str) -> float | None:
        """Return the mean of what some field of its samples counts; None where none does."""
        counts = [count for output in self.outputs if (count := getattr(output, name)) is not None]
        return fmean(counts) if counts else None

    @property
    def ttft_s(self) -> Estimate | None:
        """Seconds to the first token, the geometric mean."""
        return stats.mean_rate(self.arm.first_tokens.of_prompts(self._ids))

    @property
    def outputs(self) -> list[Any]:
        """The samples of its good runs without texts, or of the answered requests in them."""
        sent = self.arm.spec.traffic
        if sent is not None and self.prompts[0] in sent.prompts:
            return [*self._requests(sent)]
        runs = zip(self.arm.good.specs, self.arm.outputs, strict=True)
        return [output for spec, output in runs if spec.prompt in self.prompts]

    def _requests(self, sent: Traffic) -> Iterator[Sample]:
        for sample in self.arm.good.column("traffic"):
            for request in sample.requests:
                is_ok = request.outcome is RequestOutcome.OK
                if is_ok and sent.prompts[request.prompt] in self.prompts:
                    yield Sample(
                        status=Status.OK,
                        gen_tokens=request.tokens,
                        prompt_tokens=request.prompt_tokens,
                        cached_tokens=request.cached_tokens,
                        n_drafted=request.drafted,
                        n_accepted=request.accepted,
                        n_rounds=max(0, request.tokens - 1 - (request.accepted or 0)),
                    )

    @property
    def repeats(self) -> int:
        """How many good runs there are, of a single prompt."""
        return len(self.outputs)

    @property
    def rate(self) -> Estimate | None:
        """Tokens/s."""
        return stats.mean_rate(self.arm.rates_of(self._ids))

    @cached_property
    def judgement(self) -> SpeedJudgement | None:
        """Whether it is faster than its baseline; None without one."""
        return self.arm.judge(self.arm.baseline, self._ids) if self.arm.baseline else None

    @property
    def prompt_tps(self) -> float | None:
        """Tokens/s of a single prompt, the mean over its repeats."""
        return stats.per_prompt(self.arm.rates.of_prompts(self._ids)).get(self.prompts[0].id)

    @property
    def prompt_speedup(self) -> float | None:
        """The speed-up of a single prompt, the mean over its repeats."""
        baseline = self.arm.baseline
        gains = stats.per_prompt(self.arm.rates.of_prompts(self._ids), baseline.rates) if baseline else {}
        return gains.get(self.prompts[0].id)

    @cached_property
    def acceptance(self) -> Acceptance | None:
        """What was accepted; None for an arm that does not draft."""
        return acceptance.of(self.outputs) if self.arm.role is Role.DRAFTING else None

    def positions(self) -> Iterator[Mapping[str, object]]:
        """Yield what was accepted at each position of the drafts, for ``PositionRow``; nothing if unknown."""
        figures = self.acceptance
        if figures is None or figures.by_position is None or figures.n_drafts is None:
            return
        shares = zip_longest(figures.by_position, figures.conditional or ())
        for position, (share, conditional) in enumerate(shares, start=1):
            yield {
                "spec": self.arm.spec,
                "category": self.category,
                "position": position,
                "n_drafts": figures.n_drafts,
                "n_accepted": round(share * figures.n_drafts),
                "accept_rate": share,
                "conditional_accept_rate": conditional,
            }

    @property
    def category(self) -> str | None:
        """Of its prompts."""
        return self.prompts[0].category

    @property
    def _ids(self) -> frozenset[str]:
        return frozenset(prompt.id for prompt in self.prompts)


class PromptRow(Row):
    """An arm on a prompt: mean tokens/s, mean of the paired speed-ups, acceptance."""

    spec: SettingsRow = column(of="arm.spec")
    prompt: str = column(of=lambda part: part.prompts[0].id)
    category: str | None
    repeats: int
    gen_tps: float | None = column("tokens/s", units.format_rate, of="prompt_tps")
    speedup: float | None = column("speed-up", units.format_factor, of="prompt_speedup")
    verdict: SpeedVerdict | None = column(of="judgement.verdict")
    acceptance: AcceptanceRow


class CategoryRow(Row):
    """An arm on the prompts of a category."""

    spec: SettingsRow = column(of="arm.spec")
    category: str | None
    prompts: int = column(of=lambda part: len(part.prompts))
    gen_tps: Estimate | None = column("tokens/s", units.format_rate, of="rate")
    speedup: Estimate | None = column("speed-up", units.format_factor, of="judgement.ratio")
    verdict: SpeedVerdict | None = column(of="judgement.verdict")
    acceptance: AcceptanceRow


def _round(tokens: float) -> str:
    return units.format_count(round(tokens))


class TurnRow(Row):
    """An arm on the first, second, … turns of conversations."""

    spec: SettingsRow = column(of="arm.spec")
    turn: int = column(of=lambda part: part.prompts[0].turn)
    conversations: int = column(of=lambda part: len(part.prompts))
    prompt_tokens: float | None = column(
        "new tokens",
        _round,
        of=lambda part: part.mean("prompt_tokens"),
        help="Mean number of the prompt's tokens that were read.",
    )
    cached_tokens: float | None = column(
        "cached tokens",
        _round,
        of=lambda part: part.mean("cached_tokens"),
        help="Mean number of those that were in the cache.",
    )
    ttft_s: Estimate | None = column("first token ms", milliseconds)
    gen_tps: Estimate | None = column("tokens/s", units.format_rate, of="rate")
    speedup: Estimate | None = column("speed-up", units.format_factor, of="judgement.ratio")
    verdict: SpeedVerdict | None = column(of="judgement.verdict")
    acceptance: AcceptanceRow


class SegmentRow(Row):
    """An arm in the parts of all answers that are of one kind, see ``analysis.ArmInSegment``."""

    spec: SettingsRow = column(of="arm.spec")
    segment: Segment
    n_tokens: int = column("tokens", help="Of all runs, without the first one of each answer.")
    share: float = column(show=units.format_percent, help="The share of all tokens.")
    n_drafted: int | None = column(of="acceptance.n_drafted")
    n_accepted: int | None = column(of="acceptance.n_accepted")
    n_rounds: int | None = column(of="acceptance.n_rounds")
    accept_rate: Estimate | None = column("accepted", units.format_percent, of="intervals.accept_rate")
    tokens_per_round: Estimate | None = column(
        "tokens/round", two_digits, of="intervals.mean_accepted_length"
    )
    token_s: Estimate | None = column("ms/token", milliseconds, help="Seconds for a token.")
    speedup: Estimate | None = column("speed-up", units.format_factor)


class PositionRow(Row):
    """A position in the drafts of an arm, on the prompts of a category; 1 is the first drafted token."""

    spec: SettingsRow
    category: str | None
    position: int
    n_drafts: int
    n_accepted: int
    accept_rate: float = column(
        "accepted", units.format_percent, help="The share of drafts that were accepted up to this position."
    )
    conditional_accept_rate: float | None = column(
        "accepted, if before",
        units.format_percent,
        help="The share among those that were accepted up to the previous position.",
    )


class RoundRow(Row):
    """A verification round of a run, for programs that report rounds."""

    log: str = column(of="run.log")
    spec: SettingsRow = column(of="run.spec")
    prompt: str = column(of="run.spec.prompt.id")
    repeat: int = column(of="run.repeat")
    round: int
    n_drafted: int = column(of="verified.drafted")
    n_accepted: int = column(of="verified.accepted")


def _interval(name: str) -> Callable[[Mapping[str, Any]], Estimate | None]:
    """Return the function that reads an estimate from its three values."""

    def read(row: Mapping[str, Any]) -> Estimate | None:
        if row[name] is None:
            return None
        return Estimate(value=row[name], lo=row[f"{name}_lo"], hi=row[f"{name}_hi"])

    return read


class CrossoverCellRow(Row):
    """Users and depth for which drafting pays.

    The γ with the most tokens/s of all users together, and these over those of the target alone for as many
    users: blue is faster, orange is slower. The line separates drafting from not drafting. ~ is forecast from
    the cells around it; ? has an interval that includes 1.
    """

    users: int
    depth: int = column(show=with_commas)
    gamma: int = column("γ")
    speedup: Estimate = column("speed-up", units.format_factor, of=_interval("speedup"))
    source: str = column("figures")
    verdict: str = column("drafting")


class ArmSpeedRow(Row):
    """The speed of an arm, measured or forecast."""

    kind: str
    gamma: int | None = column("γ")
    tps: Estimate = column("tokens/s", units.format_rate, of=_interval("tps"))
    gain: str | None = column("speed-up")


class CurveRow(Row):
    """Speed over draft size.

    Tokens per second by γ, the number of tokens drafted per round, with 95 % intervals over prompts and
    repeats. The dotted line and its band are the target alone: points above it are faster.
    """

    series: str = column("arm")
    speed: ArmSpeedRow = column(of=lambda row: row)


class BarRow(Row):
    """Speed of each arm.

    Tokens per second, with 95 % intervals over prompts and repeats; in brackets, the speed-up over the target
    alone.
    """

    label: str = column("arm")
    speed: ArmSpeedRow = column(of=lambda row: row)


class HeatRow(Row):
    """Speed-up by setting.

    Speed-up over the target alone: blue is faster, orange is slower; ? is undecided. Where several settings
    share a cell, it shows that with the most tokens/s.
    """

    down: str = column("row")
    across: str = column("column")
    gamma: int | None = column("γ")
    speedup: Estimate = column("speed-up", units.format_factor, of=_interval("speedup"))


class AcceptedAtRow(Row):
    """Acceptance by position.

    How often the first, second, … token of a draft was accepted, at the largest γ measured. The solid line
    counts all drafts; the dashed one only those whose earlier tokens were all accepted.
    """

    series: str = column("arm")
    gamma: int = column("γ")
    position: int
    share: float | None = column("accepted", units.format_percent)
    measure: str = column("share")


class AcceptedInRow(Row):
    """Acceptance by part of the answers.

    How many of the tokens drafted in thinking, calls, JSON, code and prose were accepted, with 95 % intervals
    over prompts, by the fastest arm of each kind.
    """

    series: str = column("arm")
    segment: str = column("part of the answers")
    accepted: Estimate = column(show=units.format_percent, of=_interval("accepted"))
    tokens_per_round: float | None = column("tokens/round", two_digits)
    share: float = column("of all tokens", units.format_percent)


class SpentRow(Row):
    """Where a round's time goes.

    Milliseconds of a mean round: the drafter proposes tokens, the target verifies them in one batch, and the
    rest.
    """

    label: str = column("arm")
    part: str = column("spent on")
    ms: float = column("ms per round", figures.three_digits)
    share: float = column(show=units.format_percent)


class MemorySpeedRow(Row):
    """Memory against speed.

    Memory and tokens per second. The axis says which memory: GPU memory where it is known, otherwise the
    memory of llama.cpp's process on the host. Blue diamonds on the dashed line are the Pareto front: no other
    arm is faster and needs no more memory.
    """

    label: str = column("arm")
    memory_mib: float = column("MiB", "{:.1f}".format)
    tps: Estimate = column("tokens/s", units.format_rate, of=_interval("tps"))
    gain: str | None = column("speed-up")
    front: bool = column("on the front")


class DriftRow(Row):
    """Drift and disturbances.

    Each run's tokens per second over the median of its arm and prompt, by time. Anchors repeat one
    configuration, so a slope of their line is the drift of the machine. During disturbed runs, other programs
    used the processor.
    """

    minutes: float = column("minute", two_digits)
    label: str = column("arm")
    prompt: str
    kind: str
    tps: float = column("tokens/s", units.format_rate)
    relative: float = column("of the median", units.format_percent)
    others_cores: float | None = column("cores used by others", two_digits)


Datum = dict[str, Any]
"""A row of a chart's data."""
_LOAD = ("users", "depth", "arrivals")
_SHARED = (  # settings of the target alone, too
    *(*_LOAD, "llama_build", "target", "actual_ngl", "threads", "kv_type", "ubatch", "settings"),
)
_DRAFTING_ONLY = ("drafter", "actual_ngld", *MANNER)
UNKNOWN = "not known"  # what drafts on a server that ran already


def harmless_data(record: Mapping[str, Any]) -> Datum:
    """Return a row without control characters: the library that draws SVG ends the process on them."""
    return {name: one_line(value) if isinstance(value, str) else value for name, value in record.items()}


def named_arms(results: ResultSet) -> list[tuple[Arm, Datum]]:
    """Return the arms without the drafter alone, with the rows of ``SummaryRow`` and their names.

    ``drafter`` is the drafter's file, or the method where no model drafts. ``series`` names the settings of
    an arm except γ, ``label`` the arm; both name users, depth and requests/s where these vary. ``load`` is
    these three. Intervals that say nothing are not there.
    """
    arms = [
        (item.arm, _figures(item.arm, harmless_data(SummaryRow.record(item))))
        for item in BenchArm.list(results)
        if item.arm.role is not Role.DRAFTER
    ]
    drafting = [row for arm, row in arms if arm.role is Role.DRAFTING]
    compared = drafting or [row for _, row in arms]
    varied = [name for name in (*_SHARED, *_DRAFTING_ONLY) if len({row[name] for row in compared}) > 1]
    for arm, row in arms:
        drafts = arm.role is Role.DRAFTING
        settings = varied if drafts else [name for name in varied if name in _SHARED]
        named = [_FORMATS[name](row[name]) for name in settings if row[name] is not None]
        name = ", ".join((*named, "synthetic") if arm.synthetic else named)
        size = "drafting" if arm.draft_size is None else f"γ={arm.draft_size}"
        first = size if drafts else "target alone"
        row["label"] = f"{first}, {name}" if name else first
        row["series"] = (name or "measured") if drafts else row["label"]
    return arms


def drafting_rows(results: ResultSet) -> list[Datum]:
    """Return those rows that draft and have a speed."""
    return [row for _, row in named_arms(results) if row["role"] == Role.DRAFTING and row["gen_tps"]]


def distinct(rows: Iterable[Datum], name: str) -> list[Any]:
    """Return the values of a column, each once, in order."""
    return list(dict.fromkeys(row[name] for row in rows))


def stem(filename: object) -> str:
    """Return a model's name without its ending."""
    return str(filename).removesuffix(".gguf")


def _figures(arm: Arm, row: Datum) -> Datum:
    unknown: Datum = {}
    for name, estimate in (("gen_tps", arm.rate), ("speedup", arm.gain.ratio if arm.gain else None)):
        if estimate is None or not is_meaningful(estimate):
            unknown |= {f"{name}_lo": None, f"{name}_hi": None}
    return {
        **row,
        **unknown,
        "drafter": None if arm.draft_size is None else one_line(arm.drafts_with) or UNKNOWN,
        "arrivals": row["rate"],
        "load": tuple(row[name] for name in ("users", "depth", "rate")),
        "rate": row["gen_tps"] and units.format_rate(row["gen_tps"]),
        "gain": row["speedup"] and units.format_factor(row["speedup"]),
    }


def _headed(column: Column, value: Any) -> str:
    return f"{column.head} {column.format(value)}"


_FORMATS: dict[str, Any] = {
    "users": lambda users: units.counted(users, "user"),
    "depth": "depth {:,}".format,
    "arrivals": lambda rate: f"{units.format_number(rate)} requests/s",
    "llama_build": str,
    "settings": str,
    "target": stem,
    "drafter": stem,
    "actual_ngl": "{} layers on the GPU".format,
    "actual_ngld": "{} drafter layers".format,
    "threads": "{} threads".format,
    "kv_type": "cache {}".format,
    "ubatch": "ubatch {}".format,
    **{name: partial(_headed, SummaryRow.columns[name]) for name in MANNER},
}
