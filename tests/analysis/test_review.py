from __future__ import annotations

import shutil
from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from ggufspec.analysis import Part, arms, breakdown, review
from ggufspec.analysis.breakdown import Improvement
from ggufspec.domain import Difference, Role, RunResult, Status, TextAudit, TextVerdict
from ggufspec.report.html import sections
from ggufspec.report.text import reasons
from ggufspec.results import ResultSet
from tests.support import shell, swept, values

START = datetime.fromisoformat("2026-01-02T03:04:05+00:00")


def _bench(change_per_minute: float = 0.0) -> ResultSet:
    """One prompt's baseline and its anchors, a minute apart."""
    runs = []
    for minute in range(12):
        wobble = 1 + 0.001 * (minute * 5 % 3)
        tps = 50.0 * (1 + change_per_minute) ** minute * wobble
        started_at = (START + timedelta(minutes=minute)).isoformat()
        run = values.run(tps=tps, repeat=minute // 2)
        runs.append(replace(run, anchor=minute % 2 == 0, started_at=started_at))
    return values.bench(*runs)


def test_a_steady_machine_does_not_drift() -> None:
    bench = _bench()
    moved = review.drift(bench)
    assert abs(moved.value) < 0.005
    assert "drift" not in review.warnings(bench)


@pytest.mark.parametrize("change", [-0.01, 0.01])
def test_a_machine_that_heats_up_is_noticed(change: float) -> None:
    bench = _bench(change)
    moved = review.drift(bench)
    assert moved.value == pytest.approx((1 + change) ** 11 - 1, abs=0.01)
    assert "from start to end" in review.warnings(bench)["drift"]


def test_without_anchors_nobody_knows() -> None:
    assert review.drift(values.whole_bench()) is None


def test_failures_and_texts_are_counted() -> None:
    near = Difference(at_char=9, at_token=2, verdict=TextVerdict.NEAR_TIE)
    apart = Difference(at_char=5, at_token=None, verdict=TextVerdict.DIVERGENCE)
    drafting = values.run(Role.DRAFTING, draft=3)
    bench = values.bench(
        values.run(),
        values.run(repeat=1, status=Status.CRASHED),
        replace(drafting, text_identical=False, difference=apart),
        replace(drafting, repeat=1, text_identical=False, difference=near),
    )
    found = review.warnings(bench)
    assert found["runs-failed"].endswith("(1 of 4 runs)")
    assert found["text-differs"].endswith("(1 of 4 runs; p1 from character 5)")
    assert found["near-ties"].endswith("(1 of 4 runs; p1 from token 2)")


@pytest.mark.parametrize(
    ("difference", "audit", "cause"),
    [
        (Difference(at_char=5, at_token=1, unjudged="it was killed"), None, "it was killed"),
        (Difference(at_char=5, at_token=1), TextAudit(tokens=0, unjudged="no library"), "no library"),
        (Difference(at_char=5, at_token=1), None, "the bench ended before texts were audited"),
        (Difference(at_char=5, at_token=1), TextAudit(tokens=9), "did not find its own text again"),
    ],
)
def test_texts_not_judged_name_the_cause(difference: Difference, audit: TextAudit | None, cause: str) -> None:
    drafting = values.run(Role.DRAFTING, draft=3)
    unjudged = replace(drafting, text_identical=False, difference=difference, audit=audit)
    found = review.warnings(values.bench(values.run(), unjudged))
    assert cause in found["texts-not-judged"]
    assert "text-differs" not in found


def test_restless_and_outlying_runs_are_named() -> None:
    restless = values.grid({None: lambda i, r: 50 + 15 * ((i + r) % 2)}, prompts=4, repeats=6)
    assert "(target)" in review.warnings(values.bench(*restless))["unstable"]
    steady = values.grid(
        {None: lambda i, r: 50 + 0.1 * ((i + r) % 3) - 20 * (i == r == 2)}, prompts=4, repeats=6
    )
    found = review.warnings(values.bench(*steady))
    assert found["clipped"].endswith("(1 of 24 runs)")
    assert not {"unstable", "outliers"} & found.keys()


def test_far_runs_of_one_arm_alone_are_how_it_behaves_and_count() -> None:
    speeds = {
        None: lambda i, r: 50 + 0.1 * ((i + r) % 3),
        3: lambda i, r: 80 + 0.1 * ((2 * i + r) % 3) - 30 * (i == r + 1),
    }
    found = review.warnings(values.bench(*values.grid(speeds, repeats=6)))
    assert found["outliers"].endswith("(6 of 96 runs)")
    assert "clipped" not in found


@pytest.mark.parametrize(
    ("gains", "said"),
    [
        ({4: 1.2, 8: 1.4, 16: 1.6}, True),
        ({4: 1.2, 8: 1.6, 16: 1.5}, False),
        ({4: 1.2, 8: 1.4}, False),  # two draft sizes are no search
    ],
)
def test_the_best_draft_size_at_the_edge_of_a_search_is_named(gains: dict[int, float], said: bool) -> None:
    speeds = {None: 50.0, **{size: 50.0 * gain for size, gain in gains.items()}}
    found = review.warnings(values.bench(*values.grid(speeds, prompts=1)))
    assert ("best-at-edge" in found) is said
    assert not said or "drafting γ=16, next: --draft 16-32" in found["best-at-edge"]


@pytest.mark.parametrize(("repeats", "said"), [(1, True), (3, False)])
def test_a_bench_that_went_on_has_more_than_one_repeat(repeats: int, said: bool) -> None:
    runs = values.grid({None: 50.0, 3: 50.0}, prompts=1, repeats=repeats)
    bench = values.bench(*runs, doubts={"few-repeats": "one repeat shows little"})
    assert ("few-repeats" in review.warnings(bench)) == said


# Where the time of a round goes, and what would pay most: from figures that are known


def test_the_parts_of_a_round_and_their_bounds() -> None:
    """A round drafts 4 tokens and yields 2.75; 25 % of it is drafting, 65 % verification, 10 % the rest."""
    groups = arms.group(swept.swept())
    diagnosis = breakdown.diagnose(groups)
    target, of_round = diagnosis.target, diagnosis.drafting
    assert of_round.arm.draft_size == 4  # the fastest
    assert of_round.tokens == pytest.approx(2.75)
    shares = {part: ms / of_round.total_ms for part, ms in of_round.ms.items()}
    assert shares == pytest.approx({Part.DRAFTING: 0.25, Part.VERIFICATION: 0.65, Part.REST: 0.10})
    assert target.ms == pytest.approx({Part.EVALUATION: target.total_ms})
    assert diagnosis.batch == 5
    assert diagnosis.verify_ratio == pytest.approx(0.65 * of_round.total_ms / target.total_ms)
    factors = {gain.change: gain.factor for gain in diagnosis.gains}
    saved = 0.65 * of_round.total_ms - target.total_ms
    assert factors == pytest.approx(
        {
            Improvement.BETTER_DRAFTER: 5 / 2.75,
            Improvement.FASTER_DRAFTER: 1 / 0.75,
            Improvement.NO_REST: 1 / 0.9,
            **(
                {Improvement.CHEAPER_VERIFICATION: of_round.total_ms / (of_round.total_ms - saved)}
                if saved > 0
                else {}
            ),
        }
    )
    assert [gain.factor for gain in diagnosis.gains] == sorted(factors.values(), reverse=True)
    rate = of_round.arm.rate
    assert diagnosis.gains[0].tps == pytest.approx(rate.value * diagnosis.gains[0].factor)


def test_sentences_are_folded_between_words_where_the_terminal_is_narrow() -> None:
    stored = swept.swept()
    wide, narrow = reasons.why(stored, width=None), reasons.why(stored, width=80)
    assert max(map(len, wide.splitlines())) > 80
    assert max(map(len, narrow.splitlines())) <= 80
    assert narrow.split() == wide.split()


def _with_rounds(run: RunResult) -> RunResult:
    """A run of 25 rounds, each of which drafts 4 tokens, of which 3 are accepted."""
    rounds = 25 if run.spec.role is Role.DRAFTING else None
    return replace(run, sample=replace(run.sample, n_rounds=rounds))


def test_the_drafter_alone_stands_in_where_no_log_has_its_time() -> None:
    stored = values.bench(*map(_with_rounds, values.whole_bench().runs))
    diagnosis = breakdown.diagnose(arms.group(stored))
    of_round = diagnosis.drafting
    assert of_round.is_estimated
    assert of_round.tokens == pytest.approx(4)
    assert of_round.ms[Part.DRAFTING] == pytest.approx(
        1000 * 4 / 900
    )  # γ + 1 evaluations of a tree's drafter
    text = reasons.why(stored)
    assert "verification and rest" in text
    assert "The drafter's time is that of its runs alone, because the engine binary does not measure" in text


def test_sampling_of_the_target_alone_is_shown_where_it_is_measured() -> None:
    run = values.run(tps=40.0)
    sampled = replace(run, sample=replace(run.sample, sampling_s=0.1, gen_s=1.9))
    diagnosis = breakdown.diagnose(arms.group(values.bench(sampled)))
    assert diagnosis.target.ms == pytest.approx({Part.EVALUATION: 19.0, Part.SAMPLING: 1.0})
    assert diagnosis.drafting is None


def test_rounds_that_are_not_known_are_said_to_be_so() -> None:
    text = reasons.why(values.whole_bench())
    assert "target alone, target.gguf: " in text
    assert text.endswith(
        "No arm drafts, or its rounds are not known: `ggufspec bench --engine inprocess` measures them.\n"
    )
    assert reasons.why(values.bench()) == "Nothing was measured.\n"


@pytest.mark.parametrize("ascii_only", [True, False])
def test_a_waterfall_falls(ascii_only: bool) -> None:
    block = "#" if ascii_only else "█"
    lines = reasons.why(swept.swept(), ascii_only=ascii_only).splitlines()
    bars = [line[line.index("%") + 1 :] for line in lines if line.startswith("  ")]
    assert len(bars) == 4
    starts = [len(bar) - len(bar.lstrip()) for bar in bars]
    assert starts[1] == starts[0]
    assert starts[1] < starts[2] < starts[3]
    assert sum(bar.count(block) for bar in bars[1:]) == 30
    assert all(line.isascii() for line in lines if "%" in line and line.startswith("  ")) is ascii_only


def test_the_command_and_the_report_say_the_same() -> None:
    stored = swept.swept(name="mine")
    done = shell.here("why", "mine")
    assert (done.returncode, done.stderr) == (0, "")
    assert "Most of a round is verification.\n" in done.stdout
    assert "\nWhat would pay most: " in done.stdout
    assert ": a drafter whose tokens are all accepted, at most +81.8 % (" in done.stdout
    page = sections.html(stored)
    assert "<h2>Where the time goes</h2>" in page
    assert "<li>Most of a round is verification.</li>" in page
    shutil.rmtree(stored.folder)
    target_only = values.bench(values.run())
    assert "Where the time goes</h2>" not in sections.html(target_only)
