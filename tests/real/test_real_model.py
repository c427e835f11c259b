"""A real model, Gemma 3 270M: what the embedded models hide. It is used where the package can be had."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import real_model

from ggufspec import engines
from ggufspec.domain import Drafting, Method, ModelFile, Pair, Program, Prompt, Role, RunSpec, Status
from ggufspec.engines.inprocess import InprocessEngine
from ggufspec.forecast import profiles, trace
from ggufspec.llama.install.installs import Install
from ggufspec.modelfiles import gguf
from tests.support import embedded
from tests.support.walks import traced_run

TOKENS = 24
METHODS = (Method.NGRAM_SIMPLE, Method.NGRAM_MOD)


@pytest.fixture
def model(llama: Install) -> Path:
    """The model, which `scripts/real_model.py --fetch` puts into the cache."""
    place: Path = real_model.place()
    if not place.exists():
        pytest.skip("Gemma 3 270M is not in the cache: python scripts/real_model.py --fetch")
    return place


def _spec(model: Path, text: str) -> RunSpec:
    pair = Pair(name="gemma", target=ModelFile(filename=model.name, path=model))
    return embedded.spec(pair=pair, prompt=Prompt(id="text", text=text), n_predict=TOKENS, context=1024)


def test_the_traced_text_is_the_one_that_a_server_writes(model: Path, llama: Install, tmp_path: Path) -> None:
    """Its layers with a sliding window let the server read the end of a prompt apart, which decides ties.

    Text by text: alone as single tokens write it; drafts may write the text of larger batches instead.
    """
    texts = real_model.TEXTS
    prompts = [texts["repeating"]["config"], texts["not repeating"]["rain"]]
    specs = [_spec(model, text) for text in prompts]
    with InprocessEngine(install=llama, timeout_s=120) as engine:
        traced = [
            next(profiles.traces(engine, spec, [spec.prompt], [], program=Program.SERVER, twice=True))
            for spec in specs
        ]
    with engines.make("server", llama, timeout_s=120) as server:
        for spec, texts_of in zip(specs, traced, strict=True):
            alone = embedded.complete(server, spec, tmp_path / "run").sample
            assert alone.status is Status.OK
            assert alone.tokens == texts_of.target_trace.tokens[: len(alone.tokens or ())]
        for spec, texts_of in zip(specs[:1], traced[:1], strict=True):
            for method in METHODS:
                size = trace.draft_sizes(method, ())[0]
                drafting = replace(spec, role=Role.DRAFTING, drafting=Drafting(n_max=size, method=method))
                sample = embedded.complete(server, drafting, tmp_path / "run").sample
                if sample.tokens not in {text.tokens for text in texts_of.target_trace.texts}:
                    continue  # yet another near-tie
                found = [
                    trace.count(
                        trace.ngram_steps(text, traced_run(method=method, n_max=size, n_predict=TOKENS))
                    )
                    for text in texts_of.target_trace.texts
                    if text.tokens == sample.tokens
                ]
                counts = {(one.n_rounds, one.n_drafted, one.n_accepted) for one in found}
                assert counts == {(sample.n_rounds, sample.n_drafted, sample.n_accepted)}


def test_the_types_that_are_really_there_are_named(model: Path) -> None:
    """Its width of 640 is no multiple of 256, so that most tensors have other types than its name says."""
    card = gguf.read_card(model)
    assert card.quant == "Q4_K_M"
    assert card.types[0][0] == "Q8_0"
    assert card.described_quant.startswith("Q4_K_M (73% Q8_0, ")
