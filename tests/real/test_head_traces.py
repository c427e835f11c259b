"""What the library finds out about the embedded heads, against runs of llama.cpp's own programs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from ggufspec import engines, prompts
from ggufspec.domain import Drafting, Method, Offload, Program, Role, RunSpec, Sample, Status
from ggufspec.engines.inprocess import InprocessEngine
from ggufspec.engines.library import RoundPart
from ggufspec.forecast import profiles, trace
from ggufspec.llama.install.installs import Install
from ggufspec.modelfiles import catalog, hub
from tests.support import embedded

PAIRS = {"demo-eagle3": Method.DRAFT_EAGLE3, "demo-mtp": Method.DRAFT_MTP}
PROMPTS = ("story-lantern", "list-recipe", "qa-teacher")
TOKENS = 100
LONGEST = 8
SIZES = (1, 2, 3, 5, LONGEST)


@pytest.fixture
def library(llama: Install) -> Iterator[InprocessEngine]:
    with InprocessEngine(install=llama, timeout_s=120, with_mtp=True) as engine:
        yield engine


def _spec(pair: str, *, draft: int = LONGEST, p_min: float = 0.0) -> RunSpec:
    spec = embedded.spec(Role.DRAFTING, Offload(target_layers=0, draft_layers=0))
    return replace(
        spec,
        pair=hub.resolve(catalog.find_pair(pair), offline=True),
        n_predict=TOKENS,
        drafting=Drafting(n_max=draft, method=PAIRS[pair], p_min=p_min),
    )


def _traces(library: InprocessEngine, pair: str) -> list[profiles.TracedTexts]:
    spec = _spec(pair)
    assert spec.draft_source is not None
    chosen = [prompt for prompt in prompts.suite("demo").prompts if prompt.id in PROMPTS]
    long = replace(spec.baseline, n_predict=trace.needed(TOKENS, LONGEST, Program.SIMPLE))
    return [*profiles.traces(library, long, chosen, [spec.draft_source], n_max=LONGEST)]


@pytest.mark.parametrize("pair", PAIRS)
@pytest.mark.parametrize("name", ["server", "binary-simple"])
def test_a_trace_foretells_the_rounds_of_every_draft_size(
    llama: Install, library: InprocessEngine, tmp_path: Path, pair: str, name: str
) -> None:
    accepted = 0
    with engines.make(name, llama, timeout_s=120) as engine:
        for texts in _traces(library, pair):
            for size in SIZES:
                spec = replace(_spec(pair, draft=size), prompt=texts.prompt)
                sample = embedded.measured(engine, spec, tmp_path / "run")
                found = trace.count(
                    trace.steps(
                        texts.by_drafter[0], n_max=size, program=engines.ENGINES[name], n_predict=TOKENS
                    )
                )
                assert _counts(sample) == (found.n_rounds, found.n_drafted, found.n_accepted), size
                accepted += sample.n_accepted or 0
    assert accepted > TOKENS


def _counts(sample: Sample) -> tuple[int | None, int | None, int | None]:
    return sample.n_rounds, sample.n_drafted, sample.n_accepted


@pytest.mark.parametrize("pair", PAIRS)
def test_p_min_accepts_as_many_as_foretold(
    llama: Install, library: InprocessEngine, tmp_path: Path, pair: str
) -> None:
    shares = []
    with engines.make("server", llama, timeout_s=120) as engine:
        for texts in _traces(library, pair):
            for p_min in (0.5, 0.8):
                spec = replace(_spec(pair, p_min=p_min), prompt=texts.prompt)
                sample = embedded.measured(engine, spec, tmp_path / "run")
                found = trace.count(
                    trace.steps(
                        texts.by_drafter[0],
                        n_max=LONGEST,
                        program=Program.SERVER,
                        n_predict=TOKENS,
                        p_min=p_min,
                    )
                )
                assert (sample.n_rounds, sample.n_accepted) == (found.n_rounds, found.n_accepted)
                assert sample.n_drafted is not None
                shares.append(abs(found.n_drafted / sample.n_drafted - 1))
    assert max(shares) < 0.1


@pytest.mark.parametrize("pair", PAIRS)
def test_a_head_costs_time_in_every_part_of_a_round(library: InprocessEngine, pair: str) -> None:
    spec = _spec(pair)
    assert spec.draft_source is not None
    curve = library.curve(spec.baseline, [spec.draft_source], batches=(1, 2, 5), depths=(32, 128), repeats=2)
    for part, sizes in (
        (RoundPart.VERIFY, {1, 2, 5}),
        (RoundPart.ABSORB, {1, 2, 5}),
        (RoundPart.DRAFT, {1, 4}),
    ):
        here = [one for one in curve.timings if one.part is part and one.drafter == 0]
        assert {one.tokens for one in here} == sizes
        assert min(one.seconds for one in here) > 0


@pytest.mark.parametrize("pair", PAIRS)
def test_the_target_alone_writes_the_same_after_a_head(
    library: InprocessEngine, tmp_path: Path, pair: str
) -> None:
    spec = _spec(pair).baseline
    before = library.measure(spec, tmp_path / "run").sample
    _traces(library, pair)
    after = library.measure(spec, tmp_path / "run").sample
    assert before.status is after.status is Status.OK
    assert before.text == after.text
