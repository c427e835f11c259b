"""The engine `inprocess` on the real library and the embedded pair."""

from __future__ import annotations

import json
import math
import os
import shutil
import signal
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ggufspec import engines, proc, stats
from ggufspec.domain import (
    Drafting,
    Failure,
    ModelFile,
    Program,
    Role,
    RunSpec,
    Sample,
    Sampling,
    Status,
)
from ggufspec.engines.inprocess import InprocessEngine
from ggufspec.engines.library.messages import RoundPart
from ggufspec.forecast import profiles, trace
from ggufspec.forecast.profiles import TracedTexts
from ggufspec.llama.install.installs import Install
from ggufspec.measure.scoring import summarize_scores
from tests.support import embedded, models, shell
from tests.support.walks import rounds_of, traced_run

TOKENS = 60
CHOSEN = ("story-lantern", "list-recipe", "qa-teacher")
NUCLEUS = Sampling(temperature=0.6, top_k=0, top_p=0.9, seed=7)


pytestmark = pytest.mark.takes(1, together="inprocess")


@pytest.fixture
def fresh(llama: Install) -> Iterator[InprocessEngine]:
    """An engine that has loaded nothing."""
    before = shell.children()
    with InprocessEngine(install=llama, timeout_s=120) as made:
        yield made
    assert shell.children() <= before  # no process is left


@pytest.fixture(scope="module")
def engines_of_all() -> Iterator[list[InprocessEngine]]:
    made = list[InprocessEngine]()
    yield made
    for engine in made:
        engine.close()


@pytest.fixture
def engine(llama: Install, engines_of_all: list[InprocessEngine]) -> InprocessEngine:
    """One engine for all tests that do not look at what it loads: each start of a worker takes a while."""
    if not engines_of_all:
        engines_of_all.append(InprocessEngine(install=llama, timeout_s=120))
    return engines_of_all[0]


def _spec(role: Role, name: str = CHOSEN[0], *, draft: int | None = None, tokens: int = TOKENS) -> RunSpec:
    drafting = Drafting(n_max=draft) if draft else None
    return embedded.spec(role, prompt=embedded.PROMPTS[name], n_predict=tokens, drafting=drafting)


def _drafter() -> ModelFile:
    return _spec(Role.DRAFTER).pair.draft


_TRACED: dict[tuple[str, tuple[int, int] | None], TracedTexts] = {}


def _traced(engine: InprocessEngine, name: str, *, writing: tuple[int, int] | None = None) -> TracedTexts:
    """Return the text of a prompt, with the drafter's look at it, long enough for every run here.

    It is traced by the first test that asks.
    """
    if (name, writing) not in _TRACED:
        spec = _spec(Role.TARGET, name, tokens=trace.needed(TOKENS, 8, Program.SIMPLE))
        (_TRACED[name, writing],) = profiles.traces(
            engine, spec, [spec.prompt], [_drafter()], writing=writing
        )
    return _TRACED[name, writing]


def _pid(engine: InprocessEngine) -> int:
    (hosted,) = engine._pool._held.values()
    return hosted.pid


def test_drafting_writes_the_targets_tokens_at_each_size(fresh: InprocessEngine, tmp_path: Path) -> None:
    loads, lengths = 0, []
    for name in CHOSEN:
        alone = fresh.measure(_spec(Role.TARGET, name, tokens=TOKENS + 9), tmp_path / "alone").sample
        assert (alone.status, alone.n_drafted, alone.gen_tokens) == (Status.OK, None, TOKENS + 8)
        loads += alone.load_ms is not None
        runs = {}
        for size in (2, 3, 5, 8):
            runs[size] = fresh.measure(_spec(Role.DRAFTING, name, draft=size), tmp_path / "drafted").sample
            loads += runs[size].load_ms is not None
            _check_counts(runs[size], size)
        changes_at = trace.first_text_tie(_traced(fresh, name).target_trace)
        for drafted in runs.values():
            same = int(min(len(drafted.tokens), changes_at))
            assert drafted.tokens[:same] == alone.tokens[:same]
            lengths.append(same)
    assert loads == 2  # the target once, the drafter once
    assert max(lengths) > TOKENS / 2  # not all of them have a near-tie early on


def _check_counts(sample: Sample, size: int) -> None:
    assert sample.status is Status.OK
    assert (sample.n_draft, max(one.drafted for one in sample.rounds)) == (size, size)
    assert sum(one.drafted for one in sample.rounds) == sample.n_drafted
    assert sum(one.accepted for one in sample.rounds) == sum(sample.accepted_at) == sample.n_accepted
    assert sample.n_rounds == len(sample.rounds) == sample.gen_tokens - (sample.n_accepted or 0)
    assert TOKENS < sample.gen_tokens <= TOKENS + 1 + size
    assert sample.devices == ("CPU",)
    assert 0.8 * sample.gen_s < (sample.draft_s or 0) + (sample.verify_s or 0) <= sample.gen_s


@pytest.mark.parametrize(
    "drafting",
    [
        Drafting(n_max=2),
        Drafting(n_max=8),
        Drafting(n_max=8, p_min=0.6),
        Drafting(n_max=5, p_min=0.8, n_min=3),
    ],
    ids=str,
)
def test_counts_are_those_of_the_simple_program(
    engine: InprocessEngine, llama: Install, tmp_path: Path, drafting: Drafting
) -> None:
    equal = 0
    with engines.make("binary-simple", llama, timeout_s=120) as program:
        for name in CHOSEN[:2]:
            spec = replace(_spec(Role.DRAFTING, name, draft=1), drafting=drafting)
            ours = engine.measure(spec, tmp_path / "ours").sample
            tries = (program.measure(spec, tmp_path / "theirs").sample for _ in range(6))
            theirs = next(one for one in tries if one.accepted_at is not None)  # the program loses log lines
            _check_counts(ours, drafting.n_max)
            assert theirs.n_rounds == (theirs.gen_tokens or 0) - (theirs.n_accepted or 0)
            if not _is_sure_everywhere(_traced(engine, name).by_drafter[0], drafting):
                continue
            equal += 1
            for field in (
                "n_drafted",
                *("n_accepted", "gen_tokens", "n_rounds", "accepted_at", "prompt_tokens"),
            ):
                assert getattr(ours, field) == getattr(theirs, field), field
            assert (ours.text or "").rstrip("\n") == theirs.text
    assert equal


def _is_sure_everywhere(view: trace.DraftTrace, drafting: Drafting) -> bool:
    """Whether no near-tie can change a round, wherever one begins; n_min moves where that is."""
    for place in range(TOKENS + 1):
        end = place + 1 + drafting.n_max
        rest = replace(
            view,
            tokens=view.tokens[place:end],
            match=view.match[place:end],
            confidence=view.confidence[place:end],
            text_leads=view.text_leads[place:end],
            leads=view.leads[place:end],
        )
        one_round = trace.certainty(
            rest, traced_run(n_max=drafting.n_max, program=Program.SIMPLE, n_predict=0, p_min=drafting.p_min)
        )
        if not one_round.is_sure:
            return False
    return True


def test_the_raw_record_tells_every_round(fresh: InprocessEngine, tmp_path: Path) -> None:
    sample = fresh.measure(_spec(Role.DRAFTING, draft=3), tmp_path / "run").sample
    record = json.loads((tmp_path / "run.out").read_text())
    assert b"loaded meta data" in (tmp_path / "run.err").read_bytes()  # the library's own log
    assert len(record["rounds"]) == sample.n_rounds
    for one in record["rounds"]:
        assert len(one["probabilities"]) == len(one["drafted"])
        assert all(0 < probability <= 1 for probability in one["probabilities"])
        assert min(one["draft_s"], one["absorb_s"], one["verify_s"]) > 0
    assert record["at_s"] == sorted(record["at_s"])
    fresh.measure(_spec(Role.DRAFTING, draft=3), tmp_path / "run")
    assert b"loaded meta data" not in (tmp_path / "run.err").read_bytes()  # each log is its run's own


def test_several_drafters_draft_for_one_loaded_target(fresh: InprocessEngine, tmp_path: Path) -> None:
    spec = _spec(Role.DRAFTING, draft=3)
    copy = tmp_path / "copy.gguf"
    shutil.copy(str(_drafter().path), copy)
    other = replace(spec, pair=replace(spec.pair, draft=replace(_drafter(), path=copy)))
    first = fresh.measure(spec, tmp_path / "log")
    pid = _pid(fresh)
    second = fresh.measure(other, tmp_path / "log")
    assert fresh.load_key(spec) == fresh.load_key(other) == fresh.load_key(spec.baseline)
    assert _pid(fresh) == pid
    assert first.sample.rounds == second.sample.rounds
    assert fresh.measure(_spec(Role.DRAFTER), tmp_path / "log").sample.load_ms is None  # drafts, and alone


def test_sampling_is_repeatable_and_seeded(engine: InprocessEngine, tmp_path: Path) -> None:
    spec = replace(_spec(Role.DRAFTING, draft=4), sampling=NUCLEUS)
    first, again = (engine.measure(spec, tmp_path / "log").sample for _ in range(2))
    other = engine.measure(replace(spec, sampling=replace(NUCLEUS, seed=8)), tmp_path / "log").sample
    assert (first.status, first.tokens, first.rounds) == (Status.OK, again.tokens, again.rounds)
    assert other.tokens != first.tokens
    _check_counts(first, 4)


def test_a_trace_foretells_what_drafting_accepts(engine: InprocessEngine, tmp_path: Path) -> None:
    """One pass over the target's text fixes the counts of every draft size; see the map's section 7."""
    spec = _spec(Role.TARGET)
    (texts,) = profiles.traces(
        engine, replace(spec, n_predict=TOKENS + 10), [spec.prompt], [_drafter(), _drafter()]
    )
    first, second = texts.by_drafter
    assert len(first.match) == len(first.confidence) == len(first.tokens) == TOKENS + 10
    assert first.match == second.match
    assert first.overlap is None
    sure = 0
    for size in (2, 5, 8):
        sample = engine.measure(_spec(Role.DRAFTING, draft=size), tmp_path / "log").sample
        program = engines.ENGINES[engine.name]
        rounds = rounds_of(first, n_max=size, program=program, n_predict=TOKENS)
        known = trace.certainty(first, traced_run(n_max=size, program=program, n_predict=TOKENS))
        assert sample.rounds[: known.sure] == rounds[: known.sure]
        assert sample.rounds == rounds or not known.is_sure
        assert known.fewest <= len(sample.rounds) <= known.most or not known.keeps_text
        sure += known.sure
    assert sure


def test_a_drafter_that_is_the_target_overlaps_with_it_wholly(engine: InprocessEngine) -> None:
    heat = 0.6
    spec = replace(_spec(Role.TARGET), sampling=Sampling(temperature=heat, top_k=0, seed=7))
    drafter = _drafter()
    itself, other = engine.trace(spec, [spec.pair.target, drafter]).drafters
    spread = _traced(engine, CHOSEN[0]).target_trace.text_spread
    least = math.exp(-3 * spread / heat)  # in batches and one by one, ratios of chances move by no more
    assert len(itself.overlaps) == TOKENS
    assert all(least <= overlap <= 1 + 1e-6 for overlap in itself.overlaps)
    assert 0.1 < sum(other.overlaps) / TOKENS < 0.999


def test_a_server_draws_drafts_without_the_targets_nucleus(engine: InprocessEngine) -> None:
    """Its drafter has ten tokens at the target's temperature: then even the target itself differs."""
    narrow = replace(NUCLEUS, temperature=1.5, top_p=0.5)
    spec = replace(_spec(Role.TARGET), sampling=narrow)
    seen = {
        program: engine.trace(spec, [spec.pair.target], program=program).drafters[0].overlaps
        for program in (Program.SIMPLE, Program.SERVER)
    }
    as_target, as_server = (sum(seen[program] or ()) / TOKENS for program in seen)
    assert as_server < 0.99 * as_target


def test_a_drafter_that_helps_to_write_changes_nothing(engine: InprocessEngine) -> None:
    compared = 0
    for name in CHOSEN:
        alone, helped = (_traced(engine, name, writing=writing) for writing in (None, (0, 8)))
        assert len(helped.target_trace.tokens) == len(alone.target_trace.tokens)
        changes_at = trace.first_text_tie(alone.target_trace)
        if changes_at == math.inf:
            assert (helped.text, helped.target_trace.ended) == (alone.text, alone.target_trace.ended)
        same = int(min(changes_at, len(alone.target_trace.tokens)))
        ours, theirs = helped.by_drafter[0], alone.by_drafter[0]
        assert ours.tokens[:same] == theirs.tokens[:same]
        assert ours.match[:same] == theirs.match[:same]
        assert ours.confidence[:same] == pytest.approx(theirs.confidence[:same], abs=1e-6)
        compared += same
    assert compared > TOKENS


def test_a_curve_times_every_batch_at_every_depth(engine: InprocessEngine) -> None:
    spec = _spec(Role.TARGET)
    drafter = _drafter()
    curve = engine.curve(spec, [drafter], batches=(1, 2, 5), depths=(32, 128), repeats=2)
    assert min(one.seconds for one in curve.timings) >= 0
    assert {one.depth_tokens for one in curve.timings} == {32, 128}
    for part, sizes in (
        (RoundPart.VERIFY, {1, 2, 5}),
        (RoundPart.CHOOSE, {1, 2, 5}),
        (RoundPart.ABSORB, {1, 2, 5}),
        (RoundPart.DRAFT, {1, 4}),
    ):
        here = [one for one in curve.timings if one.part is part and one.drafter == 0]
        assert {one.tokens for one in here} == sizes
        assert len(here) == 3 * 2 * 2 * 2  # sizes, depths, repeats, samples of each
    alone = [one for one in curve.timings if one.drafter is None]
    assert [(one.part, one.tokens) for one in alone] == [(RoundPart.VERIFY, 1), (RoundPart.CHOOSE, 1)] * 8
    resized = [one for one in curve.timings if one.part is RoundPart.RESIZE]
    assert len(resized) == 3 * 2 * 2  # the first round of each size
    with pytest.raises(Failure, match="do not fit"):
        engine.curve(spec, [drafter], depths=(500,))


def test_a_crash_in_the_middle_of_a_run_is_a_row(fresh: InprocessEngine, tmp_path: Path) -> None:
    assert fresh.measure(_spec(Role.DRAFTING, draft=3), tmp_path / "log").sample.status is Status.OK
    timer = threading.Timer(0.2, os.kill, (_pid(fresh), signal.SIGSEGV))
    timer.start()
    crashed = fresh.measure(_spec(Role.TARGET, tokens=440), tmp_path / "log")
    timer.join()
    assert (crashed.sample.status, crashed.sample.text) == (Status.CRASHED, None)
    assert fresh.measure(_spec(Role.DRAFTING, draft=3), tmp_path / "log").sample.status is Status.OK


@pytest.mark.parametrize(
    ("changes", "status", "reason"),
    [
        ({"context": 1 << 24}, Status.OUT_OF_MEMORY, f"{1 << 24} tokens"),
        ({"prompt": embedded.LONG}, Status.PROMPT_TOO_LONG, "context of 512 tokens"),
    ],
)
def test_what_cannot_be_run_is_said_so(
    engine: InprocessEngine, tmp_path: Path, changes: dict[str, Any], status: Status, reason: str
) -> None:
    measured = engine.measure(replace(_spec(Role.TARGET), **changes), tmp_path / "log")
    assert measured.sample.status is status
    assert reason in (measured.error or "")


def test_logits_that_are_not_numbers_are_said_so(engine: InprocessEngine, tmp_path: Path) -> None:
    shape = models.llama(n_layers=1, n_embd=32, n_ff=32, n_heads=1, vocabulary=models.tokens(400))
    path = models.write_model(tmp_path / "nan.gguf", *shape)
    norms = 3 * 32 * 4  # bytes of the last three tensors, the output's norm among them
    with path.open("r+b") as file:
        file.seek(-norms, os.SEEK_END)
        file.write(b"\xff" * norms)
    measured = engine.measure(embedded.with_models(_spec(Role.TARGET), target=path), tmp_path / "log")
    assert measured.sample.status is Status.FAILED
    assert "not numbers (NaN)" in (measured.error or "")


def test_the_command_makes_the_same_run(engine: InprocessEngine, llama: Install, tmp_path: Path) -> None:
    spec = _spec(Role.DRAFTING, draft=3)
    measured = engine.measure(spec, tmp_path / "log")
    completed, out, _ = proc.capture(measured.argv)
    assert completed.returncode == 0
    assert tuple(json.loads(out)["tokens"]) == measured.sample.tokens


def test_the_target_scores_complete_texts(engine: InprocessEngine, tmp_path: Path) -> None:
    spec = _spec(Role.TARGET)
    own = engine.measure(spec, tmp_path / "own").sample
    for answer in (own.tokens, own.text):  # the text alone is tokenised as it was written
        audit = summarize_scores(engine.score(spec, answer, ended=False), greedy=True)
        assert (audit.tokens, audit.divergent) == (TOKENS, 0)
    wrong = (*own.tokens[:40], own.tokens[0], *own.tokens[41:])
    audit = summarize_scores(engine.score(spec, wrong, ended=False), greedy=True)
    assert (audit.tokens, audit.first_divergent) == (TOKENS, 40)
    for answer in (own.tokens[:40], own.text[: own.text.rindex(" ", 0, 40)]):
        ended = summarize_scores(engine.score(spec, answer, ended=True), greedy=True)
        assert ended.first_divergent == ended.tokens - 1  # the target would have gone on
    with pytest.raises(Failure, match="are not known"):
        engine.score(replace(spec, sampling=NUCLEUS), own.text, ended=False)


def test_sampled_texts_are_tested_against_the_target(engine: InprocessEngine, tmp_path: Path) -> None:
    drawn, other = (Sampling(temperature=heat, top_k=0, seed=1) for heat in (2.0, 1.0))
    text = engine.measure(
        replace(_spec(Role.TARGET, tokens=300), sampling=drawn), tmp_path / "log"
    ).sample.tokens
    p_values = []
    for sampling in (drawn, other):
        scores = engine.score(replace(_spec(Role.TARGET), sampling=sampling), text, ended=False)
        audit = summarize_scores(scores, greedy=False)
        assert (audit.tokens, audit.impossible) == (len(text), 0)
        p_values.append(stats.uniform_p_value(audit.places or ()))
    as_drawn, otherwise = p_values
    assert otherwise < 1e-6 < as_drawn
