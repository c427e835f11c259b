"""Winners of a tuning: selected by some runs, confirmed by others; edges, and choices by category."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from ggufspec import tuning
from ggufspec.domain import Difference, Launch, Prompt, Role, RunResult, RunSpec, TextAudit, TextVerdict
from ggufspec.report.text import configuration, tuned as tuned_report
from ggufspec.results import ResultSet
from ggufspec.tuning import prospects, verdicts
from ggufspec.tuning.values import Selection, Tuned
from tests.support import tunings, values

TARGET_TPS = 50.0
DIVERGENT = {"difference": Difference(at_char=3, at_token=1, verdict=TextVerdict.DIVERGENCE)}
AUDITED = {
    "difference": Difference(at_char=3, at_token=1, verdict=TextVerdict.NEAR_TIE),
    "audit": TextAudit(tokens=40, near_ties=1, divergent=2, first_divergent=9),
}


def _run(role: Role, prompt: Prompt, repeat: int, tps: float, draft: int | None = None) -> RunResult:
    run = values.run(role, prompt=prompt.id, repeat=repeat, tps=tps, draft=draft)
    return replace(run, spec=replace(run.spec, prompt=prompt))


def _bench(
    gains: Mapping[int, Mapping[Prompt, float]],
    *,
    repeats: int = 3,
    noise: float = 0.001,
    seed: int = 1,
    differing: Sequence[int] = (),
    failure: Mapping[str, Any] = DIVERGENT,
) -> ResultSet:
    """Return a bench of the target alone and draft sizes; ``gains`` is γ -> prompt -> speed-up."""
    random = np.random.default_rng(seed)
    prompts = [*next(iter(gains.values()))]

    def runs() -> Iterator[RunResult]:
        for repeat in range(repeats):
            for prompt in prompts:
                for size, gain in {0: dict.fromkeys(prompts, 1.0), **gains}.items():
                    tps = TARGET_TPS * gain[prompt] * math.exp(random.normal(0, noise))
                    if size == 0:
                        yield _run(Role.TARGET, prompt, repeat, tps)
                        continue
                    run = _run(Role.DRAFTING, prompt, repeat, tps, size)
                    if size in differing:
                        run = replace(run, text_identical=False, **failure)
                    yield run

    return values.bench(*runs())


def _prompts(number: int, categories: Sequence[str] = ("code", "prose")) -> list[Prompt]:
    return [
        Prompt(id=f"p{place}", text="x", category=categories[place % len(categories)])
        for place in range(number)
    ]


def _gains(prompts: Sequence[Prompt], **by_size: float) -> dict[int, dict[Prompt, float]]:
    return {int(name[1:]): dict.fromkeys(prompts, gain) for name, gain in by_size.items()}


def _judged(selection: Selection, confirmed: ResultSet) -> Tuned:
    return tuning.judge_finalists(tunings.outlook(), selection, confirmed, measuring_s=1.0)


def _size(spec: RunSpec | None) -> int | None:
    return None if spec is None or spec.drafting is None else spec.drafting.n_max


def test_the_winner_is_the_smallest_draft_that_the_runs_do_not_tell_apart_from_the_fastest() -> None:
    prompts = _prompts(4)
    gains = _gains(prompts, g2=1.3, g9=1.55, g12=1.605, g15=1.6)
    gains[15] |= {prompt: 1.67 if place % 2 else 1.55 for place, prompt in enumerate(prompts)}
    selection = tuning.select_arms(_bench(gains))
    assert [_size(spec) for spec in selection.alike] == [12, 15]
    assert (_size(selection.winner), _size(selection.runner_up)) == (12, 15)
    text = " ".join(tuned_report.verdict(_judged(selection, _bench(gains))))
    assert "are alike here; the smallest draft is recommended." in text


def test_finalists_race_where_chance_may_choose_one_that_is_much_slower() -> None:
    gains = _gains(_prompts(8), g2=1.2, g4=1.5, g8=1.52)
    assert tuning.select_arms(_bench(gains, noise=0.01)).racing == ()
    noisy = tuning.select_arms(_bench(gains, noise=0.15))
    assert {_size(spec) for spec in noisy.racing} == {4, 8}  # 2 is slower by more than chance
    assert tuning.select_arms(_bench(gains, noise=0.15, repeats=1)).racing == ()  # one load shows no spread
    apart = _gains(_prompts(8), g2=1.2, g4=1.5, g8=2.0)
    assert tuning.select_arms(_bench(apart, noise=0.15)).racing == ()


def test_a_finalist_that_left_the_race_cannot_win_and_hides_no_load_of_the_others() -> None:
    prompts = _prompts(4)
    first = _bench(_gains(prompts, g4=1.6, g8=1.5, g12=1.4, g16=1.2)).current
    later = _bench(_gains(prompts, g8=1.5, g12=1.7), repeats=6).current
    stored = values.bench(*first, *(run for run in later if run.repeat >= 3))
    assert _size(tuning.select_arms(stored).fastest) == 4  # by the three loads that all have
    of_both = [tunings.arm(size) for size in (8, 12)]
    selection = tuning.select_arms(stored, of_both)
    assert (_size(selection.fastest), _size(selection.runner_up)) == (12, 8)
    assert (selection.results, selection.edge) == (stored, None)


def test_the_verdict_has_the_figures_of_the_confirmation_alone() -> None:
    prompts = _prompts(4)
    selection = tuning.select_arms(_bench(_gains(prompts, g4=1.9, g8=1.5)))
    tuned = _judged(selection, _bench(_gains(prompts, g4=1.6, g8=1.5)))
    assert tuned.overall.judgement.ratio.value == pytest.approx(1.6, rel=0.01)
    assert "1.9" not in " ".join(tuned_report.verdict(tuned))


@pytest.mark.parametrize(("confirmed_gain", "chosen"), [(1.605, 4), (1.9, 8)])
def test_the_runner_up_wins_only_if_new_runs_show_it_is_faster(confirmed_gain: float, chosen: int) -> None:
    prompts = _prompts(6)
    selection = tuning.select_arms(_bench(_gains(prompts, g4=1.7, g8=1.5)))
    assert _size(selection.winner) == 4
    tuned = _judged(selection, _bench(_gains(prompts, g4=1.6, g8=confirmed_gain)))
    assert tuned.overall.spec.draft_size == chosen


def test_what_was_fast_by_luck_is_not_recommended() -> None:
    prompts = _prompts(4)
    selection = tuning.select_arms(_bench(_gains(prompts, g4=1.2)))
    tuned = _judged(selection, _bench(_gains(prompts, g4=0.95)))
    assert not tuned.overall.drafts


@pytest.mark.parametrize("failure", [DIVERGENT, AUDITED], ids=["first difference", "complete text"])
def test_text_that_is_not_the_target_s_own_cannot_win(failure: Mapping[str, Any]) -> None:
    prompts = _prompts(4)
    gains = _gains(prompts, g4=1.5, g8=2.0)
    selection = tuning.select_arms(_bench(gains, differing=(8,), failure=failure))
    assert _size(selection.winner) == 4
    assert [_size(spec) for spec in selection.unlike_target] == [8]
    tuned = _judged(selection, _bench(gains))
    assert tuned.overall.spec.draft_size == 4
    assert "text differs from the target's own" in " ".join(tuned_report.verdict(tuned))
    unconfirmed = tuning.select_arms(_bench(gains))
    assert _size(unconfirmed.winner) == 8
    assert _judged(unconfirmed, _bench(gains, differing=(8,))).overall.spec.draft_size == 4
    assert not _judged(unconfirmed, _bench(gains, differing=(4, 8))).overall.drafts


@pytest.mark.parametrize(("gain", "edge"), [(1.8, 16), (1.2, None)])
def test_the_best_at_the_edge_of_the_search_is_said(gain: float, edge: int | None) -> None:
    prompts = _prompts(4)
    gains = _gains(prompts, g4=1.3, g12=1.5, g16=gain)
    selection = tuning.select_arms(_bench(gains))
    assert selection.edge == edge
    text = " ".join(tuned_report.verdict(_judged(selection, _bench(gains))))
    assert ("γ = 16 is the largest draft size that was measured" in text) is (edge is not None)
    assert ("--draft 16-32" in text) is (edge is not None)


def test_beyond_the_edge_come_the_next_larger_sizes_of_the_same_kind() -> None:
    arms = [replace(values.spec(Role.DRAFTING, draft=size), n_predict=9) for size in (4, 16, 20, 24, 32)]
    assert [_size(arm) for arm in prospects.next_larger(arms[1], arms)] == [20, 24]
    assert prospects.next_larger(arms[4], arms) == []
    other = [replace(arm, threads=7) for arm in arms]
    assert prospects.next_larger(arms[1], other) == []


def test_a_category_has_a_choice_of_its_own_only_where_its_prompts_show_it() -> None:
    prompts = _prompts(12)
    gains = _gains(prompts, g4=1.5, g12=1.4)
    for prompt in prompts:
        if prompt.category == "code":
            gains[12][prompt] = 2.2
            gains[4][prompt] = 1.9
        else:
            gains[12][prompt] = 0.9
    selection = tuning.select_arms(_bench(gains, noise=0.02))
    assert {name: _size(spec) for name, spec in selection.by_category.items()} in ({"code": 12}, {"prose": 4})
    tuned = _judged(selection, _bench(gains, noise=0.02, seed=2))
    sizes = {name: choice.spec.draft_size for name, choice in tuned.by_category.items()}
    assert sizes == {"code": 12, "prose": 4}
    words = " ".join(tuned_report.verdict(tuned))
    assert re.search(r"By category, drafting pays on code \(2\.\d\d×.* and prose \(1\.\d\d×", words)
    assert words.count("By category") == 1


@pytest.mark.parametrize(
    ("switches", "how"),
    [
        (True, 'send `"speculative.n_max": 0` with the other requests'),
        (False, "serve the target alone for the other requests"),
        (None, ""),
    ],
)
def test_a_policy_says_where_drafting_pays_and_how_to_follow_it(switches: bool | None, how: str) -> None:
    prompts = _prompts(12, categories=("code", "prose", "list"))
    gains = {
        4: {prompt: {"code": 1.9, "prose": 0.8, "list": 1.0}[prompt.category or ""] for prompt in prompts}
    }
    for place, prompt in enumerate(prompts):
        gains[4][prompt] *= 1.3 if place % 6 == 2 else 0.8 if prompt.category == "list" else 1.0
    bench = _bench(gains, noise=0.02)
    tuned = _judged(tuning.select_arms(bench), bench)
    tuned = replace(tuned, launch=Launch(argv=("llama-server",), switches=switches))
    words = " ".join(tuned_report.verdict(tuned))
    stated = configuration.sentences_of(verdicts.configuration_of(tuned))
    for said in (words, " ".join(stated)):
        assert re.search(
            r"By category, drafting pays on code \(1\.\d\d×\), not on prose \(0\.8\d×\); it is undecided on "
            r"list \(\d\.\d\d×\)\.",
            said,
        )
        assert how in said
        assert ("To follow this" in said) == bool(how)


def test_one_prompt_decides_nothing_for_its_category() -> None:
    prompts = _prompts(4, categories=("code", "list", "qa", "story"))
    gains = _gains(prompts, g4=1.5, g12=1.5)
    gains[12][prompts[0]] = 3.0
    gains[12][prompts[1]] = 0.5
    assert tuning.select_arms(_bench(gains)).by_category == {}


def test_categories_that_make_no_difference_are_rarely_said_to() -> None:
    """Twelve prompts of four categories, six arms whose gains vary by prompt: at most 5 % are errors."""
    random = np.random.default_rng(8)
    named = {f"p{place}": "abcd"[place % 4] for place in range(12)}

    def arm() -> dict[tuple[str, int], float]:
        return {(prompt, 0): math.exp(random.normal(0, 0.1)) for prompt in named}

    wrong = 0
    for _ in range(150):
        others = [arm() for _ in range(5)]
        wrong += bool(verdicts.categories_that_differ(arm(), others, named))
    assert wrong <= 15  # 7.5 expected; more than that in 1 % of such tests


def test_a_category_that_differs_is_found_by_its_prompts() -> None:
    random = np.random.default_rng(8)
    named = {f"p{place}": "abcd"[place % 4] for place in range(24)}
    leader = {(prompt, 0): math.exp(random.normal(0, 0.03)) for prompt in named}
    other = {
        (prompt, 0): math.exp(random.normal(0.3 if of == "b" else -0.1, 0.03)) for prompt, of in named.items()
    }
    assert verdicts.categories_that_differ(leader, [other], named) == {"b"}


def test_confirmed_figures_are_not_too_high_and_their_intervals_hold() -> None:
    """Eight alike configurations, runs that differ by 6 %: the fastest of them is always a lucky one."""
    prompts = _prompts(4)
    truth = _gains(prompts, **{f"g{size}": 1.5 for size in range(1, 9)})
    selected, confirmed, held = [], [], 0
    for seed in range(10):
        bench = _bench(truth, repeats=2, noise=0.06, seed=seed)
        selection = tuning.select_arms(bench)
        assert selection.fastest is not None
        pair = [spec for spec in (selection.winner, selection.runner_up) if spec is not None]
        again = {size: truth[size] for size in map(_size, pair) if size is not None}
        tuned = _judged(selection, _bench(again, noise=0.06, seed=1000 + seed))
        selected.append(_mean_gain(bench, _size(selection.fastest)))
        ratio = tuned.overall.judgement.ratio
        confirmed.append(ratio.value)
        held += ratio.lo <= 1.5 <= ratio.hi
    assert np.mean(selected) > 1.5 * 1.015
    assert np.mean(confirmed) == pytest.approx(1.5, rel=0.012)
    assert held >= 8


def _mean_gain(bench: ResultSet, size: int | None) -> float:
    logs: dict[int | None, list[float]] = {}
    for run in bench.current:
        assert run.sample.decode_tps
        logs.setdefault(_size(run.spec), []).append(math.log(run.sample.decode_tps))
    return math.exp(float(np.mean(logs[size]) - np.mean(logs[None])))
