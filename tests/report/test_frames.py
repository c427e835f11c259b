from __future__ import annotations

import math
from dataclasses import replace

import pytest

from ggufspec.analysis.warnings import ADVICE
from ggufspec.domain import (
    Conditions,
    Difference,
    Role,
    RunResult,
    Segment,
    SegmentCounts,
    Status,
    TextVerdict,
)
from ggufspec.report import frames, plot
from ggufspec.report.plot.inside_rounds import segment_rows
from ggufspec.report.rows.benches import SummaryRow
from ggufspec.report.rows.runs import CategoryRow, LogRow, RunRow
from ggufspec.report.text import details, formats
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
    version = ("llama_version", "llama_commit", "llama_cpp_python", "backend")
    assert [drafting[name] for name in version] == ["b11312", "0c1e570", "0.3.36", "cpu"]
    layers = [(row["actual_ngl"], row["actual_ngld"]) for row in (target, drafter, drafting)]
    assert layers == [(0, None), (None, 0), (0, 0)]


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


def test_a_segment_has_the_acceptance_and_the_speed_of_its_tokens() -> None:
    """Drafting is twice as fast as the target in values, and as fast in prose, which one prompt has."""

    def in_parts(run: RunResult) -> RunResult:
        drafts, has_prose = run.spec.role is Role.DRAFTING, run.spec.prompt.id == "p2"
        values_ = SegmentCounts(Segment.VALUES, 40, 30 * drafts, 20 * drafts, 20 if drafts else 40)
        prose = SegmentCounts(Segment.PROSE, 20, 20 * drafts, 5 * drafts, 15 if drafts else 20)
        parts, seconds = [values_, prose][: 1 + has_prose], [0.4 if drafts else 0.8, 0.2][: 1 + has_prose]
        return replace(run, sample=replace(run.sample, by_segment=tuple(parts), segment_s=tuple(seconds)))

    bench = values.bench(*map(in_parts, values.whole_bench().runs))
    rows = [row for row in formats.records(frames.segments(bench)) if row["role"] != "drafter"]
    assert [(row["role"], row["segment"], row["n_tokens"]) for row in rows] == [
        (role, segment, n)
        for role in ("target", "drafting")
        for segment, n in (("JSON values", 160), ("prose", 40))
    ]
    assert [row["share"] for row in rows] == [0.8, 0.2] * 2
    assert [row["accept_rate"] for row in rows] == [None, None, pytest.approx(2 / 3), 0.25]
    assert [row["tokens_per_round"] for row in rows[2:]] == [2.0, pytest.approx(4 / 3)]
    assert [row["token_s"] for row in rows] == pytest.approx([0.02, 0.01, 0.01, 0.01])
    assert [row["speedup"] for row in rows] == [None, None, pytest.approx(2.0), pytest.approx(1.0)]
    page = details.parts(bench, "segment", "md")
    assert page is not None
    assert "JSON values" in page
    assert "66.7 %" in page
    assert [(row["segment"], row["accepted"]) for row in segment_rows(bench)] == [
        ("JSON values", pytest.approx(2 / 3)),
        ("prose", 0.25),
    ]
    drawn = plot.segments(bench)
    assert drawn is not None
    assert "JSON values: 67 %" in str(drawn.description)
    assert plot.segments(values.whole_bench()) is None


def test_a_turn_has_what_all_conversations_have_of_it() -> None:
    def in_turn(run: RunResult) -> RunResult:
        n = 1 if run.spec.prompt.id == "p1" else 2
        prompt = replace(run.spec.prompt, id="talk" if n == 1 else "talk#2", turn=n, history=n - 1)
        sample = replace(run.sample, prompt_tokens=20 * n, cached_tokens=100 * (n - 1), ttft_s=0.1 * n)
        return replace(run, spec=replace(run.spec, prompt=prompt), sample=sample)

    bench = values.bench(*map(in_turn, values.whole_bench().runs))
    rows = [row for row in formats.records(frames.turns(bench)) if row["role"] == "drafting"]
    assert [(row["turn"], row["conversations"]) for row in rows] == [(1, 1), (2, 1)]
    assert [(row["prompt_tokens"], row["cached_tokens"]) for row in rows] == [(20, 0), (40, 100)]
    assert [row["ttft_s"] for row in rows] == [pytest.approx(0.1), pytest.approx(0.2)]
    assert [row["speedup"] for row in rows] == [pytest.approx(1.5)] * 2
    assert "100" in (details.parts(bench, "turn", "table") or "")


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
    assert [row["warmup"] for row in rows] == [True] + [False] * 12
    assert rows[3]["decode_tps"] == pytest.approx(bench.runs[3].sample.decode_tps)
    assert (rows[3]["status"], rows[3]["draft"]) == ("ok", 3)


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
    runs = []
    for run in values.whole_bench().current:
        prompt = replace(run.spec.prompt, category={"p1": "code", "p2": "prose"}[run.spec.prompt.id])
        runs.append(replace(run, spec=replace(run.spec, prompt=prompt)))
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
