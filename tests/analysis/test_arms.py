from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from ggufspec import results, stats
from ggufspec.analysis import acceptance, arms, comparing, review
from ggufspec.analysis.arm import LayerCounts
from ggufspec.domain import (
    Conditions,
    Difference,
    Drafting,
    Method,
    Missing,
    Role,
    RunResult,
    SpeedJudgement,
    SpeedVerdict,
    Status,
    TextVerdict,
)
from ggufspec.report import frames
from ggufspec.report.text.overview import overview
from ggufspec.results import ResultSet
from tests.support import values


def _noisy() -> ResultSet:
    """Three arms whose runs all differ in speed, and in what was accepted."""

    def accept(run: RunResult) -> RunResult:
        if run.spec.role is not Role.DRAFTING:
            return run
        return replace(run, sample=replace(run.sample, n_accepted=70 + int(run.spec.prompt.id[1:])))

    return values.bench(*map(accept, values.grid({None: 50.0, 0: 900.0, 3: 80.0}, prompts=6, noise=0.01)))


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


def test_what_drafts_is_named_with_each_method_of_a_chain() -> None:
    def named(drafting: Drafting | None, *, has_file: bool) -> str:
        run = values.run(Role.DRAFTING, draft=3) if drafting else values.run()
        pair = run.spec.pair if has_file else replace(run.spec.pair, draft=None)
        (arm,) = arms.group(values.bench(replace(run, spec=replace(run.spec, pair=pair, drafting=drafting))))
        return arm.drafts_with

    chain = Drafting(n_max=3, method=Method.DRAFT_EAGLE3, first=(Method.NGRAM_MOD,))
    assert named(None, has_file=False) == ""
    assert named(Drafting(n_max=3), has_file=True) == "drafter.gguf"
    assert named(Drafting(n_max=3, method=Method.NGRAM_MOD), has_file=False) == "ngram-mod"
    assert named(chain, has_file=True) == "ngram-mod and drafter.gguf"


def test_runs_that_do_not_count_stay_in_the_arm_and_out_of_its_means() -> None:
    drafting = values.run(Role.DRAFTING, draft=3)
    bench = values.bench(
        values.run(),
        drafting,
        values.run(Role.DRAFTING, repeat=1, draft=3, status=Status.IMPLAUSIBLE),
        replace(drafting, repeat=2, sample=replace(drafting.sample, gen_s=None)),
        values.run(Role.DRAFTING, repeat=3, draft=3, status=Status.CRASHED),
    )
    _, arm = arms.group(bench)
    assert (len(arm.runs), len(arm.good), arm.status) == (4, 1, "partial")
    assert list(arm.rates) == [("p1", 0)]
    assert arm.acceptance.n_drafted == 100


def test_where_no_run_counts_the_most_frequent_failure_is_the_status() -> None:
    failed = [values.run(repeat=n, status=Status.CRASHED if n else Status.TIMED_OUT) for n in range(3)]
    (arm,) = arms.group(values.bench(*failed))
    assert (arm.status, arm.rate, arm.gain, arm.layers) == ("crashed", None, None, None)


@pytest.mark.parametrize(("tokens", "is_beyond"), [(32, False), (35, False), (36, True), (37, True)])
def test_answers_far_beyond_the_length_are_named(tokens: int, is_beyond: bool) -> None:
    """At γ = 3 a drafting program may stop with 37 tokens where 32 were asked for; a tenth more is 35.2."""
    run = values.run(Role.DRAFTING, draft=3)
    bench = values.bench(values.run(), replace(run, sample=replace(run.sample, gen_tokens=tokens)))
    named = review.warnings(bench).get("beyond-length", "")
    assert (f"up to {tokens} tokens where 32 were asked for" in named) is is_beyond


def _block(change: Callable[[RunResult], RunResult]) -> ResultSet:
    """The target alone and drafting at γ = 3 and 5, with a little noise; ``change`` edits each run."""
    return values.bench(*map(change, values.grid({None: 50.0, 3: 75.0, 5: 60.0}, noise=0.01)))


def test_the_quotient_of_two_arms_is_their_speedup_even_with_missing_cells() -> None:
    def lose(run: RunResult) -> RunResult:
        lost = _drafts(run, n_max=5, prompt="p1") and run.repeat == 2
        return replace(run, sample=replace(run.sample, status=Status.CRASHED)) if lost else run

    target, three, five = arms.group(_block(lose))
    for arm in (three, five):
        assert ("p1", 2) not in arm.rates
        assert len(arm.rates) == 23
        assert arm.gain.ratio.value == pytest.approx(arm.rate.value / target.rate.value)
    assert (target.dropped, three.dropped, five.dropped) == (1, 1, 0)


def test_an_arm_that_has_hardly_begun_does_not_decide_which_cells_count() -> None:
    def begin(run: RunResult) -> RunResult:
        late = _drafts(run, n_max=5) and run.repeat
        return replace(run, sample=replace(run.sample, status=Status.CRASHED)) if late else run

    target, three, five = arms.group(_block(begin))
    assert (len(target.rates), len(three.rates), len(five.rates)) == (24, 24, 8)


@pytest.mark.parametrize("name", ["busy-machine", "swapping", "gpu-throttled"])
def test_a_disturbed_run_excludes_its_cell_for_every_arm(name: str) -> None:
    def disturb(run: RunResult) -> RunResult:
        hit = _drafts(run, n_max=3, prompt="p0") and run.repeat == 1
        slow = replace(run.sample, gen_s=9.0)
        return replace(run, doubts=(name,), sample=slow) if hit else run

    for arm in arms.group(_block(disturb)):
        assert arm.excluded == {("p0", 1)}
        assert ("p0", 1) not in arm.rates
        assert len(arm.measured) == 24
        assert arm.disturbed == 0  # of those that count
        if arm.gain is not None and arm.gain_of_all is not None and arm.draft_size == 3:
            assert arm.gain_of_all.cells == 24
            assert arm.gain_of_all.ratio.value < arm.gain.ratio.value


def _drafts(run: RunResult, *, n_max: int | None = None, prompt: str | None = None) -> bool:
    """Whether a run drafts, with this draft size and on this prompt."""
    drafting = run.spec.drafting
    return drafting is not None and n_max in {None, drafting.n_max} and prompt in {None, run.spec.prompt.id}


@pytest.mark.parametrize(
    ("verdict", "doubts", "which", "excluded"),
    [
        (None, ("summary-retried", "threads-above-free-cores"), {}, set()),
        (TextVerdict.NEAR_TIE, (), {"prompt": "p2"}, set()),
        (TextVerdict.DIVERGENCE, (), {"prompt": "p2"}, {("p2", repeat) for repeat in range(3)}),
        (TextVerdict.DIVERGENCE, (), {"n_max": 5}, set()),  # an arm of other texts takes no cells of others
    ],
)
def test_another_text_excludes_its_cell_and_other_warnings_exclude_nothing(
    verdict: TextVerdict | None, doubts: tuple[str, ...], which: dict[str, Any], excluded: set[stats.Cell]
) -> None:
    def change(run: RunResult) -> RunResult:
        difference = None if verdict is None else Difference(at_char=3, at_token=1, verdict=verdict)
        changed = replace(run, doubts=doubts, text_identical=verdict is None, difference=difference)
        return changed if _drafts(run, **which) else run

    for arm in arms.group(_block(change)):
        assert arm.excluded == excluded


def _judgement(bench: ResultSet) -> SpeedJudgement:
    judgement = arms.group(bench)[1].judgement
    assert judgement is not None
    return judgement


def test_quiet_runs_decide_where_they_are_most() -> None:
    def disturb(run: RunResult) -> RunResult:
        return replace(run, doubts=("busy-machine",)) if run.repeat == 2 else run

    bench = _block(disturb)
    assert _judgement(bench).verdict is SpeedVerdict.FASTER
    assert all(arm.excluded and not arm.disturbed for arm in arms.group(bench))
    assert not {"disturbed", "widened"} & review.warnings(bench).keys()


@pytest.mark.parametrize("name", ["swapping", "gpu-throttled", "busy-machine"])
def test_a_disturbance_of_unknown_effect_leaves_no_verdict(name: str) -> None:
    """Nothing says how much of the processor other programs used in the last case."""
    bench = _block(lambda run: replace(run, doubts=(name,)))
    judged = _judgement(bench)
    assert (judged.verdict, judged.missing) == (SpeedVerdict.UNDECIDED, (Missing.QUIET,))
    assert judged.ratio.lo is None  # the disturbed runs agree with each other, and say nothing of quiet ones
    assert "disturbed" in review.warnings(bench)


def test_heat_during_every_run_of_one_arm_is_seen_beside_many_others() -> None:
    """Its runs are a seventh of all."""
    runs = values.grid({None: 50.0, **dict.fromkeys(range(1, 7), 75.0)}, noise=0.01)
    runs = [replace(run, doubts=("gpu-throttled",)) if _drafts(run, n_max=6) else run for run in runs]
    _, *quiet, hot = arms.group(values.bench(*runs))
    assert {arm.judgement.verdict for arm in quiet if arm.judgement} == {SpeedVerdict.FASTER}
    assert (hot.judgement.verdict, hot.judgement.missing) == (SpeedVerdict.UNDECIDED, (Missing.QUIET,))


def _beside(others_cores: float, *, drafting_alone: bool = False) -> Callable[[RunResult], RunResult]:
    def disturb(run: RunResult) -> RunResult:
        if drafting_alone and run.spec.drafting is None:
            return run
        conditions = Conditions(others_cores=others_cores)
        return replace(run, doubts=("busy-machine",), conditions=conditions)

    return disturb


def test_a_known_load_widens_intervals_and_a_large_gain_is_still_found() -> None:
    quiet, busy, one_sided = (
        _block(change) for change in (lambda run: run, _beside(0.7), _beside(0.7, drafting_alone=True))
    )
    assert [_judgement(bench).verdict for bench in (quiet, busy)] == [SpeedVerdict.FASTER] * 2
    judged = _judgement(one_sided)
    assert (judged.verdict, judged.missing) == (SpeedVerdict.UNDECIDED, (Missing.QUIET,))
    narrow, wide = (
        arm.gain.ratio.relative_half_width
        for arm in (arms.group(quiet)[1], arms.group(busy)[1])
        if arm.gain is not None
    )
    assert narrow < wide
    assert "widened" in review.warnings(busy)
    assert "widened" not in review.warnings(quiet)


def test_runs_of_one_load_are_told_from_those_of_three() -> None:
    def load(*, loads: int) -> Callable[[RunResult], RunResult]:
        return lambda run: replace(run, load=run.repeat % loads + 10 * (run.spec.drafting is not None))

    two, three = _block(load(loads=2)), _block(load(loads=3))
    gap, known = arms.group(two)[1].gain, arms.group(three)[1].gain
    open_, found = arms.group(two)[1].judgement, arms.group(three)[1].judgement
    assert (gap.gap, gap.ratio.assumed_spread) == (stats.Gap.NOT_INTERLEAVED, stats.ASSUMED_SPREAD)
    assert (open_.verdict, open_.missing) == (SpeedVerdict.ESTIMATE, (Missing.LOADS,))
    assert (known.gap, found.verdict, found.loads) == (None, SpeedVerdict.FASTER, 3)
    assert "drafting γ=3" in review.warnings(two)["not-interleaved"]
    assert "not-interleaved" not in review.warnings(three)


def test_older_results_of_a_server_are_one_load_and_those_of_programs_are_many() -> None:
    bench = _block(lambda run: run)
    assert arms.group(bench)[1].gain.gap is None
    server = replace(bench, meta=replace(bench.meta, engine="server"))
    assert arms.group(server)[1].gain.gap is stats.Gap.NOT_INTERLEAVED


def test_turns_of_a_conversation_are_one_unit() -> None:
    def turn(run: RunResult) -> RunResult:
        number = int(run.spec.prompt.id[1:])
        name = f"c{number // 2}" + ("#2" if number % 2 else "")
        return replace(run, spec=replace(run.spec, prompt=replace(run.spec.prompt, id=name)))

    drafting = arms.group(_block(turn))[1]
    assert (drafting.gain.components.prompts, drafting.gain.cells) == (4, 24)


def test_answers_of_very_unequal_length_are_warned_of() -> None:
    def shorten(run: RunResult) -> RunResult:
        short = run.spec.prompt.id == "p3"
        return replace(run, sample=replace(run.sample, gen_tokens=4, gen_s=4 / 50)) if short else run

    assert "unequal-lengths" in review.warnings(_block(shorten))
    assert "unequal-lengths" not in review.warnings(_block(lambda run: run))
    drafting = arms.group(_block(shorten))[1]
    assert drafting.work_gain == pytest.approx(1.5, rel=0.02)


def test_baselines_and_reruns_are_found() -> None:
    other = values.run(Role.DRAFTING, draft=3)
    other = replace(other, spec=replace(other.spec, threads=1))
    bench = values.bench(values.run(), other)
    *_, arm = arms.group(bench)
    assert (arm.baseline, arm.gain) == (None, None)
    assert arm.rate is not None
    disturbed = replace(values.run(tps=20.0), doubts=("busy-machine",))
    (arm,) = arms.group(values.bench(disturbed, replace(values.run(tps=50.0), rerun=1)))
    assert arm.rates == {("p1", 0): pytest.approx(50.0)}


def test_layers_are_what_the_first_run_that_tells_says() -> None:
    silent = values.run()
    silent = replace(silent, sample=replace(silent.sample, target=None))
    bench = values.bench(silent, values.run(repeat=1))
    gpu = replace(bench, meta=replace(bench.meta, build=replace(bench.meta.build, backend="cuda")))
    for stored, total in ((bench, None), (gpu, 7)):  # of nothing on a machine without a GPU there is no total
        (arm,) = arms.group(stored)
        assert arm.layers == LayerCounts(offloaded=0, total=total)


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
    assert told["p_min"].isna().tolist() == [True, False, True, True]
    shown = overview(bench)
    assert "| target.gguf + ngram-mod " in shown
    assert "drafting γ=16, drafting ngram-simple γ=16, drafting ngram-mod γ=16" in shown
    assert len(comparing.compare(bench, bench).rows) == 4
