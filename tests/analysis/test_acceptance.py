from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from interval_paths import categories

from ggufspec.analysis import acceptance, arms, differing_gains, rates, review
from ggufspec.analysis.acceptance import Acceptance
from ggufspec.analysis.arm import Arm
from ggufspec.domain import MethodCounts, Program, Role, Round, RunResult, Sample, Status
from ggufspec.report import frames
from ggufspec.report.text.overview import overview
from ggufspec.results import ResultSet
from tests.support import values

# four rounds of three drafts: 3, 2, 0 and 3 of them accepted, and four tokens of the target's own
RUN = Sample(
    status=Status.OK,
    program=Program.SIMPLE,
    gen_tokens=12,
    n_drafted=12,
    n_accepted=8,
    n_rounds=4,
    accepted_at=(3, 3, 2),
)
ROUNDS = (Round(3, 3), Round(3, 2), Round(3, 0), Round(3, 3))
TRACED = replace(RUN, accepted_at=None, n_rounds=None, rounds=ROUNDS)
# one round of two drafts, both accepted, and one without any
SHORT = Sample(status=Status.OK, gen_tokens=4, n_drafted=2, n_accepted=2, n_rounds=2, accepted_at=(1, 1))
PLAIN = Sample(status=Status.OK, program=Program.PLAIN, gen_tokens=31)
IDLE = Sample(status=Status.DRAFTING_INACTIVE, gen_tokens=32, n_drafted=0, n_accepted=0, n_rounds=31)


@pytest.mark.parametrize("run", [RUN, TRACED])
def test_a_run_by_hand(run: Sample) -> None:
    assert acceptance.of([run]) == Acceptance(
        n_drafted=12,
        n_accepted=8,
        n_rounds=4,
        n_drafts=4,
        accept_rate=8 / 12,
        mean_accepted_length=3.0,  # 12 tokens in 4 rounds
        tokens_per_draft=3.0,
        coverage=8 / 12,
        by_position=(3 / 4, 3 / 4, 2 / 4),
        conditional=(3 / 4, 1.0, 2 / 3),
    )


def test_counts_are_added_before_they_are_divided() -> None:
    both = acceptance.of([RUN, SHORT])
    assert both == Acceptance(
        n_drafted=14,
        n_accepted=10,
        n_rounds=6,
        n_drafts=6,
        accept_rate=10 / 14,  # not the mean of 8/12 and 2/2
        mean_accepted_length=1 + 10 / 6,
        tokens_per_draft=1 + 10 / 6,
        coverage=10 / 16,
        by_position=(4 / 6, 4 / 6, 2 / 6),
        conditional=(4 / 6, 1.0, 2 / 4),
    )


def test_shares_by_position_are_of_all_drafts() -> None:
    found = acceptance.of([RUN, SHORT, TRACED])
    assert found.mean_accepted_length == pytest.approx(1 + sum(found.by_position))
    found = acceptance.of([TRACED])
    product = 1.0
    for share, conditional in zip(found.by_position, found.conditional, strict=True):
        product *= conditional
        assert share == pytest.approx(product)
    run = replace(RUN, n_drafted=20, n_accepted=3, gen_tokens=8, n_rounds=5, accepted_at=(2, 1, 0, 0))
    found = acceptance.of([run])
    assert found.by_position == (2 / 5, 1 / 5, 0.0, 0.0)
    assert found.conditional == (2 / 5, 1 / 2, 0.0)
    run = replace(RUN, n_accepted=0, gen_tokens=4, accepted_at=(0, 0, 0))
    found = acceptance.of([run])
    assert (found.accept_rate, found.mean_accepted_length, found.coverage) == (0.0, 1.0, 0.0)
    assert (found.by_position, found.conditional) == ((0.0, 0.0, 0.0), (0.0,))


@pytest.mark.parametrize(
    ("silent", "absent"),
    [
        (replace(RUN, accepted_at=None), {"by_position", "conditional"}),
        (
            replace(RUN, n_rounds=None),
            {
                *("n_rounds", "n_drafts", "mean_accepted_length"),
                *("tokens_per_draft", "by_position", "conditional"),
            },
        ),
        (replace(RUN, gen_tokens=None), {"coverage"}),
    ],
)
def test_what_one_run_does_not_tell_is_absent_in_all(silent: Sample, absent: set[str]) -> None:
    found = acceptance.of([SHORT, silent])
    assert {name for name, value in vars(found).items() if value is None} == {*absent, "by_method"}
    assert found.accept_rate == 10 / 14


def test_the_methods_of_a_chain_are_added_each() -> None:
    counts = (MethodCounts("ngram-mod", 2, 9, 6), MethodCounts("draft-mtp", 8, 24, 12))
    more = (MethodCounts("draft-mtp", 1, 3, 1),)
    found = acceptance.of([replace(RUN, by_method=counts), replace(SHORT, by_method=more)])
    assert found.by_method == (MethodCounts("ngram-mod", 2, 9, 6), MethodCounts("draft-mtp", 9, 27, 13))
    found = acceptance.of([replace(RUN, by_method=counts), SHORT])
    assert found.by_method is None


def test_plain_runs_are_left_out_and_idle_rounds_are_not() -> None:
    assert acceptance.of([RUN, PLAIN]) == acceptance.of([RUN])
    found = acceptance.of([RUN, IDLE])
    assert (found.n_rounds, found.mean_accepted_length) == (35, 1 + 8 / 35)
    assert found.by_position == (3 / 35, 3 / 35, 2 / 35)


@pytest.mark.parametrize("runs", [[], [PLAIN], [IDLE], [PLAIN, IDLE]])
def test_nothing_drafted_is_nothing_to_accept(runs: list[Sample]) -> None:
    assert acceptance.of(runs) is None


def test_rounds_without_a_draft_are_rounds_but_no_drafts() -> None:
    rounds = (Round(4, 4), Round(1, 1), Round(0, 0), Round(3, 0))
    run = Sample(status=Status.OK, gen_tokens=9, n_drafted=8, n_accepted=5, rounds=rounds)
    assert acceptance.accepted_at_of(run) == (2, 1, 1, 1)
    found = acceptance.of([run])
    assert found.n_rounds == 4
    # some servers of 2025 evaluate the target alone after every draft
    every_other = tuple(each for one in ROUNDS for each in (one, Round(0, 0)))
    found, without = (acceptance.of([replace(TRACED, rounds=rounds)]) for rounds in (every_other, ROUNDS))
    assert (found.n_rounds, found.n_drafts, found.mean_accepted_length) == (8, 4, 2.0)
    assert (found.by_position, found.conditional) == (without.by_position, without.conditional)
    idle = replace(TRACED, rounds=(*ROUNDS, Round(0, 0), Round(0, 0)))
    counts = acceptance.of([idle])
    assert counts.mean_accepted_length == pytest.approx(1 + 8 / 6)
    assert counts.tokens_per_draft == pytest.approx(1 + 8 / 4)


def test_tokens_per_round_have_an_interval_below_the_draft_size_and_one() -> None:
    """Nearly everything is accepted: a symmetric interval would end above 5 tokens."""
    samples = {
        name: [replace(RUN, n_drafted=160, n_accepted=accepted, n_rounds=40, rounds=None)]
        for name, accepted in {"a": 160, "b": 160, "c": 158, "d": 130}.items()
    }
    known, unknown = (acceptance.intervals(samples, draft_size=size) for size in (4, None))
    bounded, symmetric = known.mean_accepted_length, unknown.mean_accepted_length
    assert bounded.value == pytest.approx(symmetric.value)
    assert None not in (bounded.lo, bounded.hi, symmetric.lo, symmetric.hi)
    assert bounded.lo < symmetric.lo
    assert bounded.hi < 5 < symmetric.hi


def test_repeats_of_a_prompt_do_not_narrow_the_interval_of_acceptance() -> None:
    few = {"a": [RUN], "b": [SHORT], "c": [replace(RUN, n_accepted=4)]}
    once = acceptance.intervals(few)
    often = acceptance.intervals({prompt: samples * 9 for prompt, samples in few.items()}, repeats=9)
    assert once.accept_rate == often.accept_rate
    assert once.accept_rate.value == pytest.approx(14 / 26)
    assert 0 < once.accept_rate.lo < 0.1 < 0.9 < once.accept_rate.hi < 1  # three prompts tell little
    assert acceptance.intervals({"a": [PLAIN]}) is None
    alone = acceptance.intervals({"a": [RUN]})
    assert alone.accept_rate.lo is None


# Whether the answer depends on the text: of categories, of files (`-f`), of prompts


NOISE = 0.01  # nats of scatter between repeats


def _bench(gains: Mapping[str, float], categories: Mapping[str, str | None], repeats: int = 3) -> ResultSet:
    """A bench of an arm that drafts, with a speed-up for each prompt and the categories of prompts."""
    runs: list[RunResult] = []
    for repeat in range(repeats):
        for number, (prompt, gain) in enumerate(gains.items()):
            scatter = math.exp(NOISE * math.sin(1 + 2.1 * repeat + 1.7 * number))
            for draft, tps in ((None, 40.0), (3, 40.0 * gain * scatter)):
                role = Role.TARGET if draft is None else Role.DRAFTING
                run = values.run(role, prompt=prompt, repeat=repeat, tps=tps, draft=draft)
                text = replace(run.spec.prompt, category=categories.get(prompt))
                runs.append(replace(run, spec=replace(run.spec, prompt=text)))
    return values.bench(*runs)


def _drafting(bench: ResultSet) -> Arm:
    return next(arm for arm in arms.group(bench) if arm.spec.role is Role.DRAFTING)


def _arm(gains: Mapping[str, float], categories: Mapping[str, str | None], repeats: int = 3) -> Arm:
    return _drafting(_bench(gains, categories, repeats))


def test_categories_that_differ_are_named() -> None:
    gains = {"c1": 1.55, "c2": 1.55, "p1": 1.05, "p2": 1.05}
    arm = _arm(gains, {"c1": "code", "c2": "code", "p1": "prose", "p2": "prose"})
    found = differing_gains(arm)
    assert [gain.name for gain in found] == ["code", "prose"]
    assert [gain.ratio for gain in found] == pytest.approx([1.55, 1.05], rel=0.02)
    found = differing_gains(_arm({"code.txt": 1.55, "prose.txt": 1.05}, {}))
    assert [gain.name for gain in found] == ["code.txt", "prose.txt"]
    gains = {"c1": 1.5, "c2": 1.5, "s1": 1.4, "mine.txt": 1.0}
    found = differing_gains(_arm(gains, {"c1": "code", "c2": "code", "s1": "story"}))
    assert [gain.name for gain in found] == ["code", "story", "mine.txt"]
    found = differing_gains(_arm({"a": 1.5, "b": 1.0}, {"a": "code", "b": "code"}))
    assert [gain.name for gain in found] == ["a", "b"]


@pytest.mark.parametrize(
    ("gains", "repeats"),
    [
        ({"a": 1.50, "b": 1.45}, 3),  # less than a tenth: it changes no choice
        ({"a": 1.5}, 3),  # one text
        ({"a": 1.5, "b": 1.0}, 1),  # repeats that would show how much scatters are missing
    ],
)
def test_no_difference_is_claimed_without_one(gains: dict[str, float], repeats: int) -> None:
    assert differing_gains(_arm(gains, {}, repeats)) == ()


def test_differences_that_repeats_have_too_are_none() -> None:
    """Each text is the faster one in some repeat."""
    gains = ((1.6, 1.0), (1.0, 1.5), (1.6, 1.2))
    runs = values.grid({None: 40.0, 3: lambda number, repeat: 40.0 * gains[repeat][number]}, prompts=2)
    assert differing_gains(_drafting(values.bench(*runs))) == ()


def test_a_sentence_names_the_files_that_differ() -> None:
    said = overview(_bench({"code.txt": 1.55, "prose.txt": 1.05}, {}))
    assert re.search(r"The answer depends on the text: code\.txt 1\.5\d×, prose\.txt 1\.0\d×\.", said)


@pytest.mark.parametrize(
    ("gains", "said"),
    [
        ({"code": 1.9, "edits": 1.7, "prose": 0.8}, "pays on code (1.90×) and edits (1.70×), not on prose"),
        ({"code": 0.9, "prose": 0.8}, None),  # the same of both
        ({"code": 1.9, "prose": 1.5}, None),
    ],
)
def test_categories_that_differ_are_a_policy(gains: dict[str, float], said: str | None) -> None:
    named = {f"{category}{number}": category for category in gains for number in range(3)}
    found = overview(_bench({prompt: gains[category] for prompt, category in named.items()}, named, 4))
    rounded = re.sub(r"(\d\.\d)\d×", r"\g<1>0×", found)
    assert ("By category, drafting" in found) == (said is not None)
    assert said is None or said in rounded


def test_texts_that_gain_alike_are_rarely_said_to_differ_on_a_noisy_machine() -> None:
    """Every tenth run takes 30 % longer. Clipped runs make repeats look more alike than they are."""
    outcomes = [categories.simulate(categories.NOISY, "sentence", seed) for seed in range(200)]
    assert sum(outcome.false_verdict is True for outcome in outcomes) <= 10


# The prompt's part of a drafting program's window, from the runs of each model alone


CPU, GPU = ("CPU",), ("CPU", "CUDA0")
TARGET_S, DRAFTER_S, TOKEN_S = 0.40, 0.05, 0.02  # the prompt's seconds, and those of the target's token


def _alone(role: Role, prompt_s: float, *, repeat: int = 0) -> RunResult:
    run = values.run(role, repeat=repeat, tps=1 / TOKEN_S)
    return replace(run, sample=replace(run.sample, prompt_tokens=1000, prompt_tps=1000 / prompt_s))


def _windowed(encoded_s: float, **facts: Any) -> RunResult:
    run = values.run(Role.DRAFTING, draft=3, tps=100)  # 100 tokens in 1 s
    sample = replace(run.sample, prompt_tokens=1000, prompt_tps=1000 / encoded_s, devices=GPU, **facts)
    return replace(run, sample=sample)


def _windowed_bench(*runs: RunResult) -> ResultSet:
    alone = (_alone(Role.TARGET, TARGET_S - 0.1), _alone(Role.TARGET, TARGET_S, repeat=1))
    return values.bench(
        *alone, _alone(Role.TARGET, TARGET_S + 5, repeat=2), _alone(Role.DRAFTER, DRAFTER_S), *runs
    )


def _inside(run: RunResult) -> float:
    return float(rates.prompt_in_window(_windowed_bench(run).runs)[-1])


def test_what_encoding_was_too_short_for_is_taken_off() -> None:
    bench = _windowed_bench(_windowed(0.01))
    inside = TARGET_S + DRAFTER_S + TOKEN_S - 0.01  # the median of the target's prompts counts
    assert rates.prompt_in_window(bench.runs).tolist() == pytest.approx([0, 0, 0, 0, inside])
    assert rates.decode_rates(bench.runs)[-1] == pytest.approx(100 / (1 - inside))
    drafting = arms.group(bench)[-1]
    assert drafting.rate.value == pytest.approx(100 / (1 - inside))
    row = frames.runs(bench).iloc[-1]
    assert row["prompt_in_gen_s"] == pytest.approx(inside)
    assert row["decode_tps"] == pytest.approx(100 / (1 - inside))
    assert row["gen_s"] == 1.0  # the program's own


@pytest.mark.parametrize(
    ("run", "inside"),
    [
        (_windowed(2.0), 0.0),  # all of it was in the window for encoding
        (replace(_windowed(0.01), engine="inprocess"), 0.0),  # waits for the device
        (replace(_windowed(0.01), engine="server"), 0.0),
        (_windowed(0.01, program=Program.SIMPLE), TARGET_S + DRAFTER_S - 0.01),  # no token by itself
    ],
)
def test_only_programs_that_do_not_wait_are_corrected(run: RunResult, inside: float) -> None:
    assert _inside(run) == pytest.approx(inside)


def test_on_the_processor_only_the_simple_program_is_late() -> None:
    tree = _windowed(0.01)
    assert _inside(replace(tree, sample=replace(tree.sample, devices=CPU))) == 0.0
    simple = replace(tree.sample, devices=CPU, program=Program.SIMPLE)
    assert _inside(replace(tree, sample=simple)) == pytest.approx(TARGET_S + DRAFTER_S - 0.01)


def test_without_a_model_alone_the_window_counts_and_is_marked() -> None:
    for bench in (
        values.bench(_alone(Role.TARGET, TARGET_S), _windowed(0.01)),
        values.bench(_alone(Role.DRAFTER, DRAFTER_S), _windowed(0.01)),
        values.bench(values.run(), _alone(Role.DRAFTER, DRAFTER_S), _windowed(0.01)),  # no prompt's rate
        _windowed_bench(replace(_windowed(0.01), sample=replace(_windowed(0.01).sample, prompt_tps=None))),
        _windowed_bench(
            replace(_windowed(0.01), sample=replace(_windowed(0.01).sample, gen_s=0.4))
        ),  # contradicts
    ):
        assert np.isnan(rates.prompt_in_window(bench.runs)[-1])
        assert rates.decode_rates(bench.runs)[-1] == bench.runs[-1].sample.decode_tps
        assert f"(1 of {len(bench.runs)} runs)" in review.warnings(bench)["prompt-in-window"]
    assert "prompt-in-window" not in review.warnings(_windowed_bench(_windowed(0.01)))


def test_a_drafter_alone_has_the_key_of_the_arm_that_a_bench_measures() -> None:
    assert values.spec(Role.DRAFTING, draft=3).drafter_alone.key == values.spec(Role.DRAFTER).key
