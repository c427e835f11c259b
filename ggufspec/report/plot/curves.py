"""Tokens/s over γ, measured and forecast, or as bars without an axis; over memory; and over time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

import altair as alt

from ggufspec import stats, units
from ggufspec.analysis import Arm
from ggufspec.domain import OWN_PROCESSES, LoadedModel, Role, RunProblem
from ggufspec.forecast import Forecast
from ggufspec.harmless import one_line
from ggufspec.report.plot import look
from ggufspec.report.rows import runs as run_rows
from ggufspec.report.rows.plans import ForecastRow
from ggufspec.report.rows.runs import UNKNOWN, Datum, distinct, harmless_data, named_arms, stem
from ggufspec.results import ResultSet

_BAND = 46  # pixels of an arm: its name above its bar
_BAR = 16
_RAISED, _LOWERED = -11, 9  # pixels of the name and of the bar from the middle of the band
_VALUE = 120  # pixels at the right of a name for its value
_KINDS = {"target alone": look.QUIET, "measured": look.BLUE, "forecast": look.QUIET}


def draw_bars(rows: list[Datum]) -> alt.LayerChart:
    """Draw tokens/s with 95 % intervals as a bar for each row: label, kind, tps, tps_lo, tps_hi, rate, gain.

    A name stands above its bar, not beside it: so it is whole on a phone, too.
    """
    y = alt.Y("row:O", sort=None, axis=None, scale=alt.Scale(paddingInner=0, paddingOuter=0))
    shown = [
        {**row, "row": place, "value": f"{row['rate']} ({row['gain']})" if row["gain"] else str(row["rate"])}
        for place, row in enumerate(rows)
    ]
    x = alt.X("tps:Q", title="tokens/s", scale=look.speeds(rows), axis=alt.Axis(tickCount=5))
    base = alt.Chart(look.values(shown)).encode(y=y, tooltip=look.tooltip(run_rows.BarRow))
    kinds = list(dict.fromkeys(row["kind"] for row in rows))
    colours = alt.Scale(domain=kinds, range=[_KINDS[arm_kind] for arm_kind in kinds])
    layers: list[Any] = [
        base.mark_bar(size=_BAR, yOffset=_LOWERED, cornerRadiusEnd=2).encode(
            x=x,
            color=alt.Color("kind:N", scale=colours, legend=None),
            opacity=alt.condition("datum.kind === 'forecast'", alt.value(0.5), alt.value(1)),
        )
    ]
    if look.has_intervals(rows):
        layers.append(
            base.mark_rule(strokeWidth=2, color=look.INK, yOffset=_LOWERED).encode(
                x=alt.X("tps_lo:Q", title="tokens/s"), x2="tps_hi:Q"
            )
        )
    texts = base.properties(name="label_arms")
    layers += [
        texts.mark_text(
            align="left", dy=_RAISED, color=look.INK, limit=alt.ExprRef(f"max(60, width - {_VALUE})")
        ).encode(x=alt.value(0), text="label:N"),
        base.properties(name="label_values")
        .mark_text(align="right", dy=_RAISED, color=look.INK, fontWeight="bold")
        .encode(x=alt.value("width"), text="value:N"),
    ]
    speeds = "; ".join(f"{row['label']} {row['value']}" for row in shown)
    return look.dress(
        *layers, description=f"Tokens per second of each arm: {speeds}.", height=_BAND * len(rows)
    )


_TPS = "tokens/s"
_GAMMA = "γ (draft size)"
_FEWEST_SIZES = 3  # a line through two points shows no more than two bars
_HIGHEST = 1.45  # times the fastest: the highest place of its label
_DODGE = 5  # pixels between series at one γ, so that their intervals stay readable
_WIDEST_DODGE = 20  # pixels between the first and the last series, so that each γ stays one group on a phone


def curve_rows(results: ResultSet, forecasts: Sequence[Forecast] = ()) -> list[Datum]:
    """Return what ``curve`` draws: one row per measured arm and per forecast over all prompts.

    Columns: series, label, load (users, depth, requests/s), kind (measured, forecast or target alone), gamma,
    tps, tps_lo, tps_hi, rate, gain.
    """
    rows = [
        {
            "series": row["series"],
            "label": _label_with_drafter(row),
            "load": row["load"],
            "kind": "target alone" if row["role"] == Role.TARGET else "measured",
            "gamma": row["draft"],
            **{f"tps{end}": row[f"gen_tps{end}"] for end in ("", "_lo", "_hi")},
            "rate": row["rate"],
            "gain": row["gain"],
        }
        for _, row in named_arms(results)
        if row["gen_tps"]
    ]
    return rows + list(_forecast_rows(forecasts))


def curve(results: ResultSet, forecasts: Sequence[Forecast] = ()) -> alt.LayerChart | None:
    """Return tokens/s over γ with 95 % intervals; None where nothing drafted.

    Arms are bars where there is no axis of γ: no method with three draft sizes, or several loads.

    Args:
        results: a bench.
        forecasts: drawn dashed; those of single categories are left out.
    """
    return draw_curve(curve_rows(results, forecasts))


def draw_curve(rows: list[Datum]) -> alt.LayerChart | None:
    """Draw the rows of ``curve_rows``."""
    if not has_curve(rows):
        return draw_bars(rows) if any(row["kind"] != "target alone" for row in rows) else None
    alone = [row for row in rows if row["kind"] == "target alone"]
    points = [row for row in rows if row["kind"] != "target alone"]
    names = distinct(points, "series")
    sizes, speeds = look.whole_numbers(points, "gamma"), look.speeds(rows)
    measured = [row for row in points if row["kind"] == "measured"]
    best = max(measured or points, key=lambda row: row["tps"])
    layers = [*_alone(alone, above=all(row["tps"] > best["tps"] for row in alone))]
    dodge = min(_DODGE, _WIDEST_DODGE / len(names))
    for place, name in enumerate(names):
        offset = (place - (len(names) - 1) / 2) * dodge
        series = [row for row in points if row["series"] == name]
        layers += _series(series, names, offset, sizes, speeds)
        if best in series:
            layers.append(_label(best, points, offset))
    fastest = f"the fastest is γ = {best['gamma']} with {best['rate']} tokens/s"
    base = "".join(f"; {row['series']} {row['rate']} tokens/s" for row in alone)
    return look.dress(*layers, description=f"Tokens per second over the draft size γ: {fastest}{base}.")


def has_curve(rows: list[Datum]) -> bool:
    """Whether arms are drawn over γ: every γ is known, one series has three, and all have one load."""
    points = [row for row in rows if row["kind"] != "target alone"]
    sizes = [{row["gamma"] for row in points if row["series"] == name} for name in distinct(points, "series")]
    return (
        max(map(len, sizes), default=0) >= _FEWEST_SIZES
        and all(None not in gammas for gammas in sizes)
        and len(set(distinct(rows, "load")) - {None}) < 2
    )


def _series(
    rows: list[Datum], names: list[str], offset: float, sizes: alt.Axis, speeds: alt.Scale
) -> Iterator[Any]:
    colour, shape = look.marks("series:N", names)
    dashed = rows[0]["kind"] == "forecast"
    base = alt.Chart(look.values(sorted(rows, key=lambda row: row["gamma"]))).encode(
        x=alt.X("gamma:Q", title=_GAMMA, axis=sizes, scale=alt.Scale(zero=False, padding=26, nice=False)),
        color=colour,
        tooltip=look.tooltip(run_rows.CurveRow),
    )
    y = alt.Y("tps:Q", title=_TPS, scale=speeds)
    yield base.mark_line(strokeWidth=2, strokeDash=[6, 4] if dashed else [1, 0], xOffset=offset).encode(y=y)
    if look.has_intervals(rows):
        yield base.mark_rule(strokeWidth=1.5, opacity=0.6, xOffset=offset).encode(
            y=alt.Y("tps_lo:Q", title=_TPS), y2="tps_hi:Q"
        )
    yield base.mark_point(filled=not dashed, size=60, opacity=1, xOffset=offset).encode(y=y, shape=shape)


def _label(best: Datum, points: list[Datum], offset: float) -> Any:
    """Return the fastest point's label, above every interval of its γ, towards the middle of the chart."""
    sizes = [row["gamma"] for row in points]
    is_left = 2 * best["gamma"] < min(sizes) + max(sizes)
    tops = [row["tps_hi"] or row["tps"] for row in points if row["gamma"] == best["gamma"]]
    label = {
        "gamma": best["gamma"],
        "tps": min(max(tops), _HIGHEST * best["tps"]),
        "text": f"γ = {best['gamma']}: {best['rate']}",
    }
    return (
        alt.Chart(look.values([label]), name="label_best")
        .mark_text(
            align="left" if is_left else "right",
            dx=-8 if is_left else 8,
            dy=-9,
            fontWeight="bold",
            color=look.INK,
            xOffset=offset,
        )
        .encode(x="gamma:Q", y="tps:Q", text="text:N")
    )


def _alone(rows: list[Datum], *, above: bool) -> Iterator[Any]:
    base = alt.Chart(look.values([{**row, "text": f"{row['series']}: {row['rate']}"} for row in rows]))
    if look.has_intervals(rows):
        yield base.mark_rect(color=look.QUIET, opacity=0.14).encode(y="tps_lo:Q", y2="tps_hi:Q")
    yield base.mark_rule(color=look.QUIET, strokeWidth=2, strokeDash=[2, 3]).encode(
        y=alt.Y("tps:Q", title=_TPS),
        tooltip=[alt.Tooltip("series:N", title="arm"), alt.Tooltip("tps:Q", title=_TPS, format=".4~r")],
    )
    yield (
        base.properties(name="label_alone")
        .mark_text(align="right", dy=-9 if above else 13, dx=-2, color=look.INK)
        .encode(x=alt.value("width"), y="tps:Q", text="text:N")
    )


def _label_with_drafter(row: Datum) -> str:
    """Return an arm's label, with what drafts: bars have no axis or legend that says it."""
    drafter = stem(row["drafter"] or UNKNOWN)
    return row["label"] if drafter == UNKNOWN or drafter in row["label"] else f"{row['label']}, {drafter}"


def _forecast_rows(forecasts: Sequence[Forecast]) -> Iterator[Datum]:
    overall = [row for row in map(ForecastRow.record, forecasts) if row["category"] is None]
    several = [name for name in ("method", "p_min") if len({row[name] for row in overall}) > 1]
    for row in overall:
        values = {"method": str(row["method"]), "p_min": f"p-min {units.format_number(row['p_min'])}"}
        settings = [values[name] for name in several]
        series = ", ".join(("forecast", *settings))
        yield {
            "series": series,
            "label": f"γ={row['draft']}, {series}",
            "load": None,
            "kind": "forecast",
            "gamma": row["draft"],
            **{f"tps{end}": row[f"tokens_per_s{end}"] for end in ("", "_lo", "_hi")},
            "rate": units.format_rate(row["tokens_per_s"]),
            "gain": units.format_factor(row["speedup"]),
        }


_LABEL = 160  # pixels
_MIB = 1 << 20


def pareto_rows(results: ResultSet) -> list[Datum]:
    """Return what ``pareto`` draws, one row per arm, the smallest first.

    Columns: label, memory_of (in words, the same for all), memory_mib, tps, tps_lo, tps_hi, rate, gain, and
    front: whether no other arm is faster and needs no more memory.
    """
    fast = [(arm, row) for arm, row in named_arms(results) if row["gen_tps"]]
    memory_of, sizes = _memory([arm for arm, _ in fast], results)
    sized = [(size, row) for size, (_, row) in zip(sizes, fast, strict=True) if size is not None]
    rows: list[Datum] = []
    best = 0.0
    for size, row in sorted(sized, key=lambda sized: (sized[0], -sized[1]["gen_tps"])):
        rows.append(
            {
                "label": row["label"],
                "memory_of": memory_of,
                "memory_mib": size / _MIB,
                **{f"tps{end}": row[f"gen_tps{end}"] for end in ("", "_lo", "_hi")},
                "rate": row["rate"],
                "gain": row["gain"],
                "front": row["gen_tps"] > best,
            }
        )
        best = max(best, row["gen_tps"])
    return rows


def _memory(arms: Sequence[Arm], results: ResultSet) -> tuple[str, list[int | None]]:
    """Return which memory is known for all arms, in words, and each arm's largest amount.

    GPU memory comes first. If every run loads its models, NVML measured the increase over the memory in use
    before. For models that stay loaded, llama.cpp's log counts, because NVML would include other arms. CPU
    builds have only the host's memory.
    """
    if results.meta.build.backend != "cpu":
        if results.meta.engine in OWN_PROCESSES:
            taken = [_most(arm, "gpu_peak_bytes", above="gpu_used_bytes") for arm in arms]
            if _all_known(taken):
                return "GPU memory taken at its peak, by NVML", taken
        placed = [_placed(arm) for arm in arms]
        if _all_known(placed):
            return "GPU memory taken, by llama.cpp's log", placed
        used = [_most(arm, "gpu_peak_bytes") for arm in arms]
        if _all_known(used):
            return "GPU memory in use at its peak, by NVML", used
    return "peak resident memory on the host", [_most(arm, "peak_rss_bytes") for arm in arms]


def _all_known(sizes: Sequence[int | None]) -> bool:
    """Whether the memory of every arm is known, and not 0 for all."""
    return None not in sizes and any(sizes)


def _placed(arm: Arm) -> int | None:
    """Return the GPU memory of an arm's models from the log, the drafter included."""
    models = [(output.target or LoadedModel(), output.drafter or LoadedModel()) for output in arm.outputs]
    sizes = [(target.gpu_bytes, drafter.gpu_bytes or 0) for target, drafter in models]
    return max((target + drafter for target, drafter in sizes if target is not None), default=None)


def _most(arm: Arm, name: str, *, above: str | None = None) -> int | None:
    """Return the maximum of a column over an arm's runs, with ``above`` minus that column of the same run."""
    sizes = arm.good.column(name)
    bases = arm.good.column(above) if above else [0] * len(sizes)
    pairs = zip(sizes, bases, strict=True)
    return max((size - base for size, base in pairs if size is not None and base is not None), default=None)


def pareto(results: ResultSet) -> alt.LayerChart | None:
    """Return tokens/s over memory with the Pareto front; None with fewer than two different sizes.

    The axis says which memory: GPU memory where it is known, otherwise that of llama.cpp's process.
    """
    return draw_pareto(pareto_rows(results))


def draw_pareto(rows: list[Datum]) -> alt.LayerChart | None:
    """Draw the rows of ``pareto_rows``."""
    if len({row["memory_mib"] for row in rows}) < 2:
        return None
    x = alt.X(
        "memory_mib:Q",
        title=f"{rows[0]['memory_of']} (MiB)",
        axis=alt.Axis(tickCount=6),
        scale=alt.Scale(zero=False, padding=30),
    )
    y = alt.Y("tps:Q", title="tokens/s", scale=look.speeds(rows))
    tooltip = look.tooltip(run_rows.MemorySpeedRow)
    front = [row for row in rows if row["front"]]
    points_of_all = alt.Chart(look.values(rows)).encode(x=x, tooltip=tooltip)
    ahead = alt.Chart(look.values(front)).encode(x=x, y=y)
    intervals = points_of_all.mark_rule(strokeWidth=1.5, opacity=0.5, color=look.QUIET).encode(
        y=alt.Y("tps_lo:Q", title="tokens/s"), y2="tps_hi:Q"
    )
    layers = (
        ahead.mark_line(interpolate="step-after", color=look.BLUE, strokeWidth=2, strokeDash=[4, 3]),
        *([intervals] if look.has_intervals(rows) else []),
        points_of_all.mark_point(filled=True, size=75, opacity=1).encode(
            y=y,
            color=alt.condition("datum.front", alt.value(look.BLUE), alt.value(look.QUIET)),
            shape=alt.condition("datum.front", alt.value("diamond"), alt.value("circle")),
        ),
        *_labels(front, x, y),
    )
    points = "; ".join(
        f"{row['label']}: {row['memory_mib']:.0f} MiB, {row['rate']} tokens/s" for row in front
    )
    return look.dress(
        *layers,
        description=f"Speed over {rows[0]['memory_of']}; no arm is better in both than these: {points}.",
    )


def _labels(front: list[Datum], x: alt.X, y: alt.Y) -> Iterator[Any]:
    """Yield the names of the smallest and the fastest arm of the front, towards the middle of the chart."""
    smallest, fastest = (
        alt.Chart(look.values([row]), name=f"label_{name}").encode(x=x, y=y, text="label:N")
        for name, row in (("smallest", front[0]), ("fastest", front[-1]))
    )
    yield smallest.mark_text(align="left", baseline="top", dx=8, dy=5, limit=_LABEL, color=look.INK)
    if len(front) > 1:
        yield fastest.mark_text(align="right", baseline="bottom", dx=-6, dy=-8, limit=_LABEL, color=look.INK)


RUN, ANCHOR, DISTURBED = "run", "anchor", "disturbed run"
_MOST = 2000  # ordinary runs in one chart; more are thinned evenly, but not anchors and disturbed runs
_LEAST = 0.02  # from 1 to the ends of the axis: smaller differences are no drift worth seeing


def drift_rows(results: ResultSet) -> list[Datum]:
    """Return what ``drift`` draws, one row per run with a speed, warm-ups left out.

    Columns: minutes (since the first run began), relative (tokens/s over the median of the same arm and
    prompt), kind (run, anchor, disturbed run), label, prompt, tps, others_cores.
    """
    medians: dict[tuple[str, str], float] = {}
    label_of: dict[str, str] = {}
    for arm, row in named_arms(results):
        rates = stats.per_prompt(arm.measured)  # also of runs that are excluded
        for spec in arm.good.specs:
            medians[spec.key, one_line(spec.prompt.id)] = rates[spec.prompt.id]
            label_of[spec.key] = row["label"]
    names = ("spec_key", "prompt", "started_at", "decode_tps", "warmup", "anchor", "outcome", "others_cores")
    table = run_rows.RunColumns(results.runs)
    columns = [run_rows.RunRow.columns[name].source(table) for name in names]
    runs = [harmless_data(dict(zip(names, row, strict=True))) for row in zip(*columns, strict=True)]
    start = min((_seconds(row) for row in runs), default=0.0)
    return list(
        _thinned(
            [
                {
                    "minutes": (_seconds(row) - start) / 60,
                    "relative": row["decode_tps"] / medians[row["spec_key"], row["prompt"]],
                    "kind": ANCHOR
                    if row["anchor"]
                    else DISTURBED
                    if row["outcome"] == RunProblem.DISTURBED
                    else RUN,
                    "label": label_of[row["spec_key"]],
                    "prompt": row["prompt"],
                    "tps": row["decode_tps"],
                    "others_cores": row["others_cores"],
                }
                for row in runs
                if row["decode_tps"] and not row["warmup"] and (row["spec_key"], row["prompt"]) in medians
            ]
        )
    )


def drift(results: ResultSet) -> alt.LayerChart | None:
    """Return each run's tokens/s over the median of its arm and prompt, by time; None with fewer than two.

    Anchors, which repeat one configuration, are joined by a line: its slope is the drift of the machine.
    """
    return draw_drift(drift_rows(results))


def draw_drift(rows: list[Datum]) -> alt.LayerChart | None:
    """Draw the rows of ``drift_rows``."""
    if len(rows) < 2:
        return None
    low, *_, high = sorted(row["relative"] for row in rows)
    looks = {
        RUN: (look.QUIET, "circle"),
        ANCHOR: (look.BLUE, "diamond"),
        DISTURBED: (look.VERMILLION, "cross"),
    }
    run_kinds = [run_kind for run_kind in looks if any(row["kind"] == run_kind for row in rows)]
    colour, shape = look.marks("kind:N", run_kinds, [looks[run_kind] for run_kind in run_kinds])
    x = alt.X(
        "minutes:Q",
        title="minutes since the start",
        axis=alt.Axis(tickCount=6),
        scale=alt.Scale(nice=False, padding=8),
    )
    y = alt.Y(
        "relative:Q",
        title="tokens/s, relative",
        axis=alt.Axis(format="%"),
        scale=alt.Scale(zero=False, domain=[min(low, 1 - _LEAST), max(high, 1 + _LEAST)]),
    )
    points = (
        alt.Chart(look.values(rows))
        .mark_point(filled=True, size=40, opacity=0.75)
        .encode(x=x, y=y, color=colour, shape=shape, tooltip=look.tooltip(run_rows.DriftRow))
    )
    even = (
        alt.Chart(look.values([{"relative": 1}])).mark_rule(color=look.QUIET, strokeDash=[2, 3]).encode(y=y)
    )
    anchored = [row for row in rows if row["kind"] == ANCHOR]
    anchors = alt.Chart(look.values(anchored)).mark_line(color=look.BLUE, strokeWidth=1.5).encode(x=x, y=y)
    disturbed = sum(row["kind"] == DISTURBED for row in rows)
    return look.dress(
        *((even, anchors, points) if anchored else (even, points)),  # Vega warns of a layer without data
        description=f"Speed of {len(rows)} runs over time, relative to the median of their arm and prompt; "
        f"{disturbed} were disturbed by other programs.",
        height=240,
    )


def _seconds(row: Datum) -> float:
    return datetime.fromisoformat(row["started_at"]).timestamp()


def _thinned(rows: list[Datum]) -> Iterator[Datum]:
    step = max(1, -(-sum(row["kind"] == RUN for row in rows) // _MOST))
    n_runs = 0
    for row in rows:
        if row["kind"] != RUN or n_runs % step == 0:
            yield row
        n_runs += row["kind"] == RUN
