from __future__ import annotations

import math
from dataclasses import replace

import pytest

from ggufspec.analysis.warnings import ADVICE
from ggufspec.domain import Conditions, Difference, Role, Status, TextVerdict
from ggufspec.report import frames
from ggufspec.report.rows.benches import SummaryRow
from ggufspec.report.rows.runs import CategoryRow, LogRow, RunRow
from ggufspec.report.text import formats
from tests.support import values
from tests.support.swept import ROUNDS, swept


def test_summary_has_one_row_per_arm_and_no_warmups() -> None:
    table = frames.summary(values.whole_bench())
    assert tuple(table.columns) == SummaryRow.names()
    target, drafter, drafting = formats.records(table)
    assert [row["role"] for row in (target, drafter, drafting)] == ["target", "drafter", "drafting"]
    assert target["gen_tps"] == pytest.approx(math.sqrt(40 * 60) * math.sqrt(1.01))
    assert drafting["gen_tps"] == pytest.approx(1.5 * target["gen_tps"])
    assert (drafting["speedup"], target["speedup"]) == (pytest.approx(1.5), None)
    assert drafting["speedup_lo"] == pytest.approx(1.5)
    assert (drafting["accept_rate"], drafting["n_drafted"], drafting["n_accepted"]) == (0.75, 400, 300)
    assert (target["accept_rate"], target["n_drafted"], target["draft"]) == (None, None, None)
    assert (drafting["text_identical"], target["text_identical"]) == (True, None)
    assert (drafting["prompts"], drafting["repeats"], drafting["draft"]) == (2, 2, 3)
    assert (drafting["llama_version"], drafting["llama_commit"], drafting["backend"]) == (
        "b11312",
        "0c1e570",
        "cpu",
    )
    assert drafting["llama_cpp_python"] == "0.3.36"


def test_a_prompt_whose_cells_are_all_excluded_has_a_row_without_a_speed() -> None:
    runs = [
        replace(run, doubts=("busy-machine",)) if run.spec.prompt.id == "p2" else run
        for run in values.whole_bench().runs
    ]
    table = formats.records(frames.prompts(values.bench(*runs)))
    assert [(row["role"], row["prompt"]) for row in table] == [
        (role, prompt) for role in ("target", "drafter", "drafting") for prompt in ("p1", "p2")
    ]
    assert all((row["gen_tps"] is None) == (row["prompt"] == "p2") for row in table)
    assert [row["speedup"] for row in table if row["role"] == "drafting"] == [pytest.approx(1.5), None]
    assert [row["accept_rate"] for row in table if row["role"] == "drafting"] == [0.75, 0.75]
    assert [row["verdict"] is not None for row in table] == [row["role"] == "drafting" for row in table]


def test_layers_belong_to_the_model_that_has_them() -> None:
    target, drafter, drafting = formats.records(frames.summary(values.whole_bench()))
    assert (target["actual_ngl"], target["actual_ngld"]) == (0, None)
    assert (drafter["actual_ngl"], drafter["actual_ngld"]) == (None, 0)
    assert (drafting["actual_ngl"], drafting["actual_ngld"]) == (0, 0)


def test_failed_runs_are_counted_and_never_averaged() -> None:
    bench = values.bench(
        values.run(tps=50.0),
        values.run(repeat=1, status=Status.CRASHED),
        values.run(Role.DRAFTER, status=Status.TIMED_OUT),
    )
    target, drafter = formats.records(frames.summary(bench))
    assert target["gen_tps"] == pytest.approx(50.0)
    assert (target["status"], drafter["status"]) == ("partial", "timed out")
    assert drafter["gen_tps"] is None
    (warning,) = target["warnings"]
    assert warning["name"] == "runs-failed"
    assert warning["advice"].startswith(ADVICE["runs-failed"])  # type: ignore[index]
    assert "(2 of 3 runs)" in warning["advice"]


def test_runs_has_one_row_per_run_warmups_included() -> None:
    bench = values.whole_bench()
    rows = formats.records(frames.runs(bench))
    assert len(rows) == len(bench.runs) == 13
    assert [row["warmup"] for row in rows] == [True] + [False] * 12
    assert rows[3]["decode_tps"] == pytest.approx(bench.runs[3].sample.decode_tps)
    assert rows[3]["status"] == "ok"
    assert rows[3]["draft"] == 3


def test_empty_benches_have_their_columns() -> None:
    empty = values.bench()
    assert tuple(frames.summary(empty).columns) == SummaryRow.names()
    assert tuple(frames.runs(empty).columns) == RunRow.names()
    assert tuple(frames.logs([]).columns) == LogRow.names()


def test_runs_tell_what_each_is_worth_and_where_its_text_differs() -> None:
    near = Difference(at_char=9, at_token=2, target_token=5, margin=0.1, verdict=TextVerdict.NEAR_TIE)
    drafting = values.run(Role.DRAFTING, draft=3)
    bench = values.bench(
        replace(values.run(), conditions=Conditions(others_cores=0.5), doubts=("busy-machine",)),
        values.run(repeat=1, status=Status.CRASHED),
        replace(drafting, text_identical=False, difference=near),
        replace(drafting, repeat=1, text_identical=False, difference=Difference(at_char=5, at_token=None)),
    )
    busy, crashed, tie, differs = formats.records(frames.runs(bench))
    assert (busy["outcome"], busy["doubts"], busy["others_cores"]) == ("disturbed", "busy-machine", 0.5)
    assert (crashed["outcome"], crashed["doubts"], crashed["decode_tps"]) == ("crashed", "runs-failed", None)
    assert (tie["outcome"], tie["doubts"], tie["text_verdict"]) == ("ok", "near-ties", "near-tie")
    assert (tie["differs_at_token"], tie["target_token"], tie["margin_nats"]) == (2, 5, 0.1)
    assert (differs["outcome"], differs["doubts"]) == ("text differs", "texts-not-judged")
    assert (differs["differs_at_char"], differs["differs_at_token"]) == (5, None)


def test_categories_have_the_figures_of_their_prompts_alone() -> None:
    kinds = {"p1": "code", "p2": "prose"}
    runs = [
        replace(
            run, spec=replace(run.spec, prompt=replace(run.spec.prompt, category=kinds[run.spec.prompt.id]))
        )
        for run in values.whole_bench().current
    ]
    table = frames.categories(values.bench(*runs))
    assert tuple(table.columns) == CategoryRow.names()
    rows = {(row["role"], row["category"]): row for row in formats.records(table)}
    assert len(rows) == 6
    assert rows["target", "code"]["gen_tps"] == pytest.approx(40 * math.sqrt(1.01))
    assert rows["target", "prose"]["gen_tps"] == pytest.approx(60 * math.sqrt(1.01))
    assert rows["drafting", "code"]["speedup"] == pytest.approx(1.5)
    assert rows["drafting", "code"]["n_drafted"] == 200
    assert rows["target", "code"]["n_drafted"] is None


def test_positions_count_from_one_to_the_draft_size() -> None:
    rows = formats.records(frames.positions(swept()))
    of_four = [row for row in rows if row["draft"] == len(ROUNDS)]
    assert {row["category"]: [] for row in of_four}.keys() == {row["category"] for row in rows}
    for category in {row["category"] for row in of_four}:
        places = [row for row in of_four if row["category"] == category]
        assert [row["position"] for row in places] == [1, 2, 3, 4]
        shares = [row["n_accepted"] / row["n_drafts"] for row in places]
        assert shares == [sum(each.accepted >= place for each in ROUNDS) / 4 for place in (1, 2, 3, 4)]
