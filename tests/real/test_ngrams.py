"""Drafts from the text so far: what real programs draft and accept is what a trace forecasts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from ggufspec import engines, prompts
from ggufspec.domain import Drafting, Method, Offload, Pair, Program, Role, Round, RunSpec, Sample, Status
from ggufspec.engines.inprocess import InprocessEngine
from ggufspec.forecast import trace
from ggufspec.forecast.trace import DraftTrace
from ggufspec.llama.install.installs import Install
from ggufspec.modelfiles import catalog, hub
from tests.support import embedded

TOKENS = 400  # by then, the embedded target has come back to its phrases
ASKED = [
    (method, size)
    for method in Method
    for size in trace.draft_sizes(method, (4, 8, 16))
    if method.startswith("ngram")
]


def _spec(drafting: Drafting | None, tokens: int = TOKENS) -> RunSpec:
    pair = hub.resolve(catalog.find_pair("demo"), offline=True)
    return RunSpec(
        pair=Pair(name="demo", target=pair.target),
        role=Role.TARGET if drafting is None else Role.DRAFTING,
        prompt=next(prompt for prompt in prompts.suite("demo").prompts if prompt.id == "list-packing"),
        n_predict=tokens,
        context=512,
        threads=1,
        offload=Offload(target_layers=0),
        drafting=drafting,
    )


@pytest.fixture
def traced(llama: Install) -> DraftTrace:
    """The target's own text, with the tokens of its prompt."""
    with InprocessEngine(install=llama, timeout_s=120) as engine:
        found = engine.trace(_spec(None, TOKENS + 20), drafters=[])
    tokens = found.written.tokens
    return DraftTrace(
        prompt_id="list-packing",
        tokens=tokens,
        match=(False,) * len(tokens),
        confidence=(0.0,) * len(tokens),
        prompt_tokens=found.prompt,
    )


def _measured(name: str, llama: Install, log: Path) -> Iterator[tuple[Drafting, Sample]]:
    with engines.make(name, llama, timeout_s=120) as engine:
        for method, size in ASKED:
            spec = _spec(Drafting(n_max=size, method=method))
            yield spec.drafting or Drafting(n_max=0), embedded.complete(engine, spec, log).sample


@pytest.mark.parametrize(("name", "program"), [("binary-simple", Program.SIMPLE), ("server", Program.SERVER)])
def test_a_trace_forecasts_every_count_of_every_method(
    llama: Install, traced: DraftTrace, tmp_path: Path, name: str, program: Program
) -> None:
    kept = 0
    for drafting, sample in _measured(name, llama, tmp_path / "run"):
        steps = trace.ngram_steps(
            traced, method=drafting.method, n_max=drafting.n_max, program=program, n_predict=TOKENS
        )
        found = trace.count(steps)
        assert (sample.status, sample.n_draft) == (Status.OK, drafting.n_max)
        assert sample.n_drafted == found.n_drafted, drafting
        assert sample.n_accepted == found.n_accepted, drafting
        assert sample.n_rounds == found.n_rounds, drafting
        if sample.rounds is not None:  # the server tells each of them
            assert sample.rounds == tuple(Round(step.drafted, int(step.accepted)) for step in steps)
        kept += 0 < found.n_accepted < found.n_drafted
    assert kept >= 5  # drafts occur, and are partly wrong


def test_a_prompt_that_comes_again_is_not_drafted_from_its_last_answer(
    llama: Install, tmp_path: Path
) -> None:
    """A server that went on would draft all of it: ngram-mod keeps what it saw in earlier requests."""
    spec = replace(_spec(Drafting(n_max=16, method=Method.NGRAM_MOD)), n_predict=100)
    with engines.make("server", llama, timeout_s=120) as engine:
        first, again = (engine.measure(spec, tmp_path / "run").sample for _ in range(2))
    assert (first.status, first.n_drafted, first.n_accepted) == (Status.OK, 0, 0)
    assert (again.n_drafted, again.tokens, again.gen_tokens) == (0, first.tokens, 100)
