"""Drafts from the text so far: what real programs draft and accept is what a trace forecasts."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from ggufspec import engines
from ggufspec.domain import Drafting, Method, Program, Role, Round, RunSpec, Sample, Status
from ggufspec.engines.inprocess import InprocessEngine
from ggufspec.forecast import profiles, trace
from ggufspec.forecast.profiles import TracedTexts
from ggufspec.forecast.trace import DraftTrace
from ggufspec.llama.install import installs
from ggufspec.llama.install.installs import Install
from tests.support import embedded
from tests.support.walks import traced_run

TOKENS = 300  # by then, the embedded target has come back to its phrases
ASKED = [
    (method, size)
    for method in Method
    for size in trace.draft_sizes(method, (4, 16))
    if method.startswith("ngram")
]


def _spec(drafting: Drafting | None, tokens: int = TOKENS) -> RunSpec:
    role = Role.TARGET if drafting is None else Role.DRAFTING
    spec = embedded.spec(role, prompt=embedded.PROMPTS["qa-home"], n_predict=tokens, drafting=drafting)
    return replace(spec, pair=replace(spec.pair, draft=None))


@functools.cache
def _traced(root: Path) -> TracedTexts:
    """Trace the target's own text, with the tokens of its prompt, once for both programs."""
    spec = _spec(None, TOKENS + 20)
    with InprocessEngine(install=installs.find_install(root), timeout_s=120) as engine:
        (texts,) = profiles.traces(engine, spec, [spec.prompt], [])
    return texts


def _measured(name: str, llama: Install, log: Path) -> Iterator[tuple[Drafting, Sample]]:
    with engines.make(name, llama, timeout_s=120) as engine:
        for method, size in ASKED:
            spec = _spec(Drafting(n_max=size, method=method))
            yield spec.drafting or Drafting(n_max=0), embedded.complete(engine, spec, log).sample


@pytest.mark.takes(10, together="ngrams")
@pytest.mark.parametrize(("name", "program"), [("binary-simple", Program.SIMPLE), ("server", Program.SERVER)])
def test_a_trace_forecasts_each_count(llama: Install, tmp_path: Path, name: str, program: Program) -> None:
    """Drafts follow from the text, so counts are equal wherever the text is; near-ties may change it."""
    traced, kept, unknown = _traced(llama.root), 0, 0
    for drafting, sample in _measured(name, llama, tmp_path / "run"):
        assert (sample.status, sample.n_draft) == (Status.OK, drafting.n_max)
        text = _written(traced, sample)
        if text is None:
            unknown += 1
            continue
        steps = trace.ngram_steps(
            text, traced_run(method=drafting.method, n_max=drafting.n_max, program=program, n_predict=TOKENS)
        )
        found = trace.count(steps)
        assert sample.n_drafted == found.n_drafted, drafting
        assert sample.n_accepted == found.n_accepted, drafting
        assert sample.n_rounds == found.n_rounds, drafting
        if sample.rounds is not None:  # the server tells each of them
            assert sample.rounds == tuple(Round(step.drafted, int(step.accepted)) for step in steps)
        kept += 0 < found.n_accepted < found.n_drafted
    assert kept + unknown >= 5  # drafts occur, and are partly wrong


def _written(traced: TracedTexts, sample: Sample) -> DraftTrace | None:
    """Return the trace with the text that a run wrote; None where its tokens are not known.

    It is the traced text at least up to the first near-tie.
    """
    text, sure = traced.target_trace, trace.first_text_tie(traced.target_trace)
    if sample.tokens is not None:
        together = min(len(sample.tokens), len(text.tokens), sure)
        assert sample.tokens[: int(together)] == text.tokens[: int(together)]
        size = len(sample.tokens)
        return replace(
            text,
            tokens=sample.tokens,
            match=(False,) * size,
            confidence=(0.0,) * size,
            text_leads=None,
            text_spread=None,
        )
    assert sample.text is not None
    if traced.text.startswith(sample.text):
        return text
    assert sure < len(text.tokens)
    return None


def test_a_repeated_prompt_is_not_drafted_from_its_last_answer(llama: Install, tmp_path: Path) -> None:
    """A server that went on would draft all of it: ngram-mod keeps what it saw in earlier requests."""
    spec = replace(_spec(Drafting(n_max=16, method=Method.NGRAM_MOD)), n_predict=100)
    with engines.make("server", llama, timeout_s=120) as engine:
        first, again = (engine.measure(spec, tmp_path / "run").sample for _ in range(2))
    assert (first.status, first.n_drafted, first.n_accepted) == (Status.OK, 0, 0)
    assert (again.n_drafted, again.gen_tokens) == (0, 100)
    assert first.tokens == again.tokens  # the same batches in a new process
