"""Whether the answer depends on the text: of categories, of files (`-f`), of prompts."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import replace

import pytest
from interval_paths import categories

from ggufspec.analysis import arms, differing_gains
from ggufspec.analysis.arm import Arm
from ggufspec.domain import Role, RunResult
from ggufspec.report.text.overview import overview
from ggufspec.results import ResultSet
from tests.support import values

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


def test_categories_that_differ_are_named_with_their_gains() -> None:
    gains = {"c1": 1.55, "c2": 1.55, "p1": 1.05, "p2": 1.05}
    arm = _arm(gains, {"c1": "code", "c2": "code", "p1": "prose", "p2": "prose"})
    found = differing_gains(arm)
    assert [gain.name for gain in found] == ["code", "prose"]
    assert [gain.ratio for gain in found] == pytest.approx([1.55, 1.05], rel=0.02)


def test_each_file_is_a_category_of_its_own_name() -> None:
    found = differing_gains(_arm({"code.txt": 1.55, "prose.txt": 1.05}, {}))
    assert [gain.name for gain in found] == ["code.txt", "prose.txt"]


def test_files_stand_beside_the_categories_of_a_suite() -> None:
    gains = {"c1": 1.5, "c2": 1.5, "s1": 1.4, "mine.txt": 1.0}
    found = differing_gains(_arm(gains, {"c1": "code", "c2": "code", "s1": "story"}))
    assert [gain.name for gain in found] == ["code", "story", "mine.txt"]


def test_prompts_of_a_single_category_are_compared_themselves() -> None:
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
    runs = []
    for repeat, (first, second) in enumerate([(1.6, 1.0), (1.0, 1.5), (1.6, 1.2)]):
        for prompt, gain in (("a", first), ("b", second)):
            runs += [
                values.run(Role.TARGET, prompt=prompt, repeat=repeat, tps=40.0),
                values.run(Role.DRAFTING, prompt=prompt, repeat=repeat, tps=40.0 * gain, draft=3),
            ]
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
def test_what_was_found_of_categories_is_a_policy_where_it_differs(
    gains: dict[str, float], said: str | None
) -> None:
    named = {f"{category}{number}": category for category in gains for number in range(3)}
    found = overview(_bench({prompt: gains[category] for prompt, category in named.items()}, named, 4))
    rounded = re.sub(r"(\d\.\d)\d×", r"\g<1>0×", found)
    assert ("By category, drafting" in found) == (said is not None)
    assert said is None or said in rounded


def test_texts_that_gain_alike_are_rarely_said_to_differ_on_a_noisy_machine() -> None:
    """Every tenth run takes 30 % longer. Clipped runs make repeats look more alike than they are."""
    outcomes = [categories.simulate(categories.NOISY, "sentence", seed) for seed in range(200)]
    assert sum(outcome.false_verdict is True for outcome in outcomes) <= 10
