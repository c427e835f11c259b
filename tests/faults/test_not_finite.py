"""Numbers that are not finite: refused by the API, the console, and once more by the store."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from ggufspec import results
from ggufspec.analysis import comparing
from ggufspec.console.commands import parse_line
from ggufspec.domain import Conditions, Difference, Offload, RunResult, Sampling
from ggufspec.errors import GgufspecError, ResultsError
from ggufspec.forecast.costs import CostCurve, Point
from ggufspec.options import BenchOptions, TuneOptions
from ggufspec.stats import Estimate
from tests.support import values

NUMBERS = {"temp", "top_p", "min_p", "p_min", "synthetic_accept", "precision", "max_time", "timeout"}


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, np.float64("nan"), np.float32("inf")])
def test_the_api_refuses_them(bad: float) -> None:
    for name in NUMBERS:
        with pytest.raises(GgufspecError, match=rf"(?m)^{name} is -?(nan|inf)$"):
            BenchOptions(**{name: bad})
    for name in ("p_min", "synthetic_accept"):
        with pytest.raises(GgufspecError, match=f"^{name} is "):
            BenchOptions(**{name: (0.5, bad)})
    with pytest.raises(GgufspecError, match=r"^tensor_split is "):
        BenchOptions(tensor_split=((1.0, bad),))
    for name in ("max_time", "precision"):
        with pytest.raises(GgufspecError, match=f"^{name} is "):
            TuneOptions(**{name: bad})
    with pytest.raises(GgufspecError, match="is not a fraction"):
        comparing.compare(values.whole_bench(), values.whole_bench(), threshold=bad)


def test_the_console_refuses_them() -> None:
    for text in ("temp=nan", "temp=inf", "top_p=nan", "min_p=-inf"):
        with pytest.raises(GgufspecError, match="is not a finite number"):
            parse_line(f"/sampler {text}")


@pytest.mark.parametrize("bad", [math.nan, math.inf, 0.0, -1.0])
def test_a_cost_curve_has_finite_times(bad: float) -> None:
    point = Point(tokens=1, depth=0, seconds=Estimate(value=bad, lo=None, hi=None))
    with pytest.raises(ValueError, match="positive number of seconds"):
        CostCurve(verify=(point,))


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_the_store_refuses_them_and_keeps_what_it_has(bad: float) -> None:
    run = values.run()
    stored = values.bench(run)
    for wrong, name in (
        (replace(run, wall_s=bad), "wall_s"),
        (replace(run, sample=replace(run.sample, gen_s=bad)), "gen_s"),
        (replace(run, conditions=Conditions(cpu_mhz=bad)), "conditions.cpu_mhz"),
        (_with_spec(run, sampling=Sampling(temperature=bad)), "spec.sampling.temperature"),
        (_with_spec(run, offload=Offload(tensor_split=(1.0, bad))), "spec.offload.tensor_split"),
    ):
        with pytest.raises(ResultsError, match=f"^{name} is {bad}, which cannot be stored") as caught:
            results.append(stored, wrong)
        assert caught.value.hint
    with pytest.raises(ResultsError, match=r"^difference.margin is"):
        results.judge(stored, replace(run, difference=Difference(at_char=1, at_token=None, margin=bad)))
    again = results.append(stored, values.run(repeat=1))
    assert results.load(stored.meta.id) == again
    assert again.runs == [run, values.run(repeat=1)]


def _with_spec(run: RunResult, **changes: Any) -> RunResult:
    return replace(run, spec=replace(run.spec, **changes))
