from __future__ import annotations

import math
from dataclasses import replace

from click.testing import CliRunner

from ggufspec.cli import cli
from ggufspec.domain import Role
from ggufspec.report.text import details
from ggufspec.results import ResultSet
from tests.support import values


def _bench(*, by_prompt: float = 0.0, by_load: float = 0.0) -> ResultSet:
    """Eight prompts, four loads; the speed-up differs by prompt or by load, and a little by cell."""
    runs = []
    for repeat in range(4):
        for number in range(8):
            prompt = f"p{number}"
            gain = 1.5 * math.exp(
                by_prompt * math.sin(5 * number)
                + by_load * math.sin(3 * repeat + 1)
                + 0.002 * math.sin(number * 17 + repeat * 29)
            )
            for role, tps in ((Role.TARGET, 50.0), (Role.DRAFTING, 50.0 * gain)):
                draft = 3 if role is Role.DRAFTING else None
                run = values.run(
                    role, prompt=prompt, repeat=repeat, tps=tps, draft=draft, accepted=70 + number
                )
                sample = replace(run.sample, n_rounds=40 if draft else None)
                runs.append(replace(run, sample=sample, load=2 * repeat + (draft is not None)))
    return values.bench(*runs)


def _cells(text: str) -> dict[str, str]:
    """Return the cells of a Markdown table with one row, by their headings."""
    rows = [line.strip("|").split("|") for line in text.splitlines() if line.startswith("|")]
    return {name.strip(): cell.strip() for name, cell in zip(rows[0], rows[2], strict=True)}


def _percent(text: str) -> float:
    return float(text.strip("±%"))


def test_variance_says_whether_prompts_or_loads_help() -> None:
    loads = _cells(details.variance(_bench(by_load=0.05)))
    prompts = _cells(details.variance(_bench(by_prompt=0.05)))
    assert _percent(loads["load share"]) > 90 > 10 > _percent(loads["prompt share"])
    assert _percent(prompts["prompt share"]) > 90 > 10 > _percent(prompts["load share"])
    assert _percent(loads["twice the loads"]) < 0.8 * _percent(loads["now"])
    assert _percent(prompts["twice the prompts"]) < 0.8 * _percent(prompts["now"])
    assert _percent(prompts["twice the loads"]) > 0.9 * _percent(prompts["now"])


def test_checks_show_the_speedup_by_other_means() -> None:
    row = _cells(details.checks(_bench(by_prompt=0.05)))
    assert row["verdict"] == "faster"
    for name in ("speed-up", "median", "equal work", "all runs", "first runs"):
        assert 1.4 < float(row[name].partition("×")[0]) < 1.6, name
    assert row["cells"] == "32"
    assert row["accepted"].startswith("73.5 %")
    assert row["tokens/round"] == row["tokens/draft"]  # every round has a draft here


def test_a_bench_without_drafting_has_nothing_to_examine() -> None:
    bench = values.bench(values.run())
    assert details.variance(bench) == details.checks(bench)
    assert "no speed-up" in details.checks(bench)


def test_show_prints_both_pages() -> None:
    _bench(by_load=0.05)
    shown = CliRunner().invoke(cli, ["show", "--all", "--variance", "-o", "md"])
    assert shown.exit_code == 0, shown.output
    assert "equal work" in shown.output
    assert "twice the loads" in shown.output
