from __future__ import annotations

from pathlib import Path

import pytest

from ggufspec import machine, paths, request
from ggufspec.domain import Offload, Sampling
from ggufspec.errors import ContextTooSmallError, DrafterRefusedError, GgufspecError, ModelFileError
from ggufspec.request import Request
from tests import fakes

DEMO = paths.models_dir() / "demo"
TEN_TOKENS = "echo '[1, 2, 3, 4, 5, 6, 7, 8, 9, 10]'\n"


@pytest.fixture(autouse=True)
def llama(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = fakes.install(tmp_path / "llama")
    fakes.program(folder / "llama-tokenize", TEN_TOKENS)
    monkeypatch.setenv("GGUFSPEC_LLAMA", str(folder))
    return folder


def test_nothing_asked_is_the_embedded_pair_on_its_own_suite() -> None:
    session = request.prepare(Request())
    suite = session.suite
    assert suite.pair.name == "demo"
    assert "embedded" in session.why
    assert (suite.draft_sizes, suite.repeats, suite.warmups, suite.n_predict) == ((3,), 3, 1, 250)
    assert suite.threads == machine.usable_cores()
    assert suite.sampling == Sampling(temperature=0.0, top_k=1)
    assert len(suite.prompts) == 8


def test_named_files_are_a_pair_of_their_own() -> None:
    session = request.prepare(
        Request(target=DEMO / "target.gguf", draft_model=DEMO / "drafter.gguf", ngl=45, ngld="all", temp=0.8)
    )
    assert session.suite.pair.name == "target + drafter"
    assert session.suite.pair.target.path == DEMO / "target.gguf"
    assert session.suite.offload == Offload(target_layers=45, draft_layers="all")
    assert session.suite.sampling.top_k == 40
    assert {prompt.id for prompt in session.suite.prompts} >= {"history", "code"}


def test_a_target_needs_no_drafter() -> None:
    session = request.prepare(Request(target=DEMO / "target.gguf", prompt=("Hello",)))
    assert [cell.spec.role.value for cell in session.suite.cells()] == ["target"] * 4


@pytest.mark.parametrize(("tokens", "context"), [(32, 256), (248, 256), (249, 512), (600, 768)])
def test_context_is_what_is_needed(tokens: int, context: int) -> None:
    assert (
        request.prepare(Request(prompt=("A" * 200,), n_predict=tokens, draft=(8,))).suite.context
        >= tokens + 208
    )
    assert request.prepare(Request(prompt=("A",), n_predict=tokens)).suite.context == context


def test_context_that_is_given_is_checked_by_tokens() -> None:
    assert request.prepare(Request(prompt=("A" * 500,), n_predict=32, ctx=64)).suite.context == 64
    with pytest.raises(
        ContextTooSmallError, match=r"prompt p1 \(10 tokens\) and 52 tokens .* context of 64"
    ) as caught:
        request.prepare(Request(prompt=("A" * 500,), n_predict=52, ctx=64))
    assert caught.value.hint


def test_models_are_checked_before_anything_runs(tmp_path: Path) -> None:
    cut = tmp_path / "cut.gguf"
    cut.write_bytes((DEMO / "target.gguf").read_bytes()[:-1000])
    with pytest.raises(ModelFileError, match="truncated"):
        request.prepare(Request(target=cut))
    with pytest.raises(ModelFileError):
        request.prepare(Request(target=tmp_path / "missing.gguf"))


def test_drafters_that_llama_will_refuse_are_refused_first(tmp_path: Path) -> None:
    stranger = tmp_path / "stranger.gguf"
    data = (DEMO / "drafter.gguf").read_bytes()
    token = b"\x03\x00\x00\x00\x00\x00\x00\x00the"
    assert token in data
    stranger.write_bytes(data.replace(token, token[:-3] + b"eht", 1))
    with pytest.raises(DrafterRefusedError, match="refuses this drafter"):
        request.prepare(Request(target=DEMO / "target.gguf", draft_model=stranger))


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (Request(draft_model=DEMO / "drafter.gguf"), "without a target"),
        (Request(prompt=("",)), "a prompt is empty"),
        (Request(pair="dmo"), "no pair is called 'dmo'"),
    ],
)
def test_requests_that_make_no_sense(asked: Request, message: str) -> None:
    with pytest.raises(GgufspecError, match=message) as caught:
        request.prepare(asked)
    assert caught.value.hint
