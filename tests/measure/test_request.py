from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ggufspec import machine, paths
from ggufspec.domain import Drafting, Method, ModelRun, Offload, Sampling
from ggufspec.errors import ContextTooSmallError, DrafterRefusedError, GgufspecError, ModelFileError
from ggufspec.measure import prepare_session
from ggufspec.options import BenchOptions
from tests.support import fakes

DEMO = paths.models_dir() / "demo"
TEN_TOKENS = "echo '[1, 2, 3, 4, 5, 6, 7, 8, 9, 10]'\n"


@pytest.fixture(autouse=True)
def llama(llama: Path) -> Path:
    fakes.program(llama / "llama-tokenize", TEN_TOKENS)
    return llama


def _context(asked: BenchOptions) -> int:
    (context,) = {arm.context for arm in prepare_session(asked).suite.blocks[0].arms}
    return context


def test_nothing_asked_is_the_embedded_pair_on_its_own_suite() -> None:
    session = prepare_session(BenchOptions())
    suite = session.suite
    (block,) = suite.blocks
    target, _, drafting = block.arms
    assert session.name == "demo"
    assert "the embedded pair" in session.notes[0]
    assert (suite.repeats, suite.warmups, target.n_predict) == (5, 1, 250)
    assert drafting.drafting == Drafting(n_max=3)
    assert target.threads == machine.usable_cores()
    assert target.sampling == Sampling(temperature=0.0, top_k=1)
    assert len(suite.prompts) == 8


def test_named_files_are_a_pair_of_their_own() -> None:
    session = prepare_session(
        BenchOptions(
            target=DEMO / "target.gguf", draft_model=DEMO / "drafter.gguf", ngl=45, ngld="all", temp=0.8
        )
    )
    assert session.name == "target + drafter"
    drafting = session.suite.blocks[0].arms[2]
    assert drafting.pair.target.path == DEMO / "target.gguf"
    assert drafting.offload == Offload(target=ModelRun(layers=45), drafter=ModelRun(layers="all"))
    assert drafting.sampling.top_k == 40
    assert {prompt.id for prompt in session.suite.prompts} >= {"history", "code"}


@pytest.mark.parametrize(
    ("asked", "temperature", "top_k"),
    [
        ({}, 0.0, 1),
        ({"top_k": 50}, 1.0, 50),
        ({"top_k": 1}, 0.0, 1),
        ({"top_p": 0.9}, 1.0, 40),
        ({"min_p": 0.1}, 1.0, 40),
        ({"top_k": 50, "temp": 0.0}, 0.0, 50),
        ({"top_k": 50, "temp": 0.6}, 0.6, 50),
        ({"temp": 0.6}, 0.6, 40),
    ],
    ids=str,
)
def test_samplers_alone_sample_at_one(asked: dict[str, Any], temperature: float, top_k: int) -> None:
    session = prepare_session(BenchOptions(pair="demo", **asked))
    sampling = session.suite.blocks[0].arms[0].sampling
    assert (sampling.temperature, sampling.top_k) == (temperature, top_k)


def test_messages_go_into_the_template_that_is_named(tmp_path: Path) -> None:
    file = tmp_path / "own.jinja"
    asked = BenchOptions(pair="demo", prompt=("Hello",), chat=True, chat_template_file=file)
    with pytest.raises(GgufspecError, match=r"cannot read the chat template .*own\.jinja"):
        prepare_session(asked)
    file.write_text("{% for m in messages %}<{{ m.role }}> {{ m.content }}{% endfor %}<bot>")
    session = prepare_session(asked)
    (prompt,) = session.suite.prompts
    assert prompt.text == "<user> Hello<bot>"
    assert {arm.runtime.chat_template_file for arm in session.suite.blocks[0].arms} == {file}
    assert f"prompts: in {file}" in session.notes


@pytest.mark.parametrize(("tokens", "context"), [(32, 256), (248, 256), (249, 512), (600, 768)])
def test_context_is_what_is_needed(tokens: int, context: int) -> None:
    assert _context(BenchOptions(prompt=("A" * 200,), n_predict=tokens, draft=(8,))) >= tokens + 208
    assert _context(BenchOptions(prompt=("A",), n_predict=tokens)) == context


def test_context_that_is_given_is_checked_by_tokens() -> None:
    assert _context(BenchOptions(prompt=("A" * 500,), n_predict=32, ctx=64)) == 64
    with pytest.raises(
        ContextTooSmallError, match=r"prompt p1 \(10 tokens\) and 52 tokens .* context of 64"
    ) as caught:
        prepare_session(BenchOptions(prompt=("A" * 500,), n_predict=52, ctx=64))
    assert caught.value.hint


def test_models_are_checked_before_anything_runs(tmp_path: Path) -> None:
    cut = tmp_path / "cut.gguf"
    cut.write_bytes((DEMO / "target.gguf").read_bytes()[:-1000])
    with pytest.raises(ModelFileError, match="truncated"):
        prepare_session(BenchOptions(target=cut))
    with pytest.raises(ModelFileError):
        prepare_session(BenchOptions(target=tmp_path / "missing.gguf"))


def test_drafters_that_llama_will_refuse_are_refused_first(tmp_path: Path) -> None:
    stranger = tmp_path / "stranger.gguf"
    data = (DEMO / "drafter.gguf").read_bytes()
    token = b"\x03\x00\x00\x00\x00\x00\x00\x00the"
    assert token in data
    stranger.write_bytes(data.replace(token, token[:-3] + b"eht", 1))
    with pytest.raises(DrafterRefusedError, match="refuses this drafter"):
        prepare_session(BenchOptions(target=DEMO / "target.gguf", draft_model=stranger))


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (BenchOptions(draft_model=DEMO / "drafter.gguf"), "without a target"),
        (BenchOptions(prompt=("",)), "prompt p1 is empty"),
        (BenchOptions(pair="dmo"), "no pair is called 'dmo'"),
        (BenchOptions(method="ngram-simple", engine="binary"), "drafts only with a draft model"),
        (BenchOptions(method="ngram-mod", engine="inprocess"), "no library|drafts only with a draft model"),
        (BenchOptions(method="ngram-mod", engine="inprocess", parallel=2), "measures neither several users"),
        (
            BenchOptions(method="ngram-simple", draft=(3, 8), engine="binary-simple"),
            "drafts nothing at γ 3, 8",
        ),
        (BenchOptions(method="lookahead"), "no drafting method is called 'lookahead'"),
        (
            BenchOptions(method="ngram-mod", target=DEMO / "target.gguf", draft_model=DEMO / "drafter.gguf"),
            "no method that drafts with one",
        ),
    ],
)
def test_requests_that_make_no_sense(asked: BenchOptions, message: str) -> None:
    with pytest.raises(GgufspecError, match=message) as caught:
        prepare_session(asked)
    assert caught.value.hint


def test_a_pair_can_be_measured_with_other_drafters(tmp_path: Path) -> None:
    copy = tmp_path / "other.gguf"
    copy.write_bytes((DEMO / "drafter.gguf").read_bytes())
    session = prepare_session(BenchOptions(pair="demo", draft_model=(DEMO / "drafter.gguf", copy)))
    drafters = [arm.drafter.filename for arm in session.suite.blocks[0].arms if arm.drafter]
    assert drafters == ["drafter.gguf", "other.gguf"]


def test_turns_of_a_conversation_need_room_for_answers(tmp_path: Path) -> None:
    suite = tmp_path / "talk.toml"
    suite.write_text('[[prompt]]\nid = "talk"\ntext = "A"\nfollowups = ["B", "C"]\n')
    session = prepare_session(BenchOptions(pair="demo", prompt_file=(suite,), n_predict=100))
    assert session.suite.blocks[0].arms[0].context >= 3 * 100
    assert session.suite.n_runs == 3 * 3 * 5


def test_draft_sizes_at_which_a_method_drafts_nothing_are_left_out_and_named() -> None:
    asked = BenchOptions(
        pair="demo", method=("draft-model", "ngram-simple"), draft=(3, 16), engine="binary-simple"
    )
    session = prepare_session(asked)
    drafting = [arm.drafting for arm in session.suite.blocks[0].arms if arm.drafting]
    assert drafting == [Drafting(n_max=3), Drafting(n_max=16), Drafting(n_max=16, method=Method.NGRAM_SIMPLE)]
    assert "draft sizes: ngram-simple drafts nothing at γ 3, which is left out" in session.notes
