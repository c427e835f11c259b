"""Where texts part, and whether the target thinks both ways as good."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import ggufspec
from ggufspec.analysis import review, warnings
from ggufspec.analysis.warnings import MeasurementWarning
from ggufspec.domain import (
    Difference,
    Program,
    PromptAnswer,
    Role,
    RunResult,
    Sample,
    Status,
    TextAudit,
    TextVerdict,
    Traffic,
    TrafficSample,
)
from ggufspec.engines.server.serving import candidates
from ggufspec.llama.install import installs
from ggufspec.llama.install.installs import Install
from ggufspec.measure import audit
from tests.support import fake_server, fakes, shell, values
from tests.support.fake_server import Behaviour

YES, NO, MAYBE, UNHEARD_OF = 7, 8, 9, 99


def _sample(text: str, tokens: tuple[int, ...] | None = None) -> Sample:
    return Sample(status=Status.OK, text=text, tokens=tokens)


def _run(sample: Sample, role: Role, *, prompt: str = "p1") -> RunResult:
    run = values.run(role, prompt=prompt, draft=3 if role is Role.DRAFTING else None)
    return replace(run, sample=sample)


def _judge(runs: Sequence[RunResult], llama: Install) -> Iterator[RunResult]:
    return audit.judge_texts(runs, audit.InstallJudge(llama))


def _parted(
    target: Sample, drafting: Sample, llama: Install, *, prompt: str = "p1"
) -> tuple[RunResult, RunResult]:
    difference = audit.locate(drafting, target, llama, "target.gguf", n_predict=10)
    assert difference is not None
    own, drafted = _run(target, Role.TARGET, prompt=prompt), _run(drafting, Role.DRAFTING, prompt=prompt)
    return own, replace(drafted, difference=difference)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return fakes.install(tmp_path / "llama")


@pytest.fixture
def llama(folder: Path) -> Install:
    fake_server.program(folder / "llama-server")
    return installs.find_install(folder)


@pytest.mark.parametrize(
    ("drafting", "target", "at"),
    [("abc", "abc", None), ("abcd", "abc", None), ("ab", "abc", None), ("abx", "abc", 2), ("", "abc", None)],
)
def test_only_what_both_wrote_is_compared(drafting: str, target: str, at: int | None) -> None:
    assert audit.compare(drafting, target) == at


@pytest.mark.parametrize(
    ("drafting", "target", "expected"),
    [
        (_sample("a b", (1, 2)), _sample("a b", (1, 2)), None),
        (_sample("a b c", (1, 2, 3)), _sample("a b", (1, 2)), None),
        (
            _sample("a x", (1, 5)),
            _sample("a b", (1, 2)),
            Difference(at_char=2, at_token=1, target_token=2, drafting_token=5),
        ),
        (  # the same text in other tokens is another answer
            _sample("ab", (4,)),
            _sample("ab", (1, 2)),
            Difference(at_char=2, at_token=0, target_token=1, drafting_token=4),
        ),
        (_sample("a x"), _sample("a b", (1, 2)), Difference(at_char=2, at_token=None)),
    ],
)
def test_tokens_are_compared_where_both_know_them(
    drafting: Sample, target: Sample, expected: Difference | None, llama: Install
) -> None:
    assert audit.locate(drafting, target, llama, "target.gguf", n_predict=2) == expected


def _written(text: str, gen_tokens: int, program: Program, tokens: tuple[int, ...] | None = None) -> Sample:
    return replace(_sample(text, tokens), gen_tokens=gen_tokens, program=program)


@pytest.mark.parametrize(
    ("drafting", "target", "expected"),
    [
        # the target wrote all ten tokens, and drafting stopped after eight
        (_written("a b", 8, Program.TREE), _written("a b c", 9, Program.PLAIN), 3),
        # drafting goes on where the target stopped
        (_written("a b c", 11, Program.TREE), _written("a b", 6, Program.PLAIN), 3),
        # drafting was cut, and wrote more than it was asked for; or the target was cut before
        (_written("a b c", 13, Program.SIMPLE), _written("a b", 9, Program.PLAIN), None),
        (_written("a b", 10, Program.SERVER), _written("a b c", 9, Program.PLAIN), None),
        # line breaks at the end are not stored
        (_written("a b", 8, Program.TREE), _written("a b\n\n", 9, Program.PLAIN), None),
        (_written("a b", 8, Program.TREE), _written("a b", 7, Program.PLAIN), None),
    ],
)
def test_a_text_that_stopped_early_is_not_the_targets_own(
    drafting: Sample, target: Sample, expected: int | None, llama: Install
) -> None:
    difference = audit.locate(drafting, target, llama, "target.gguf", n_predict=10)
    assert difference == (None if expected is None else Difference(at_char=expected, at_token=None))


def test_tokens_that_stopped_early_are_not_the_targets_own(llama: Install, folder: Path) -> None:
    own = _written("a b", 3, Program.SERVER, (1, 2, 3))
    stopped, kept_back = (_written("a ", count, Program.SERVER, (1, 2)) for count in (2, 3))
    assert audit.locate(kept_back, own, llama, "target.gguf", n_predict=3) is None
    difference = audit.locate(stopped, own, llama, "target.gguf", n_predict=3)
    assert difference == Difference(at_char=2, at_token=2, target_token=3)
    runs = [_run(own, Role.TARGET), replace(_run(stopped, Role.DRAFTING), difference=difference)]
    assert list(_judge(runs, llama)) == []  # a server does not say how likely an end is
    assert fake_server.requests(folder) == []


DIFFERENT = replace(_run(_sample("a"), Role.DRAFTING), text_identical=False)
TIED = Difference(at_char=0, at_token=0, verdict=TextVerdict.NEAR_TIE)
APART = Difference(at_char=0, at_token=0, verdict=TextVerdict.DIVERGENCE)
UNJUDGED = Difference(at_char=0, at_token=0, unjudged="no server")
CLEAN, BAD = (TextAudit(tokens=9, near_ties=1, divergent=count) for count in (0, 1))


@pytest.mark.parametrize(
    ("difference", "text_audit", "expected"),
    [
        (TIED, None, (MeasurementWarning.NEAR_TIES,)),
        (TIED, CLEAN, (MeasurementWarning.NEAR_TIES,)),
        (TIED, BAD, (MeasurementWarning.TEXT_DIFFERS,)),  # later on it leaves the target for good
        (APART, CLEAN, (MeasurementWarning.TEXT_DIFFERS,)),
        (UNJUDGED, None, (MeasurementWarning.NOT_JUDGED,)),
        (UNJUDGED, TextAudit(tokens=0, unjudged="no library"), (MeasurementWarning.NOT_JUDGED,)),
        (UNJUDGED, CLEAN, (MeasurementWarning.NEAR_TIES,)),
        (UNJUDGED, BAD, (MeasurementWarning.TEXT_DIFFERS,)),
    ],
)
def test_the_first_difference_and_the_complete_text_must_both_be_near_ties(
    difference: Difference, text_audit: TextAudit | None, expected: tuple[MeasurementWarning, ...]
) -> None:
    run = replace(DIFFERENT, difference=difference, audit=text_audit)
    assert warnings.of_judgement(run) == expected
    same = replace(run, text_identical=True, difference=None)
    assert warnings.of_judgement(same) == ()  # it is the target's own


def test_a_target_that_does_not_repeat_itself_is_named_and_counts() -> None:
    run = replace(_run(_sample("a"), Role.TARGET), text_identical=False, difference=APART)
    assert warnings.of_text(run) is MeasurementWarning.TARGET_VARIES
    assert warnings.outcome(run) is Status.OK
    assert warnings.of_text(replace(run, difference=TIED)) is None


@pytest.mark.parametrize(
    ("own", "token", "verdict", "margin"),
    [
        (YES, NO, TextVerdict.NEAR_TIE, 0.1),
        (YES, MAYBE, TextVerdict.DIVERGENCE, 5.3),
        (YES, UNHEARD_OF, TextVerdict.DIVERGENCE, None),
        (MAYBE, YES, TextVerdict.DIVERGENCE, -5.3),  # much likelier than its own
    ],
)
def test_the_target_judges_known_tokens(
    own: int, token: int, verdict: TextVerdict, margin: float | None, llama: Install, folder: Path
) -> None:
    runs = _parted(_sample("well yes", (1, own)), _sample("well ...", (1, token)), llama)
    (judged,) = _judge(runs, llama)
    difference = judged.difference
    assert (difference.verdict, difference.target_token, difference.drafting_token) == (verdict, own, token)
    assert list(_judge((runs[0], judged), llama)) == []  # what is judged is not judged again
    assert difference.margin == (None if margin is None else pytest.approx(margin))
    (asked,) = fake_server.requests(folder)
    assert asked["prompt"] == ["Text of p1", 1]
    assert (asked["n_predict"], asked["temperature"]) == (1, 0)


@pytest.mark.parametrize(
    ("target", "drafting", "verdict", "token"),
    [
        ("well yes sir", "well no sir", TextVerdict.NEAR_TIE, NO),
        ("well yes sir", "well maybe", TextVerdict.DIVERGENCE, MAYBE),
        ("well yes sir", "well never", TextVerdict.DIVERGENCE, None),
        ("yes", "no", None, None),  # the target's own words are not among the likeliest: no ground to judge
    ],
)
def test_the_target_judges_texts_whose_tokens_nobody_knows(
    target: str, drafting: str, verdict: TextVerdict | None, token: int | None, llama: Install
) -> None:
    runs = _parted(_sample(target), _sample(drafting), llama)
    judged = list(_judge(runs, llama))
    if verdict is None:
        assert not judged
        return
    difference = judged[0].difference
    assert (difference.verdict, difference.target_token, difference.drafting_token) == (verdict, YES, token)


def test_what_both_began_alike_is_stepped_over(llama: Install, folder: Path) -> None:
    runs = _parted(_sample("well yes no"), _sample("well yes yes"), llama)
    (judged,) = _judge(runs, llama)
    assert judged.difference.verdict is TextVerdict.NEAR_TIE
    assert judged.difference.margin == pytest.approx(-0.1)
    assert [asked["prompt"] for asked in fake_server.requests(folder)] == ["Text of p1well yes"]


def test_a_word_is_walked_through_token_by_token(llama: Install, folder: Path) -> None:
    runs = _parted(_sample("well yes yesno"), _sample("well yes yes no"), llama)
    assert list(_judge(runs, llama)) == []  # after " yes" the target's "no" is not what it would write
    prompts = [asked["prompt"] for asked in fake_server.requests(folder)]
    assert prompts == ["Text of p1well yes", ["Text of p1well yes", YES]]


def test_a_load_and_a_question_serve_every_run(llama: Install, folder: Path) -> None:
    parted = [
        *_parted(_sample("well yes", (1, YES)), _sample("well no", (1, NO)), llama),
        *_parted(_sample("well yes", (1, YES)), _sample("well no", (1, NO)), llama)[1:],
        *_parted(_sample("yes", (YES,)), _sample("no", (NO,)), llama, prompt="p2"),
    ]
    judged = list(_judge(parted, llama))
    assert [run.difference and run.difference.verdict for run in judged] == [TextVerdict.NEAR_TIE] * 3
    assert len(fake_server.requests(folder)) == 2
    (start,) = fake_server.starts(folder)
    assert not shell.still_runs(start["pid"], start["at"])


@pytest.mark.parametrize(
    ("behaviour", "reason"),
    [
        (None, "has no server"),
        (Behaviour(at_load="exit 3"), "exit code 3"),
        (Behaviour(at_load="kill -37 $$"), "died of signal 37"),
        (Behaviour(ranks='["a list"]'), "cannot be read: Expected `object`, got `array`"),
        (Behaviour(ranks="not json"), "cannot be read: JSON is malformed"),
        (Behaviour(ranks='{"completion_probabilities": [{"top_logprobs": 5}]}'), "cannot be read: Expected"),
        (Behaviour(ranks='{"completion_probabilities": [{"probs": [{"bytes": [256]}]}]}'), "cannot be read"),
    ],
)
def test_without_a_server_a_reason_is_given(behaviour: Behaviour | None, reason: str, folder: Path) -> None:
    if behaviour is not None:
        fake_server.program(folder / "llama-server", behaviour)
    without = installs.find_install(folder)
    own, parted = _parted(_sample("well yes", (1, YES)), _sample("well no", (1, NO)), without)
    (unjudged,) = _judge((own, parted), without)
    assert reason in (unjudged.difference.unjudged or "")
    assert unjudged == replace(parted, difference=unjudged.difference)
    assert (unjudged.difference.verdict, unjudged.difference.margin) == (None, None)
    assert MeasurementWarning.NOT_JUDGED in warnings.of_judgement(unjudged)
    assert list(_judge((own, unjudged), without)) == []  # the same reason is not told twice


def test_a_reason_gives_way_to_a_verdict(llama: Install) -> None:
    own, parted = _parted(_sample("well yes", (1, YES)), _sample("well no", (1, NO)), llama)
    (judged,) = _judge([own, replace(parted, difference=replace(parted.difference, unjudged="died"))], llama)
    assert (judged.difference.verdict, judged.difference.unjudged) == (TextVerdict.NEAR_TIE, None)


@pytest.mark.parametrize(
    ("drafted", "verdict", "places"),
    [
        (("well no", "well no"), TextVerdict.NEAR_TIE, 2),
        (("well no", "well maybe"), TextVerdict.DIVERGENCE, 2),  # one answer of another text is enough
        (("well yes", "well no"), TextVerdict.NEAR_TIE, 1),
        (("well no", "well"), None, 1),  # a server does not say how likely an end is
    ],
)
def test_without_a_library_answers_to_several_users_are_judged_where_they_part(
    drafted: tuple[str, str], verdict: TextVerdict | None, places: int, llama: Install, folder: Path
) -> None:
    own = _answered(Role.TARGET, "well yes", "well yes")
    drafting = replace(_answered(Role.DRAFTING, *drafted), text_identical=False)
    judged = [*_judge((own, drafting), llama)]
    assert [run.difference and run.difference.verdict for run in judged] == [verdict]
    prompts = [asked["prompt"] for asked in fake_server.requests(folder)]
    assert prompts == [f"Text of p{number}well" for number in (1, 2) if drafted[number - 1] in ASKED][:places]
    assert list(_judge((own, *judged), llama)) == []


@pytest.mark.parametrize("masks_bonus", [True, False])
def test_a_grammar_that_does_not_hold_the_token_behind_a_draft_is_found(
    masks_bonus: bool, folder: Path, tmp_path: Path
) -> None:
    fake_server.program(folder / "llama-server", Behaviour(masks_bonus=masks_bonus))
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    results = ggufspec.bench(
        pair="demo",
        prompt=(ggufspec.Prompt(id="order", text="An order:", json_schema=schema),),
        engine="server",
        llama=(folder,),
        draft=3,
        n_predict=24,
        repeats=2,
        warmup=0,
        threads=1,
    )
    table = ggufspec.summary(results).set_index("role")
    assert table["valid"].loc[["target", "drafting"]].tolist() == [1.0, float(masks_bonus)]
    assert table.loc["drafting", "text_identical"] == masks_bonus
    named = review.warnings(results)
    assert "texts-not-judged" not in named
    assert ("text-differs" in named) != masks_bonus


ASKED = ("well no", "well maybe")


def _answered(role: Role, *texts: str) -> RunResult:
    """A run of two users, each of whom sent a prompt of its own."""
    run = _run(Sample(status=Status.OK), role)
    prompts = tuple(replace(run.spec.prompt, id=f"p{n}", text=f"Text of p{n}") for n in (1, 2))
    answers = tuple(PromptAnswer(number, text, 4) for number, text in enumerate(texts))
    sample = replace(run.sample, traffic=TrafficSample(requests=(), answers=answers))
    return replace(run, spec=replace(run.spec, traffic=Traffic(users=2, prompts=prompts)), sample=sample)


TOKENIZER = """\
if [ "$1" = --help ]; then echo '--ids'; echo '-f, --file FNAME'; echo '-p, --prompt PROMPT'; exit 0; fi
while [ $# -gt 0 ]; do [ "$1" = --file ] && file=$2; shift; done
echo "[$(od -An -v -tu1 "$file" | tr -s ' \n' ',,' | sed 's/^,//; s/,$//')]"
"""
"""Takes every byte of a file for a token."""


@pytest.mark.parametrize("common", ["a \0 b", "words and words " * 20_000, "ä\n\\n", "--ids "])
def test_places_of_any_text_are_counted(common: str, folder: Path) -> None:
    fakes.script(folder / "llama-tokenize", TOKENIZER)
    own, other = f"{common}yes", f"{common}no"
    difference = audit.locate(
        _sample(other), _sample(own), installs.find_install(folder), "target.gguf", n_predict=10
    )
    assert difference == Difference(at_char=len(common), at_token=len(common.encode()))


@pytest.mark.parametrize("body", ["exit 3", "echo nonsense", "kill -KILL $$", "echo '[1, 2'"])
@pytest.mark.parametrize("text", ["a \0 b", "words and words " * 20_000, "short"])
def test_a_tokenizer_that_fails_costs_the_count_alone(body: str, text: str, folder: Path) -> None:
    for help_text in ("", "--ids", "--ids\n-f, --file FNAME"):
        asked = f"[ \"$1\" = --help ] && {{ printf '{help_text}'; exit 0; }}\n"
        fakes.script(folder / "llama-tokenize", f"{asked}{body}\n")
        llama = installs.find_install(folder)
        found = audit.locate(_sample(f"{text}no"), _sample(f"{text}yes"), llama, "target.gguf", n_predict=10)
        assert found == Difference(at_char=len(text), at_token=None)


def test_without_the_targets_own_text_nothing_is_judged(llama: Install) -> None:
    _, drafted = _parted(_sample("well yes", (1, YES)), _sample("well no", (1, NO)), llama)
    assert list(_judge([drafted], llama)) == []


@pytest.mark.parametrize(
    ("ranked", "expected"),
    [
        (
            {"top_logprobs": [{"id": 3, "bytes": [195], "logprob": -2.0}, {"id": 4, "logprob": None}]},
            (3, b"\xc3", -2.0),
        ),
        ({"content": "a", "probs": [{"tok_str": "a", "prob": 1.0}]}, (None, b"a", 0.0)),
        ({"content": "a", "probs": [{"tok_str": "a", "prob": 0.0}]}, None),
        ({}, None),
    ],
)
def test_rankings_of_every_era_are_read(ranked: dict[str, Any], expected: tuple[Any, ...] | None) -> None:
    found = candidates(json.dumps({"completion_probabilities": [ranked]}).encode())
    assert found == (() if expected is None else (expected,))
    assert candidates(b"{}") == ()
