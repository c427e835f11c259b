from __future__ import annotations

from dataclasses import replace

import pytest

from ggufspec.analysis import acceptance
from ggufspec.analysis.acceptance import Acceptance
from ggufspec.domain import MethodCounts, Program, Round, Sample, Status

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


def test_the_mean_length_is_what_the_positions_add_up_to() -> None:
    found = acceptance.of([RUN, SHORT, TRACED])
    assert found.mean_accepted_length == pytest.approx(1 + sum(found.by_position))


def test_conditional_shares_multiply_to_the_unconditional_ones() -> None:
    found = acceptance.of([TRACED])
    product = 1.0
    for share, conditional in zip(found.by_position, found.conditional, strict=True):
        product *= conditional
        assert share == pytest.approx(product)


def test_a_draft_that_nobody_got_through_has_no_conditional_share_behind_it() -> None:
    run = replace(RUN, n_drafted=20, n_accepted=3, gen_tokens=8, n_rounds=5, accepted_at=(2, 1, 0, 0))
    found = acceptance.of([run])
    assert found.by_position == (2 / 5, 1 / 5, 0.0, 0.0)
    assert found.conditional == (2 / 5, 1 / 2, 0.0)


def test_all_drafts_in_vain() -> None:
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


def test_positions_follow_from_rounds_of_different_lengths() -> None:
    rounds = (Round(4, 4), Round(1, 1), Round(0, 0), Round(3, 0))
    run = Sample(status=Status.OK, gen_tokens=9, n_drafted=8, n_accepted=5, rounds=rounds)
    assert acceptance.accepted_at_of(run) == (2, 1, 1, 1)
    found = acceptance.of([run])
    assert found.n_rounds == 4


def test_rounds_without_a_draft_are_rounds_but_no_drafts() -> None:
    """Some servers of 2025 evaluate the target alone after every draft."""
    every_other = tuple(each for one in ROUNDS for each in (one, Round(0, 0)))
    found, without = (acceptance.of([replace(TRACED, rounds=rounds)]) for rounds in (every_other, ROUNDS))
    assert (found.n_rounds, found.n_drafts, found.mean_accepted_length) == (8, 4, 2.0)
    assert (found.by_position, found.conditional) == (without.by_position, without.conditional)


def test_tokens_per_round_and_per_draft_differ_where_rounds_have_no_draft() -> None:
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
