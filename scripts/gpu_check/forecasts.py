"""Forecast against measurement: the embedded pair at its own acceptance, random pairs at a simulated one."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, cast

from ggufspec import engines, tuning
from ggufspec.analysis import acceptance, arms
from ggufspec.analysis.arm import Arm
from ggufspec.domain import Layers, Positions, Program, Role
from ggufspec.forecast import profiles, whatif
from ggufspec.forecast.costs import CostCurve
from ggufspec.llama.install import installs
from ggufspec.options import TuneOptions
from gpu_check.benches import Bench, Measured, doubts
from gpu_check.steps import Bar, NotRunError, Row, Section

if TYPE_CHECKING:
    from ggufspec.engines.inprocess import InprocessEngine

_POINTS, _MEDIAN, _WORST = 0.5, 5.0, 10.0


def embedded(bench: Bench, seconds: float) -> Section:
    """Look ahead at the embedded pair, then measure every γ by a program that has no HTTP in its time."""
    preset = bench.preset
    repeats, warmups = preset.demo_repeats, preset.demo_warmups
    asked = bench.demo("binary-simple", preset.sizes, repeats=repeats, warmup=warmups).replace(
        llama=bench.llama,
        threads=preset.threads,
    )
    plan = tuning.prepare_tuning(asked.to(TuneOptions, method="draft-model", max_time=None, fresh=True))
    outlook = tuning.outlook(plan)
    foretold = {each.arm.drafting.n_max: each.overall for each in outlook.prospects if each.arm.drafting}
    results, _ = bench.run(asked, seconds)
    rows: list[Row] = []
    for arm in (arm for arm in arms.group(results) if arm.role is Role.DRAFTING and arm.rate):
        forecast, seen = foretold.get(arm.draft_size or 0), arm.acceptance
        if forecast is None or forecast.accept_rate is None or seen is None or arm.rate is None:
            continue
        rows.append(
            {
                "γ": arm.draft_size,
                **_against(forecast.tokens_per_s.value, arm.rate.value),
                "accepted, forecast": f"{forecast.accept_rate:.1%}",
                "accepted": f"{seen.accept_rate:.1%}",
                "points": round(100 * (forecast.accept_rate - seen.accept_rate), 2),
            }
        )
    points = max((abs(row["points"]) for row in rows), default=None)
    return Section(
        rows=rows,
        notes=doubts(results),
        benches=[results.meta.id],
        bars=[Bar(name="acceptance, worst", value=points, limit=_POINTS, unit="points"), *_bars(rows)],
    )


def synthetic(bench: Bench, measured: Measured, layers: Layers, seconds: float) -> Section:
    """Time the parts of a round in the library, and forecast each run from what was accepted in it."""
    drafting = [arm for at, arm in measured.arms() if at == layers and arm.role is Role.DRAFTING and arm.good]
    if not drafting:
        raise NotRunError(f"the sweep did not come to {layers} layers")
    curve = _curve(bench, drafting, seconds)
    rows: list[Row] = []
    for arm in drafting:
        ratios = list(_ratios(arm, curve))
        if ratios:
            middle = statistics.median(ratios)
            rows.append({"γ": arm.draft_size, "runs": len(ratios), "difference": f"{middle - 1:+.1%}"})
    return Section(
        rows=rows,
        notes=[
            f"Synthetic acceptance; {layers} layers of the target were asked for on the GPU.",
            "Each run is forecast at its simulated acceptance; a row is the median of its runs.",
        ],
        bars=_bars(rows),
    )


def _curve(bench: Bench, drafting: Sequence[Arm], seconds: float) -> CostCurve:
    """Time target and drafter, placed as in these arms, in one process."""
    install, spec = installs.find_install(bench.llama), drafting[0].good[0].spec
    drafter = spec.pair.draft
    assert drafter is not None
    prompts = [tokens for arm in drafting for tokens in arm.good.column("prompt_tokens") if tokens]
    depths = profiles.depths_for(min(prompts), max(prompts) + spec.n_predict)
    largest = max(arm.draft_size or 1 for arm in drafting)
    alone = replace(spec.baseline, offload=spec.offload)
    batches = sorted({1, 2, *(size + 1 for size in bench.preset.sizes if size <= largest)})
    with engines.make("inprocess", install, timeout_s=seconds) as made:
        engine = cast("InprocessEngine", made)
        measured = profiles.measure_curve(engine, alone, drafter, batches=batches, depths=depths, repeats=1)
        return measured.curve


def _ratios(arm: Arm, curve: CostCurve) -> Iterator[float]:
    """Yield forecast over measured tokens/s of each run."""
    for run in arm.good:
        seen = acceptance.of([run.sample])
        if seen is None or seen.by_position is None or not run.sample.decode_tps:
            continue
        depth = (run.sample.prompt_tokens or 0) + run.spec.n_predict / 2
        depth = min(max(depth, curve.depths[0]), curve.depths[-1])
        try:
            found = whatif.outlook(
                curve,
                Positions(seen.by_position),
                n_max=arm.draft_size or 1,
                depth=depth,
                program=Program.SERVER,
            )
        except ValueError:
            continue  # its drafts never had their full length
        yield found.tokens_per_s / run.sample.decode_tps


def _against(forecast: float, measured: float) -> dict[str, object]:
    return {
        "forecast tokens/s": round(forecast, 2),
        "tokens/s": round(measured, 2),
        "difference": f"{forecast / measured - 1:+.1%}",
    }


def _bars(rows: Sequence[Row]) -> list[Bar]:
    off = [abs(float(str(row["difference"]).rstrip("%"))) for row in rows]
    return [
        Bar(name="tokens/s, median", value=round(statistics.median(off), 1) if off else None, limit=_MEDIAN),
        Bar(name="tokens/s, worst", value=max(off, default=None), limit=_WORST),
    ]
