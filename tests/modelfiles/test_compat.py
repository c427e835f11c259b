"""Which drafter is accepted: the rules of every era on made-up vocabularies."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ggufspec.domain import Program
from ggufspec.errors import NoInstallError
from ggufspec.llama.install.installs import Executable
from ggufspec.llama.install.options import ListedFlags
from ggufspec.modelfiles.compat.judging import RULES, CompatOutcome, check_pair, refusal, rule_for, rule_of
from ggufspec.modelfiles.compat.vocabularies import effective
from ggufspec.modelfiles.gguf import ModelCard
from tests.support import models, scripted

ACCEPTED, TRANSLATED, REFUSED = CompatOutcome.ACCEPTED, CompatOutcome.TRANSLATED, CompatOutcome.REFUSED
TREE, SIMPLE, SERVER = Program.TREE, Program.SIMPLE, Program.SERVER


def _card(count: int = 300, text: dict[int, str] | None = None, **keys: Any) -> ModelCard:
    vocabulary = models.tokens(count, **keys)
    listed = vocabulary["tokenizer.ggml.tokens"]
    assert isinstance(listed, list)
    for token, other in (text or {}).items():
        listed[token] = other
    return _parsed(vocabulary)


def _parsed(vocabulary: dict[str, models.Value], **extra: Any) -> ModelCard:
    return models.card(models.llama(vocabulary=vocabulary, **extra))


def test_every_build_from_the_first_has_one_rule() -> None:
    for program in (TREE, SIMPLE, SERVER):
        rows = sorted((rule for rule in RULES if program in rule.programs), key=lambda rule: rule.first)
        assert [row.last for row in rows[:-1]] == [row.first - 1 for row in rows[1:]]
        assert rows[-1].last is None
        assert rule_for(program) == rows[-1]


@pytest.mark.parametrize(("program", "build"), [(Program.PLAIN, None), (SIMPLE, 4158), (SERVER, 2697)])
def test_programs_that_do_not_draft_have_no_rule(program: Program, build: int | None) -> None:
    with pytest.raises(ValueError, match="does not draft"):
        rule_for(program, build)


@pytest.mark.parametrize(
    ("draft", "program", "build", "outcome"),
    [
        (_card(), TREE, 2697, ACCEPTED),
        (_card(), SIMPLE, None, ACCEPTED),
        # other texts count from token 5 on
        (_card(text={4: "x"}), TREE, None, ACCEPTED),
        (_card(text={5: "x"}), TREE, None, REFUSED),
        (_card(text={5: "x"}), SIMPLE, 6044, REFUSED),
        (_card(text={5: "x"}), SIMPLE, 6045, TRANSLATED),
        (_card(text={5: "x"}), TREE, 6045, REFUSED),
        (_card(text={5: "x"}), SERVER, 9108, TRANSLATED),
        (_card(text={5: "x"}), SERVER, 9109, REFUSED),
        # sizes: 100 more or fewer, then 128
        (_card(400), TREE, 4158, ACCEPTED),
        (_card(401), TREE, 4158, REFUSED),
        (_card(428), TREE, 4159, ACCEPTED),
        (_card(429), TREE, 4159, REFUSED),
        (_card(429), SERVER, 7000, TRANSLATED),
        # a flag that only one file sets
        (_card(add_bos_token=True), TREE, 3180, REFUSED),
        (_card(add_bos_token=True), TREE, 3181, ACCEPTED),  # it is the default
        (_card(add_bos_token=False), TREE, 3181, REFUSED),
        (_card(add_eos_token=True), SIMPLE, None, REFUSED),
        # ids that are not added count less and less
        (_card(bos_token_id=9), TREE, 8932, REFUSED),
        (_card(bos_token_id=9), SIMPLE, None, REFUSED),
        (_card(eos_token_id=9), TREE, 2697, REFUSED),
        (_card(eos_token_id=9), TREE, 8981, REFUSED),
        (_card(eos_token_id=9), TREE, 8982, ACCEPTED),
        (_card(eos_token_id=9), SERVER, 8931, TRANSLATED),
        (_card(eos_token_id=9), SERVER, 8932, ACCEPTED),
        # ids outside of the vocabulary do not count
        (_card(eos_token_id=9999), TREE, 2697, ACCEPTED),
    ],
)
def test_rules(draft: ModelCard, program: Program, build: int | None, outcome: CompatOutcome) -> None:
    verdict = check_pair(_card(), draft, rule_for(program, build))
    assert verdict.outcome is outcome
    assert bool(verdict.reasons) is (outcome is not ACCEPTED)


def test_types_and_added_tokens_are_compared_as_llama_cpp_does() -> None:
    target, draft = _card(add_bos_token=False), _card(add_bos_token=False, bos_token_id=9)
    assert check_pair(target, draft, rule_for(TREE, 8931)).outcome is REFUSED
    assert check_pair(target, draft, rule_for(TREE, 8932)).outcome is ACCEPTED
    target, draft = _card(add_bos_token=False), _card(model="rwkv", bos_token_id=1, eos_token_id=2)
    assert check_pair(target, draft, rule_for(SIMPLE, 9547)).outcome is ACCEPTED
    verdict = check_pair(target, draft, rule_for(SIMPLE, 9548))
    assert verdict.outcome is REFUSED
    assert verdict.reasons == ("the target's vocabulary is of type SPM, the drafter's RWKV",)
    assert check_pair(target, draft, rule_for(TREE)).outcome is ACCEPTED


def test_the_first_differences_and_their_number_are_named() -> None:
    verdict = check_pair(
        _card(), _card(text={token: f"<{token}>" for token in range(260, 300)}), rule_for(TREE)
    )
    assert verdict.n_differences == 40
    assert [each.id for each in verdict.differences] == [260, 261, 262, 263, 264]
    assert verdict.differences[0].target == "▁w0"
    assert verdict.differences[0].draft == "<260>"
    error = refusal(verdict)
    assert "40 tokens differ" in error.message
    assert "target's family" in error.hint


def test_texts_are_compared_as_c_strings() -> None:
    assert check_pair(_card(text={7: "a\0b"}), _card(text={7: "a\0c"}), rule_for(TREE)).outcome is ACCEPTED
    assert check_pair(_card(text={7: ""}), _card(text={7: "[EMPTY_7]"}), rule_for(TREE)).outcome is ACCEPTED
    wrong = check_pair(_card(add_bos_token=True), _card(add_bos_token=False), rule_for(TREE))
    assert wrong.reasons == ("tokenizer.ggml.add_bos_token is true in the target and false in the drafter",)
    assert wrong.helps[0].endswith("gguf-set-metadata FILE tokenizer.ggml.add_bos_token true")
    absent = check_pair(_card(add_bos_token=True), _card(), rule_for(TREE, 2697))
    assert "--override-kv tokenizer.ggml.add_bos_token=bool:true" in absent.helps[0]
    bare = _parsed({"tokenizer.ggml.model": "none", "tokenizer.ggml.tokens": []})
    for rule in RULES:
        assert check_pair(_card(), bare, rule).outcome is REFUSED


def test_recurrent_models_were_refused_for_a_while() -> None:
    recurrent = _parsed(models.tokens(300), ssm__state_size=16)
    outcomes = [
        check_pair(recurrent, recurrent, rule_for(SERVER, build)).outcome
        for build in (7958, 7959, 8841, 8842)
    ]
    assert outcomes == [ACCEPTED, REFUSED, REFUSED, ACCEPTED]
    assert check_pair(recurrent, recurrent, rule_for(TREE, 8000)).outcome is ACCEPTED


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({"model": "llama"}, (True, False, 1, 2)),
        ({"model": "gpt2"}, (False, False, 11, 11)),
        ({"model": "gpt2", "pre": "llama-bpe"}, (True, False, 11, 11)),
        ({"model": "gpt2", "pre": "glm4"}, (False, False, None, 11)),
        ({"model": "gemma4", "add_bos_token": False}, (True, False, None, None)),
        ({"model": "bert"}, (True, False, 101, None)),
        ({"model": "t5", "add_eos_token": False}, (False, False, None, 1)),
        ({"model": "of next year"}, (False, False, None, None)),
    ],
)
def test_absent_keys_have_llama_cpps_defaults(
    keys: dict[str, Any], expected: tuple[bool, bool, int | None, int | None]
) -> None:
    found = effective(_card(**keys).vocabulary)
    assert (found.add_bos, found.add_eos, found.bos_id, found.eos_id) == expected


@pytest.mark.parametrize("build", [2697, 6170, None])
def test_an_installs_rule_is_that_of_its_build(build: int | None) -> None:
    tree = Executable(path=Path("llama-speculative"), options=ListedFlags())
    install = replace(scripted.INSTALL, programs={TREE: tree}, build_number=build)
    assert rule_of(install, TREE) == rule_for(TREE, build)
    with pytest.raises(NoInstallError):
        rule_of(install, SIMPLE)
