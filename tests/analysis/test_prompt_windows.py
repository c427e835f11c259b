"""The prompt's part of a drafting program's window, from the runs of each model alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from ggufspec.analysis import arms, review, windows
from ggufspec.domain import Program, Role, RunResult
from ggufspec.report import frames
from ggufspec.results import ResultSet
from tests.support import values

CPU, GPU = ("CPU",), ("CPU", "CUDA0")
TARGET_S, DRAFTER_S, TOKEN_S = 0.40, 0.05, 0.02  # the prompt's seconds, and those of the target's token


def _alone(role: Role, prompt_s: float, *, repeat: int = 0) -> RunResult:
    run = values.run(role, repeat=repeat, tps=1 / TOKEN_S)
    return replace(run, sample=replace(run.sample, prompt_tokens=1000, prompt_tps=1000 / prompt_s))


def _drafting(encoded_s: float, **facts: Any) -> RunResult:
    run = values.run(Role.DRAFTING, draft=3, tps=100)  # 100 tokens in 1 s
    sample = replace(run.sample, prompt_tokens=1000, prompt_tps=1000 / encoded_s, devices=GPU, **facts)
    return replace(run, sample=sample)


def _bench(*runs: RunResult) -> ResultSet:
    alone = (_alone(Role.TARGET, TARGET_S - 0.1), _alone(Role.TARGET, TARGET_S, repeat=1))
    return values.bench(
        *alone, _alone(Role.TARGET, TARGET_S + 5, repeat=2), _alone(Role.DRAFTER, DRAFTER_S), *runs
    )


def _inside(run: RunResult) -> float:
    return float(windows.prompt_in_window(_bench(run).runs)[-1])


def test_what_encoding_was_too_short_for_is_taken_off() -> None:
    bench = _bench(_drafting(0.01))
    inside = TARGET_S + DRAFTER_S + TOKEN_S - 0.01  # the median of the target's prompts counts
    assert windows.prompt_in_window(bench.runs).tolist() == pytest.approx([0, 0, 0, 0, inside])
    assert windows.decode_rates(bench.runs)[-1] == pytest.approx(100 / (1 - inside))
    drafting = arms.group(bench)[-1]
    assert drafting.rate.value == pytest.approx(100 / (1 - inside))
    row = frames.runs(bench).iloc[-1]
    assert row["prompt_in_gen_s"] == pytest.approx(inside)
    assert row["decode_tps"] == pytest.approx(100 / (1 - inside))
    assert row["gen_s"] == 1.0  # the program's own


@pytest.mark.parametrize(
    ("run", "inside"),
    [
        (_drafting(2.0), 0.0),  # all of it was in the window for encoding
        (replace(_drafting(0.01), engine="inprocess"), 0.0),  # waits for the device
        (replace(_drafting(0.01), engine="server"), 0.0),
        (_drafting(0.01, program=Program.SIMPLE), TARGET_S + DRAFTER_S - 0.01),  # no token by itself
    ],
)
def test_only_programs_that_do_not_wait_are_corrected(run: RunResult, inside: float) -> None:
    assert _inside(run) == pytest.approx(inside)


def test_on_the_processor_only_the_simple_program_is_late() -> None:
    tree = _drafting(0.01)
    assert _inside(replace(tree, sample=replace(tree.sample, devices=CPU))) == 0.0
    simple = replace(tree.sample, devices=CPU, program=Program.SIMPLE)
    assert _inside(replace(tree, sample=simple)) == pytest.approx(TARGET_S + DRAFTER_S - 0.01)


def test_without_a_model_alone_the_window_counts_and_is_marked() -> None:
    for bench in (
        values.bench(_alone(Role.TARGET, TARGET_S), _drafting(0.01)),
        values.bench(_alone(Role.DRAFTER, DRAFTER_S), _drafting(0.01)),
        values.bench(values.run(), _alone(Role.DRAFTER, DRAFTER_S), _drafting(0.01)),  # no prompt's rate
        _bench(replace(_drafting(0.01), sample=replace(_drafting(0.01).sample, prompt_tps=None))),
        _bench(replace(_drafting(0.01), sample=replace(_drafting(0.01).sample, gen_s=0.4))),  # contradicts
    ):
        assert np.isnan(windows.prompt_in_window(bench.runs)[-1])
        assert windows.decode_rates(bench.runs)[-1] == bench.runs[-1].sample.decode_tps
        assert f"(1 of {len(bench.runs)} runs)" in review.warnings(bench)["prompt-in-window"]
    assert "prompt-in-window" not in review.warnings(_bench(_drafting(0.01)))


def test_a_drafter_alone_has_the_key_of_the_arm_that_a_bench_measures() -> None:
    assert values.spec(Role.DRAFTING, draft=3).drafter_alone.key == values.spec(Role.DRAFTER).key
