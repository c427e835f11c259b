"""The command that would decide an open verdict: it can be run as printed, and goes on or starts again."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import click
import pytest

from ggufspec import cli, results
from ggufspec.analysis import arms
from ggufspec.domain import Missing, Role
from ggufspec.report.text import details, judgements
from ggufspec.results import ResultSet
from tests.support import shell, values

GAINS = ((1.0, 1.3, 1.1), (1.2, 1.0, 1.35), (1.0, 1.1, 1.2), (1.3, 1.05, 1.0))


def _bench(*words: str, repeats: int = 2, busy: bool = False) -> ResultSet:
    """An undecided bench that was started with these words."""
    runs = [
        replace(
            values.run(role, prompt=f"p{prompt}", repeat=repeat, draft=draft, tps=40.0 * gain),
            doubts=("busy-machine",) if busy else (),
        )
        for repeat in range(repeats)
        for prompt in range(3)
        for role, draft, gain in ((Role.TARGET, None, 1.0), (Role.DRAFTING, 3, GAINS[repeat][prompt]))
    ]
    bench = values.bench(*runs)
    return replace(bench, meta=replace(bench.meta, command=("ggufspec", *words)))


def _command(bench: ResultSet, *missing: Missing) -> list[str]:
    arm = judgements.leading_arm(arms.group(bench))
    assert arm.judgement is not None
    judgement = arm.judgement
    if missing:
        judgement = replace(judgement, missing=missing, needed_repeats=9)
    words = judgements.deciding_command(bench, judgement)
    assert words is not None
    return words


def _parsed(words: Sequence[str]) -> dict[str, Any]:
    """Return the options of a command line as click reads them."""
    program, name, *rest = words
    assert program == "ggufspec"
    with click.Context(cli.cli) as parent:
        command = cli.cli.get_command(parent, name)
        return command.make_context(name, list(rest), parent=parent).params


WORDS = [
    ("-r", "1"),
    ("-r2",),
    ("--repeats=2", "--loads=2", "--max-time=10m"),
    ("--repeats", "2", "--loads", "1", "--name", "mine", "--max-time", "10m"),
    ("--name=mine", "--resume", "other"),
]


@pytest.mark.parametrize("words", WORDS)
def test_a_quiet_bench_goes_on_and_loads_that_repeats_share_are_measured_anew(words: tuple[str, ...]) -> None:
    bench = _bench("bench", "--draft", "3", *words)
    options = _parsed(_command(bench, Missing.RUNS))
    assert (options["resume"], options["repeats"], options["max_time"]) == (bench.meta.id, 9, None)
    assert options["name"] is None
    bench = _bench("bench", "--draft", "3", "--engine", "server", *words)
    options = _parsed(_command(bench, Missing.RUNS, Missing.LOADS))
    assert (options["resume"], options["repeats"], options["loads"]) == (None, 9, None)


@pytest.mark.parametrize("texts", [("--name", "-r"), ("--repeats=2", "--suite"), ("--chat",)])
def test_prompts_that_look_like_options_stay(texts: tuple[str, ...]) -> None:
    asked = [word for text in texts for word in ("-p", text)]
    bench = _bench("bench", *asked, "--name", "mine", "--draft", "3")
    for missing in (Missing.RUNS, Missing.LOADS, Missing.QUIET):
        options = _parsed(_command(bench, missing))
        assert options["prompt"] == texts
        assert (options["name"], options["suite"], options["chat"]) == (None, None, None)


@pytest.mark.parametrize(
    ("words", "repeats", "wanted"),
    [
        (("-r", "1", "--loads", "1"), 1, 3),  # no machine is quiet enough for a verdict after one
        (("-r2",), 2, 3),
        (("-r", "4"), 4, 4),
    ],
)
def test_a_disturbed_bench_is_measured_again(words: tuple[str, ...], repeats: int, wanted: int) -> None:
    bench = _bench("bench", "--draft", "3", "--name", "mine", *words, repeats=repeats, busy=True)
    options = _parsed(_command(bench))
    assert (options["repeats"], options["name"], options["resume"]) == (wanted, None, None)
    assert options["loads"] is None


@pytest.mark.parametrize("missing", [Missing.RUNS, Missing.QUIET])
def test_a_tuned_configuration_is_measured_on_the_texts_of_the_tuning(missing: Missing) -> None:
    bench = _bench("tune", "--pair", "demo", "-f", "mine.txt", "--suite=domains", "--raw", "--max-time", "1m")
    results.write_configuration(values.configuration(id=bench.meta.id), bench.folder)
    options = _parsed(_command(bench, missing))
    assert (options["tuned"], options["n_predict"]) == (bench.meta.id, 32)
    assert [str(file) for file in options["prompt_file"]] == ["mine.txt"]
    assert (options["suite"], options["chat"]) == ("domains", False)


# Pages of a bench with --precision


def _precise_bench(*, by_prompt: float = 0.0, by_load: float = 0.0) -> ResultSet:
    """Eight prompts, four loads; the speed-up differs by prompt or by load, and a little by cell."""
    runs = []
    for repeat, number in itertools.product(range(4), range(8)):
        off = by_prompt * math.sin(5 * number) + by_load * math.sin(3 * repeat + 1)
        gain = 1.5 * math.exp(off + 0.002 * math.sin(number * 17 + repeat * 29))
        told: dict[str, Any] = {"prompt": f"p{number}", "repeat": repeat, "accepted": 70 + number}
        drafting = values.run(Role.DRAFTING, tps=50.0 * gain, draft=3, **told)
        runs += [
            replace(values.run(tps=50.0, **told), load=2 * repeat),
            replace(drafting, load=2 * repeat + 1, sample=replace(drafting.sample, n_rounds=40)),
        ]
    return values.bench(*runs)


def _cells(text: str) -> dict[str, str]:
    """Return the cells of a Markdown table with one row, by their headings."""
    rows = [line.strip("|").split("|") for line in text.splitlines() if line.startswith("|")]
    return {name.strip(): cell.strip() for name, cell in zip(rows[0], rows[2], strict=True)}


def _percent(text: str) -> float:
    return float(text.strip("±%"))


def test_variance_says_whether_prompts_or_loads_help() -> None:
    for helps, others in (("prompt", "load"), ("load", "prompt")):
        row = _cells(details.variance(_precise_bench(**{f"by_{helps}": 0.05})))
        assert _percent(row[f"{helps} share"]) > 90 > 10 > _percent(row[f"{others} share"])
        assert _percent(row[f"twice the {helps}s"]) < 0.8 * _percent(row["now"])
        assert _percent(row[f"twice the {others}s"]) > 0.9 * _percent(row["now"])


def test_checks_show_the_speedup_by_other_means() -> None:
    row = _cells(details.checks(_precise_bench(by_prompt=0.05)))
    assert row["verdict"] == "faster"
    for name in ("speed-up", "median", "equal work", "all runs", "first runs"):
        assert 1.4 < float(row[name].partition("×")[0]) < 1.6, name
    assert row["cells"] == "32"
    assert row["accepted"].startswith("73.5 %")
    assert row["tokens/round"] == row["tokens/draft"]  # every round has a draft here


def test_pages_show_what_there_is() -> None:
    bench = values.bench(values.run())
    assert details.variance(bench) == details.checks(bench)
    assert "no speed-up" in details.checks(bench)
    results.close(_precise_bench(by_load=0.05))
    shown = shell.done("show", "--all", "--variance", "-o", "md").stdout
    assert "equal work" in shown
    assert "twice the loads" in shown
