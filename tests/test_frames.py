from __future__ import annotations

import math

import pytest

from ggufspec import frames, report
from ggufspec.domain import Role, Status
from ggufspec.doubts import ADVICE
from tests import values


def test_summary_has_one_row_per_arm_and_no_warmups() -> None:
    table = frames.summary(values.whole_bench())
    assert tuple(table.columns) == frames.SUMMARY_COLUMNS
    target, drafter, drafting = report.records(table)
    assert [row["role"] for row in (target, drafter, drafting)] == ["target", "drafter", "drafting"]
    assert target["gen_tps"] == pytest.approx(math.sqrt(40 * 60) * math.sqrt(1.01))
    assert drafting["gen_tps"] == pytest.approx(1.5 * target["gen_tps"])
    assert (drafting["speedup"], target["speedup"]) == (pytest.approx(1.5), None)
    assert drafting["speedup_lo"] == pytest.approx(1.5)
    assert (drafting["accept_rate"], drafting["n_drafted"], drafting["n_accepted"]) == (0.75, 400, 300)
    assert (target["accept_rate"], target["n_drafted"], target["draft_n_max"]) == (None, None, None)
    assert (drafting["text_identical"], target["text_identical"]) == (True, None)
    assert (drafting["prompts"], drafting["repeats"], drafting["draft_n_max"]) == (2, 2, 3)
    assert (drafting["llama_version"], drafting["llama_commit"], drafting["backend"]) == (
        "0.3.36",
        "0c1e570",
        "cpu",
    )


def test_layers_belong_to_the_model_that_has_them() -> None:
    target, drafter, drafting = report.records(frames.summary(values.whole_bench()))
    assert (target["n_gpu_layers"], target["n_gpu_layers_draft"]) == (0, None)
    assert (drafter["n_gpu_layers"], drafter["n_gpu_layers_draft"]) == (None, 0)
    assert (drafting["n_gpu_layers"], drafting["n_gpu_layers_draft"]) == (0, 0)


def test_failed_runs_are_counted_and_never_averaged() -> None:
    bench = values.bench(
        values.run(tps=50.0),
        values.run(repeat=1, status=Status.CRASHED),
        values.run(Role.DRAFTER, status=Status.TIMED_OUT),
    )
    target, drafter = report.records(frames.summary(bench))
    assert target["gen_tps"] == pytest.approx(50.0)
    assert (target["status"], drafter["status"]) == ("partial", "timed out")
    assert drafter["gen_tps"] is None
    (warning,) = target["warnings"]
    assert warning["name"] == "runs-failed"
    assert warning["advice"].startswith(ADVICE["runs-failed"])  # type: ignore[index]
    assert "(2 of 3 runs)" in warning["advice"]


def test_runs_has_one_row_per_run_warmups_included() -> None:
    bench = values.whole_bench()
    rows = report.records(frames.runs(bench))
    assert len(rows) == len(bench.runs) == 13
    assert [row["warmup"] for row in rows] == [True] + [False] * 12
    assert rows[3]["decode_tps"] == pytest.approx(bench.runs[3].sample.decode_tps)
    assert rows[3]["status"] == "ok"
    assert rows[3]["draft_n_max"] == 3


def test_empty_benches_have_their_columns() -> None:
    empty = values.bench()
    assert tuple(frames.summary(empty).columns) == frames.SUMMARY_COLUMNS
    assert tuple(frames.runs(empty).columns) == frames.RUN_COLUMNS
    assert tuple(frames.logs([]).columns) == frames.LOG_COLUMNS
