"""Tunings where no library can trace: rounds forecast draft models, other sizes are measured."""

from __future__ import annotations

import random
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from ggufspec import tuning
from ggufspec.domain import Drafting, Method, Program, RunResult, RunSpec, Sample, Status
from ggufspec.engines import Measurement
from ggufspec.errors import NoInstallError, TimeLimitError
from ggufspec.measure import Deadline
from ggufspec.options import TuneOptions
from ggufspec.results import ResultSet
from ggufspec.steps import finish
from ggufspec.tuning import Plan, TuningForecast, looking, prospects
from ggufspec.tuning.planning import prepare_tuning
from tests.support import fake_server, scripted, values
from tests.support.scripted import Clock, Scripted
from tests.support.walks import rounds_of, trace_of

BEST = 6  # draft size
LOAD_S, TOKEN_S = 1.0, 0.01


@pytest.fixture
def llama(llama: Path) -> Path:
    """Programs alone, as a container or a package without libraries has them."""
    fake_server.program(llama / "llama-server")
    return llama


@dataclass(kw_only=True)
class Server(Scripted):
    """A server whose loads and tokens take time."""

    clock: Clock

    def measure(self, spec: RunSpec, log: Path) -> Measurement:
        """Load where another arm ran before, and answer."""
        n_loads = len(self.loaded)
        measured = super().measure(spec, log)
        self.clock.now += LOAD_S * (len(self.loaded) - n_loads) + spec.n_predict * TOKEN_S
        return measured


def _plan(**options: Any) -> Plan:
    return prepare_tuning(TuneOptions(pair="demo", serve_ctx=512, **options))


def _look(plan: Plan, limit_s: float | None, monkeypatch: pytest.MonkeyPatch) -> TuningForecast:
    clock = Clock()
    monkeypatch.setattr("time.monotonic", clock)
    engine = Server(clock=clock, name="server", keeps_loads=True, answer=lambda spec: _answer(spec))
    deadline = Deadline.start(limit_s, run_share=0.25, clock=clock)
    timed = replace(plan, session=replace(plan.session, engine=engine), deadline=deadline)
    return looking.outlook(timed)


def _answer(spec: RunSpec) -> Sample:
    return scripted.sample(spec, tps=1 / TOKEN_S)


def _sizes(outlook: TuningForecast, method: Method) -> list[int]:
    found = [arm.drafting for arm in outlook.unknown if arm.drafting is not None]
    return [drafting.n_max for drafting in found if drafting.method is method]


def test_a_line_says_why_there_is_no_trace(llama: Path) -> None:
    plan = _plan()
    assert plan.why_untraced == (
        f"the llama.cpp in {llama} has no shared library beside its programs (`ggufspec build` makes a "
        "llama.cpp whose library can trace texts)"
    )
    (note,) = [note for note in plan.session.notes if note.startswith("forecast: without a trace")]
    assert plan.why_untraced in note


def test_a_forecast_alone_is_refused_where_nothing_can_be_forecast(llama: Path) -> None:
    with pytest.raises(NoInstallError, match=r"nothing can be forecast: .* no shared library") as caught:
        tuning.forecast_tuning(pair="demo", method=("ngram-mod",))
    assert "leave out --forecast" in str(caught.value.hint)


_TEXT = tuple(random.Random(3).random() < 0.8 for _ in range(400))  # which tokens the drafter has right
_ROUND_S, _DRAFT_S = 0.012, 0.0015  # the target's batch, and a drafted token


def _answer_in_rounds(spec: RunSpec) -> Sample:
    """What a server answers whose drafter has ``_TEXT`` right; others draft as the model does."""
    n_predict = spec.n_predict
    if spec.drafting is None:
        return Sample(
            status=Status.OK, program=Program.SERVER, gen_tokens=n_predict, gen_s=(n_predict - 1) * TOKEN_S
        )
    rounds = rounds_of(trace_of(_TEXT), n_max=spec.drafting.n_max, n_predict=n_predict)
    seconds = sum(_ROUND_S + _DRAFT_S * entry.drafted if entry.drafted else TOKEN_S for entry in rounds)
    return Sample(
        status=Status.OK, program=Program.SERVER, gen_tokens=n_predict, gen_s=seconds, rounds=rounds
    )


def _answer_with_counts(spec: RunSpec) -> Sample:
    """The same of a server that only counts how often each position of a draft was accepted."""
    sample = _answer_in_rounds(spec)
    rounds = sample.rounds or ()
    counts = [sum(entry.accepted > place for entry in rounds) for place in range(16)]
    reported = tuple(counts[: spec.drafting.n_max]) if spec.drafting else None
    return replace(sample, rounds=None, accepted_at=reported, n_rounds=len(rounds))


@pytest.mark.parametrize(("answer", "error"), [(_answer_in_rounds, 0.02), (_answer_with_counts, 0.03)])
def test_rounds_at_the_largest_size_forecast_every_other_one(
    answer: Callable[[RunSpec], Sample], error: float, llama: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Costs lie on a straight line here, so the forecast of each size is what a run of it would show."""
    monkeypatch.setattr(f"{__name__}._answer", answer)
    outlook = _look(_plan(n_predict=300), None, monkeypatch)
    sizes = [prospect.overall.drafting.n_max for prospect in outlook.prospects]
    assert sizes == [*range(1, 17)]
    for prospect in outlook.prospects:
        shown = _answer_in_rounds(replace(prospect.arm, n_predict=300)).decode_tps
        found = prospect.overall.tokens_per_s
        assert found.value == pytest.approx(shown, rel=error), prospect.overall.drafting.n_max
        assert found.lo < shown < found.hi
    assert outlook.finalists == 3
    assert not _sizes(outlook, Method.DRAFT_MODEL)
    assert _sizes(outlook, Method.NGRAM_MOD)  # measured, not replayed
    (note,) = [note for note in outlook.notes if note.startswith("forecast: draft sizes")]
    assert "by its rounds at γ 16" in note


def test_every_source_comes_before_second_sizes(llama: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{__name__}._answer", _answer_in_rounds)
    outlook = _look(_plan(n_predict=300), 90.0, monkeypatch)
    assert outlook.finalists == 1
    (unknown,) = outlook.unknown
    assert not unknown.drafts_by.method.drafts_with_model


def test_a_forecast_needs_no_library_for_a_draft_model(llama: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{__name__}._answer", _answer_in_rounds)
    plan = replace(_plan(method=("draft-model",)), forecast_only=True)
    outlook = _look(plan, 60.0, monkeypatch)
    assert len(outlook.prospects) == 16
    assert outlook.prospects[0].overall.draft_share is None


def test_sources_come_first_then_the_farthest_sizes(llama: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    outlook = _look(_plan(), None, monkeypatch)
    assert outlook.prospects == ()
    assert _sizes(outlook, Method.DRAFT_MODEL)[:3] == [3, 16, 1]
    sources = [prospects.source(arm) for arm in outlook.unknown]
    n_sources = len({*sources})
    assert len({*sources[:n_sources]}) == n_sources > 1
    assert {arm.drafting.p_min for arm in outlook.unknown if arm.drafting} == {0.0}


def test_what_is_measured_fits_into_the_limit(llama: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = _plan(draft=tuple(range(1, 17)), method=("draft-model",), n_predict=64)
    ample, tight = (_look(plan, limit_s, monkeypatch) for limit_s in (3600.0, 60.0))
    assert _sizes(ample, Method.DRAFT_MODEL) == [3, 16, 1]
    assert len(tight.unknown) == 2
    assert tight.n_predict <= ample.n_predict
    assert len(tight.prompts) < len(ample.prompts)
    assert ample.pace.token_s == pytest.approx(TOKEN_S)
    assert ample.pace.load_s == pytest.approx(LOAD_S)
    with pytest.raises(TimeLimitError, match="too short for this model"):
        _look(plan, 5.0, monkeypatch)


def test_a_target_that_does_not_run_is_an_error(llama: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = _plan()
    monkeypatch.setattr(
        f"{__name__}._answer", lambda spec: replace(scripted.sample(spec), status=Status.LOAD_FAILED)
    )
    with pytest.raises(Exception, match="forecasting failed"):
        _look(plan, None, monkeypatch)


def test_sizes_beside_the_fastest_are_measured(llama: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It comes from the first three sizes to the best one, without measuring all."""
    plan = _plan(draft=tuple(range(1, 17)), method=("draft-model",), p_min=(0.0, 0.5))
    outlook = _look(plan, None, monkeypatch)
    tuned, benches = _measure(plan, outlook)
    drafting = tuned.overall.spec.drafting
    assert drafting is not None, tuned.overall.judgement
    assert (drafting.n_max, drafting.p_min) == (BEST, 0.5)
    measured = {arm.drafting for arm in _arms(benches[-2]) if arm.drafting}
    assert {(BEST - 1, 0.5), (BEST + 1, 0.5)} <= {(each.n_max, each.p_min) for each in measured}
    assert len(measured) < 20  # of 32
    assert benches[-1].confirms
    assert tuned.outlook.prospects == ()


def test_with_a_library_only_the_edge_is_followed(llama: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = _plan(draft=tuple(range(1, 17)), method=("draft-model",))
    outlook = _look(plan, None, monkeypatch)
    _, benches = _measure(replace(plan, why_untraced=None), outlook)
    assert [bench.confirms for bench in benches] == [False, True]


def _measure(plan: Plan, outlook: TuningForecast) -> tuple[tuning.Tuned, list[tuning.NextBench]]:
    """Measure finalists on a machine on which a draft of ``BEST`` tokens with p-min 0.5 is the fastest."""
    steps: Generator[tuning.NextBench, Any, tuning.Tuned] = tuning.measure_finalists(plan, outlook)
    benches = list[tuning.NextBench]()

    def measure(bench: tuning.NextBench) -> ResultSet:
        benches.append(bench)
        return values.bench(*_runs(bench))

    return finish(steps, measure), benches


def _arms(bench: tuning.NextBench) -> Iterator[RunSpec]:
    for block in bench.session.suite.blocks:
        yield from block.arms


def _runs(bench: tuning.NextBench) -> Iterator[RunResult]:
    for arm in _arms(bench):
        for repeat in range(3):
            for number, prompt in enumerate(bench.session.suite.prompts):
                run = values.run(
                    arm.role,
                    prompt=prompt.id,
                    repeat=repeat,
                    tps=(50 + number) * _gain(arm.drafting) * (1 + repeat / (1000 if arm.drafting else 500)),
                    draft=None if arm.drafting is None else arm.drafting.n_max,
                )
                yield replace(run, spec=replace(arm, prompt=prompt))


def _gain(drafting: Drafting | None) -> float:
    if drafting is None:
        return 1.0
    return 2.0 - 0.1 * abs(drafting.n_max - BEST) + 0.2 * drafting.p_min
