"""Where the time of a round goes, and what would pay most: from figures that are known."""

from __future__ import annotations

import shutil
from dataclasses import replace

import pytest

from ggufspec.analysis import Part, arms, breakdown
from ggufspec.analysis.breakdown import Improvement
from ggufspec.domain import Role, RunResult
from ggufspec.report.html import sections
from ggufspec.report.text import reasons
from tests.support import shell, swept, values


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
