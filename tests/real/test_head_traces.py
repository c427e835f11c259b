"""What the library finds out about the embedded heads, against runs of llama.cpp's own programs."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path

import pytest

from ggufspec import engines, paths
from ggufspec.domain import Drafting, Method, Program, Role, RunSpec, Sample, Status
from ggufspec.engines.inprocess import InprocessEngine
from ggufspec.engines.library import DraftLimits, RoundPart
from ggufspec.forecast import profiles, trace
from ggufspec.llama.install import installs
from ggufspec.llama.install.installs import Install
from ggufspec.modelfiles import catalog, hub
from tests.support import embedded, shell
from tests.support.walks import traced_run

PAIRS = {"demo-eagle3": Method.DRAFT_EAGLE3, "demo-mtp": Method.DRAFT_MTP, "demo-dflash": Method.DRAFT_DFLASH}
PROMPTS = ("story-lantern", "list-recipe", "qa-teacher")
TOKENS = 60
LONGEST = 7
SIZES = (1, 4, LONGEST)
P_MINS = (0.5, 0.8)
TRACED = [pytest.param(pair, marks=pytest.mark.takes(8, together=f"traces of {pair}")) for pair in PAIRS]
LIMITS = DraftLimits(sizes=SIZES, p_mins=(0.0, *P_MINS), starts=(0, 1, TOKENS))


@pytest.fixture
def library(llama: Install) -> Iterator[InprocessEngine]:
    with InprocessEngine(install=llama, timeout_s=120, with_mtp=True) as engine:
        yield engine


def _spec(pair: str, *, draft: int = LONGEST, p_min: float = 0.0) -> RunSpec:
    drafting = Drafting(n_max=draft, method=PAIRS[pair], p_min=p_min)
    models = hub.resolve(catalog.find_pair(pair), offline=True)
    return embedded.spec(Role.DRAFTING, pair=models, n_predict=TOKENS, drafting=drafting)


def _trace(library: InprocessEngine, pair: str, *names: str) -> tuple[profiles.TracedTexts, ...]:
    spec = _spec(pair)
    assert spec.draft_source is not None
    chosen = [embedded.PROMPTS[name] for name in names]
    long = replace(spec.baseline, n_predict=trace.needed(TOKENS, LONGEST, Program.SIMPLE))
    return tuple(profiles.traces(library, long, chosen, [spec.draft_source], limits=LIMITS))


@functools.cache
def _traces(root: Path, pair: str) -> tuple[profiles.TracedTexts, ...]:
    """Trace a pair once for all tests."""
    install = installs.find_install(root)
    with InprocessEngine(install=install, timeout_s=120, with_mtp=True) as library:
        return _trace(library, pair, *PROMPTS)


@pytest.mark.parametrize("pair", TRACED)
@pytest.mark.parametrize("name", ["server", "binary-simple"])
def test_traces_foretell_all_draft_sizes(llama: Install, tmp_path: Path, pair: str, name: str) -> None:
    accepted = sure = 0
    with engines.make(name, llama, timeout_s=120) as engine:
        for texts in _traces(llama.root, pair):
            for size in SIZES:
                spec = replace(_spec(pair, draft=size), prompt=texts.prompt)
                sample = embedded.measured(engine, spec, tmp_path / "run")
                foretold = _foretell(texts.by_drafter[0], spec, engines.ENGINES[name])
                foretold.check(sample)
                if foretold.certainty.is_sure:
                    assert sample.n_drafted == foretold.counts.n_drafted, size
                sure += foretold.certainty.sure
                accepted += sample.n_accepted or 0
    assert accepted > TOKENS
    assert sure > TOKENS


@dataclass(frozen=True)
class _Foretold:
    """What a trace says of a run, and how sure that is."""

    rounds: tuple[int, ...]  # what each of them accepts
    counts: trace.Counts
    certainty: trace.Certainty

    def check(self, sample: Sample) -> None:
        """Compare with a run: equal where that is sure, else within what near-ties can change."""
        if self.certainty.is_sure:
            assert (sample.n_rounds, sample.n_accepted) == (self.counts.n_rounds, self.counts.n_accepted)
        if self.certainty.keeps_text:
            assert self.certainty.fewest <= sample.n_rounds <= self.certainty.most
            beyond = sample.n_rounds + sample.n_accepted - TOKENS
            assert -1 <= beyond <= 1 + LONGEST  # each round adds what it accepts and one token
        if sample.rounds is not None:
            accepted = tuple(one.accepted for one in sample.rounds)
            assert accepted[: self.certainty.sure] == self.rounds[: self.certainty.sure]


def _foretell(view: trace.DraftTrace, spec: RunSpec, program: Program) -> _Foretold:
    size, p_min = spec.drafting.n_max, spec.drafting.p_min
    taken = trace.steps(view, traced_run(n_max=size, program=program, n_predict=TOKENS, p_min=p_min))
    known = trace.certainty(view, traced_run(n_max=size, program=program, n_predict=TOKENS, p_min=p_min))
    assert known is not None
    return _Foretold(tuple(int(step.accepted) for step in taken), trace.count(taken), known)


@pytest.mark.parametrize("pair", TRACED)
def test_p_min_accepts_as_many_as_foretold(llama: Install, tmp_path: Path, pair: str) -> None:
    """Drafts that the target takes whole end where foretold; behind a miss, other confidences stand in."""
    shares, sure = [], 0
    with engines.make("server", llama, timeout_s=120) as engine:
        for texts in _traces(llama.root, pair):
            for p_min in P_MINS:
                spec = replace(_spec(pair, p_min=p_min), prompt=texts.prompt)
                sample = embedded.measured(engine, spec, tmp_path / "run")
                foretold = _foretell(texts.by_drafter[0], spec, Program.SERVER)
                foretold.check(sample)
                sure += foretold.certainty.sure
                if foretold.certainty.is_sure:
                    shares.append(abs(foretold.counts.n_drafted / sample.n_drafted - 1))
    assert sure > TOKENS / LONGEST
    assert max(shares, default=0) < (0.1 if PAIRS[pair] is not Method.DRAFT_DFLASH else 1e-9)


def test_counts_of_mtp_do_not_depend_on_the_request_before(llama: Install, tmp_path: Path) -> None:
    """llama-server keeps a state of the request before for the layer's first token."""
    runs = [
        replace(_spec("demo-mtp", p_min=p_min), prompt=embedded.PROMPTS[name])
        for name in PROMPTS
        for p_min in (0.0, *P_MINS)
    ]
    by_run: dict[RunSpec, set[tuple[int | None, ...]]] = {}
    with engines.make("server", llama, timeout_s=120) as engine:
        for spec in (*runs, *reversed(runs), *runs[::2]):
            sample = embedded.measured(engine, spec, tmp_path / "run")
            counts = (sample.n_rounds, sample.n_drafted, sample.n_accepted)
            by_run.setdefault(spec, set()).add(counts)
    assert {len(counts) for counts in by_run.values()} == {1}


def test_a_trace_foretells_dsparks_choices(llama: Install, library: InprocessEngine, tmp_path: Path) -> None:
    """Its confidence head says how likely each token is accepted; with random weights that is near a half."""
    file = tmp_path / "dspark.gguf"
    target = paths.models_dir() / "demo" / "target.gguf"
    shell.make("make_random_head", target, "--kind", "dspark", "-o", file)
    spec = embedded.with_models(_spec("demo-dflash"), draft=file)
    spec = replace(spec, drafting=Drafting(n_max=LONGEST, method=Method.DRAFT_DSPARK))
    assert spec.draft_source is not None
    long = replace(spec.baseline, n_predict=trace.needed(TOKENS, LONGEST, Program.SIMPLE))
    (texts,) = profiles.traces(library, long, [spec.prompt], [spec.draft_source], limits=LIMITS)
    drafted = set()
    with engines.make("server", llama, timeout_s=120) as engine:
        for size, p_min in product((1, LONGEST), (0.0, *P_MINS)):
            drafting = Drafting(n_max=size, method=Method.DRAFT_DSPARK, p_min=p_min)
            run = replace(spec, drafting=drafting)
            sample = embedded.measured(engine, run, tmp_path / "run")
            foretold = _foretell(texts.by_drafter[0], run, Program.SERVER)
            foretold.check(sample)
            if foretold.certainty.is_sure:
                assert sample.n_drafted == foretold.counts.n_drafted, drafting
            drafted.add(sample.n_drafted)
    assert len(drafted) > 2


@pytest.mark.parametrize("pair", PAIRS)
def test_a_head_costs_time_and_leaves_the_text(library: InprocessEngine, tmp_path: Path, pair: str) -> None:
    spec = _spec(pair)
    before = library.measure(spec.baseline, tmp_path / "run").sample
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
    _trace(library, pair, PROMPTS[0])
    after = library.measure(spec.baseline, tmp_path / "run").sample
    assert before.status is after.status is Status.OK
    assert before.text == after.text
