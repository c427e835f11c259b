from __future__ import annotations

import math
from dataclasses import replace

import pytest

from ggufspec import results, stats
from ggufspec.analysis import acceptance, arms, comparing
from ggufspec.analysis.arms import LayerCounts
from ggufspec.domain import Drafting, Method, Role, RunResult, Status
from ggufspec.report import frames
from ggufspec.report.text.overview import overview
from ggufspec.results import ResultSet
from tests.support import values


def _noisy(*, prompts: int = 6, repeats: int = 3) -> ResultSet:
    """Three arms whose runs all differ in speed, and in what was accepted."""
    runs = []
    for repeat in range(repeats):
        for number in range(prompts):
            heat = 1 + 0.01 * math.sin(7 * repeat + number)
            prompt = f"p{number}"
            accepted = 70 + number
            runs += [
                values.run(prompt=prompt, repeat=repeat, tps=50 * heat),
                values.run(Role.DRAFTER, prompt=prompt, repeat=repeat, tps=900 * heat),
                values.run(
                    Role.DRAFTING, prompt=prompt, repeat=repeat, tps=80 * heat**2, draft=3, accepted=accepted
                ),
            ]
    return values.bench(*runs)


def _runs(bench: ResultSet, role: Role) -> list[RunResult]:
    return [run for run in bench.current if run.spec.role is role]


def test_an_arm_has_the_figures_of_its_runs_one_by_one() -> None:
    bench = _noisy()
    target, _, drafting = arms.group(bench)
    for arm in (target, drafting):
        own = _runs(bench, arm.role)
        assert list(arm.runs) == list(arm.good) == own
        assert arm.rates == {(run.spec.prompt.id, run.repeat): run.sample.decode_tps for run in own}
    assert drafting.baseline is target
    assert drafting.gain == stats.paired_effect(drafting.rates, target.rates)
    assert drafting.rate == stats.mean_rate(drafting.rates)
    assert drafting.acceptance == acceptance.of(run.sample for run in _runs(bench, Role.DRAFTING))
    assert (drafting.prompts, drafting.repeats) == (6, 3)


def test_runs_that_do_not_count_stay_in_the_arm_and_out_of_its_means() -> None:
    drafting = values.run(Role.DRAFTING, draft=3)
    bench = values.bench(
        values.run(),
        drafting,
        replace(drafting, repeat=1, doubts=("busy-machine", "implausible")),
        replace(drafting, repeat=2, sample=replace(drafting.sample, gen_s=None)),
        values.run(Role.DRAFTING, repeat=3, draft=3, status=Status.CRASHED),
    )
    _, arm = arms.group(bench)
    assert (len(arm.runs), len(arm.good), arm.status) == (4, 1, "partial")
    assert list(arm.rates) == [("p1", 0)]
    assert arm.acceptance is not None
    assert arm.acceptance.n_drafted == 100


def test_where_no_run_counts_the_most_frequent_failure_is_the_status() -> None:
    failed = [values.run(repeat=n, status=Status.CRASHED if n else Status.TIMED_OUT) for n in range(3)]
    (arm,) = arms.group(values.bench(*failed))
    assert (arm.status, arm.rate, arm.gain, arm.layers) == ("crashed", None, None, None)


def test_drafting_without_its_baseline_has_no_speedup() -> None:
    other = values.run(Role.DRAFTING, draft=3)
    other = replace(other, spec=replace(other.spec, threads=1))
    bench = values.bench(values.run(), other)
    *_, arm = arms.group(bench)
    assert (arm.baseline, arm.gain) == (None, None)
    assert arm.rate is not None


def test_a_rerun_replaces_the_disturbed_run() -> None:
    disturbed = replace(values.run(tps=20.0), doubts=("busy-machine",))
    (arm,) = arms.group(values.bench(disturbed, replace(values.run(tps=50.0), rerun=1)))
    assert arm.rates == {("p1", 0): pytest.approx(50.0)}


def test_benches_of_old_that_name_a_drafter_for_the_target_alone_have_one_baseline() -> None:
    old = values.run(repeat=1)
    old = replace(old, spec=replace(old.spec, pair=values.spec(Role.DRAFTER).pair))
    bench = values.bench(values.run(), old, values.run(Role.DRAFTING, draft=3))
    target, drafting = arms.group(bench)
    assert len(target.runs) == 2
    assert drafting.baseline is target


def test_layers_are_what_the_first_run_that_tells_says() -> None:
    silent = values.run()
    silent = replace(silent, sample=replace(silent.sample, offloaded_layers=None, total_layers=None))
    bench = values.bench(silent, values.run(repeat=1))
    gpu = replace(bench, meta=replace(bench.meta, build=replace(bench.meta.build, backend="cuda")))
    for each in (bench, gpu):
        (arm,) = arms.group(each)
        assert arm.layers == LayerCounts(offloaded=0, total=7)


def test_a_stored_bench_is_summarised_from_its_columns() -> None:
    stored = results.load(_noisy().meta.id)
    frames.summary(stored)
    frames.runs(stored)
    assert not stored.runs._ledger.made  # a RunResult each would take ten times as long as loading


def test_methods_at_one_draft_size_are_arms_of_their_own_and_named_apart() -> None:
    def drafted(run: RunResult, method: Method) -> RunResult:
        spec = replace(run.spec, drafting=Drafting(n_max=16, method=method))
        return replace(run, spec=spec if method.needs_drafter else replace(spec, pair=run_alone.spec.pair))

    run_alone = values.run(Role.TARGET)
    methods = (Method.NGRAM_MOD, Method.DRAFT_MODEL, Method.NGRAM_SIMPLE)
    runs = [
        drafted(values.run(Role.DRAFTING, draft=16, repeat=repeat, tps=tps), method)
        for method in methods
        for repeat, tps in enumerate((40.0, 80.0))
    ]
    bench = values.bench(run_alone, *runs)
    groups = arms.group(bench)
    assert [arm.models for arm in groups] == [
        ("target.gguf",),
        ("target.gguf", "drafter.gguf"),
        ("target.gguf", "ngram-simple"),
        ("target.gguf", "ngram-mod"),
    ]
    assert all(arm.baseline is groups[0] and len(arm.runs) == 2 for arm in groups[1:])
    told = frames.summary(bench)
    assert told["method"].tolist()[1:] == ["draft-model", "ngram-simple", "ngram-mod"]
    assert told["draft_p_min"].isna().tolist() == [True, False, True, True]
    shown = overview(bench)
    assert "| target.gguf + ngram-mod " in shown
    assert "drafting γ=16, drafting ngram-simple γ=16, drafting ngram-mod γ=16" in shown
    assert len(comparing.compare(bench, bench).rows) == 4
