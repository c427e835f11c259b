"""Numbers that are not finite: refused by every option, by the API, and once more by the store."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest

from ggufspec import results, units
from ggufspec.analysis import comparing
from ggufspec.cli import COMMANDS, cli
from ggufspec.console.commands import parse_line
from ggufspec.domain import Conditions, Difference, Offload, RunResult, Sampling
from ggufspec.errors import GgufspecError, ResultsError
from ggufspec.forecast.costs import CostCurve, Point
from ggufspec.options import BenchOptions, TuneOptions
from ggufspec.options.kinds import Number
from ggufspec.stats import Estimate
from tests.support import fakes, shell, values

BAD = ("nan", "NaN", "-nan", "inf", "-inf", "Infinity", "1e999", "9" * 400, "nan%", "infG")
NUMBERS = {"temp", "top_p", "min_p", "p_min", "synthetic_accept", "precision", "max_time", "timeout"}


def _options() -> Iterator[tuple[str, click.Option]]:
    context = click.Context(cli)
    for name in COMMANDS:
        command = cli.get_command(context, name)
        for param in command.params:
            if isinstance(param, click.Option) and _takes_numbers(param):
                yield name, param


def _takes_numbers(option: click.Option) -> bool:
    """Whether an option understands a number with a fraction, a percentage, a unit or a list of numbers."""
    for text in ("0.5", "50%", "2m", "2G"):
        try:
            value = option.type.convert(text, option, None)
        except (click.ClickException, TypeError, ValueError):
            continue
        if all(
            isinstance(number, int | float) for number in (value if isinstance(value, tuple) else (value,))
        ):
            return True
    return False


OPTIONS = [pytest.param(option, id=f"{name} {option.opts[-1]}") for name, option in _options()]


def test_the_options_with_numbers_are_known() -> None:
    named = {option.name for _, option in _options()}
    assert named >= NUMBERS | {"vram", "reserve", "target_tps", "overhead", "verify_cost", "bandwidth"}


@pytest.mark.parametrize("option", OPTIONS)
def test_no_option_takes_a_number_that_is_not_finite(option: click.Option) -> None:
    for text in BAD:
        with pytest.raises(click.BadParameter):
            option.type.convert(text, option, None)


@pytest.mark.parametrize(
    ("number", "good"),
    [("0", True), ("0.8", True), ("1e-9", True), ("1e12", True), ("1e-310", False), ("1e308", False)],
)
def test_numbers_that_overflow_where_they_are_used_are_refused(number: str, good: bool) -> None:
    if good:
        assert Number(0).parse(number) == float(number)
    else:
        with pytest.raises(ValueError, match="between 1e-09 and 1e"):
            Number(0).parse(number)


@pytest.mark.parametrize(
    "words",
    [
        ("bench", "--pair", "demo", "--temp", "nan"),
        ("sweep", "--pair", "demo", "--p-min", "0,nan"),
        ("chat", "--pair", "demo", "--once", "Hello", "--min-p", "nan"),
        ("whatif", "--accept", "0.7@99999999999", "--target-tps", "2", "--drafter-tps", "3"),
        ("whatif", "--accept", "0.7", "--target-tps", "2", "--drafter-tps", "3", "--verify-cost", "1,nan"),
        ("plan", "--pair", "demo", "--vram", "99999999999999999999T"),
        ("compare", "a", "b", "--threshold", "nan"),
    ],
)
def test_the_commands_refuse_them_in_one_line(
    words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GGUFSPEC_LLAMA", str(fakes.install(tmp_path / "llama")))
    done = shell.here(*words)
    assert done.returncode == 2
    assert done.stdout == ""
    assert "Error: " in done.stderr
    assert not results.ids()


@pytest.mark.parametrize("text", ["0.7@0", "0.7@65", "0.7@99999999"])
def test_an_acceptance_at_a_draft_size_that_nobody_drafts_is_refused(text: str) -> None:
    option = next(option for _, option in _options() if option.name == "synthetic_accept")
    with pytest.raises(click.BadParameter):
        option.type.convert(text, option, None)


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
        with pytest.raises(GgufspecError, match="must be at least 0"):
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


@pytest.mark.parametrize("text", ["9" * 400, "9" * 400 + "G", "1048577T", f"{2**61}"])
def test_more_bytes_than_any_machine_has_are_not_a_size(text: str) -> None:
    with pytest.raises(ValueError, match="not a size"):
        units.parse_bytes(text)


def test_the_largest_size_is_a_size() -> None:
    assert units.parse_bytes("1024T") == 1 << 50
