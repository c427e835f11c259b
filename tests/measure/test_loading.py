from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ggufspec import machine
from ggufspec.domain import CacheTypes, ModelFile, Pair, Prompt, Role
from ggufspec.errors import GgufspecError
from ggufspec.llama.install import Install
from ggufspec.machine import Room
from ggufspec.measure import arms, runplan
from ggufspec.measure.loading import plan_loads, plan_repeats
from ggufspec.measure.runplan import Experience, RunPlan
from ggufspec.measure.sweep import Block, Sweep
from ggufspec.modelfiles.gguf import ModelCard
from ggufspec.report.text.projections import sweep_plan
from tests.support import models, shapes, values

NOT_INTERLEAVED = (
    "loads: with fewer than 3 loads of each arm, differences between loads and between arms cannot be told "
    "apart, so speed-ups are estimates, not verdicts (not-interleaved)"
)


SWEEP = Sweep(name="tiny", targets=(ModelFile(filename="t.gguf"),), drafters=(), n_predict=32, context=512)


def _suite(
    sweep: Sweep = SWEEP, *, prompts: int = 4, repeats: int = 5, max_time_s: float | None = None
) -> RunPlan:
    return RunPlan(
        blocks=sweep.blocks(),
        prompts=tuple(Prompt(id=f"p{number}", text="A") for number in range(prompts)),
        repeats=repeats,
        warmups=0,
        max_time_s=max_time_s,
    )


@pytest.mark.parametrize(
    ("engine", "asked", "repeats", "prompts", "loads", "notes"),
    [
        ("server", None, 5, 4, 5, ()),
        ("inprocess", None, 5, 4, 5, ()),
        ("binary", None, 5, 4, None, ()),  # programs load for every run
        ("binary-simple", None, 5, 4, None, ()),
        ("server", 3, 5, 4, 3, ("loads: 3 loads of each arm for 5 repeats",)),
        ("server", 1, 5, 4, 1, ("loads: 1 load of each arm for 5 repeats", NOT_INTERLEAVED)),
        ("server", None, 2, 4, 2, (NOT_INTERLEAVED,)),
        ("server", None, 2, 1, 2, ()),
    ],
)
def test_every_repeat_has_loads_of_its_own_unless_fewer_are_asked_for(
    engine: str, asked: int | None, repeats: int, prompts: int, loads: int | None, notes: tuple[str, ...]
) -> None:
    suite, said = plan_loads(_suite(prompts=prompts, repeats=repeats), asked, engine=engine)
    assert (suite.loads, said) == (loads, notes)


@pytest.mark.parametrize(
    ("engine", "asked", "what", "hint"),
    [
        ("binary", 3, "loads the models for each run, so --loads has no effect", "leave --loads out"),
        ("server", 6, "6 loads of each arm need at least 6 repeats, not 5", "raise --repeats to 6"),
    ],
)
def test_loads_that_cannot_be_are_refused(engine: str, asked: int, what: str, hint: str) -> None:
    with pytest.raises(GgufspecError, match=what) as refused:
        plan_loads(_suite(), asked, engine=engine)
    assert hint in (refused.value.hint or "")


def test_three_repeats_are_planned_where_five_take_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runplan, "experience", lambda: Experience(bytes_per_s=1.0))
    monkeypatch.setattr(Experience, "expect", lambda *_: 2.0)
    monkeypatch.setattr(Experience, "expect_load", lambda *_: 1.0)
    plenty = _suite(max_time_s=1000.0)
    assert plan_repeats(plenty, engine="server", is_given=False) == (plenty, ())
    short, notes = plan_repeats(_suite(max_time_s=44.0), engine="server", is_given=False)
    assert short.repeats == 3
    assert notes[0].startswith(
        "repeats: 3 of each prompt, because 5 would take about 45.0 s (--max-time 44.0 s)"
    )
    given = _suite(max_time_s=44.0)
    assert plan_repeats(given, engine="server", is_given=True) == (given, ())
    assert plan_repeats(_suite(), engine="server", is_given=False)[0].repeats == 5  # small models


def test_three_repeats_are_planned_where_a_load_takes_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runplan, "experience", lambda: Experience(bytes_per_s=1e9))
    large = replace(SWEEP, targets=(ModelFile(filename="t.gguf", size_bytes=60_000_000_000),))
    suite, notes = plan_repeats(_suite(large), engine="server", is_given=False)
    assert suite.repeats == 3
    assert "because a load takes about 1 min" in notes[0]
    assert "--repeats 5 finds smaller differences" in notes[0]


@pytest.mark.parametrize(
    ("max_time_s", "loads"), [(1000.0, 5), (140.0, 5), (139.0, 4), (100.0, 3), (60.0, 1), (59.0, 5), (1.0, 5)]
)
def test_time_limits_mean_fewer_loads(max_time_s: float, loads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """20 runs of 2 s, and loads of 20 s."""
    monkeypatch.setattr(runplan, "experience", lambda: Experience(bytes_per_s=1.0))
    monkeypatch.setattr(Experience, "expect", lambda *_: 2.0)
    monkeypatch.setattr(Experience, "expect_load", lambda *_: 20.0)
    suite, notes = plan_loads(_suite(max_time_s=max_time_s), None, engine="server")
    assert suite.loads == loads
    reason = "because 5 would take about 2 min 20 s (--max-time"
    assert any(reason in note for note in notes) == (loads < 5)
    assert (NOT_INTERLEAVED in notes) == (loads < 3)
    asked, _ = plan_loads(_suite(max_time_s=max_time_s), 4, engine="server")
    assert asked.loads == 4  # what is asked for holds


def test_a_limit_that_loads_do_not_reach_changes_nothing() -> None:
    values.bench(values.run())
    sweep = replace(SWEEP, targets=(values.spec().pair.target,), threads=(2,))
    suite = _suite(sweep, max_time_s=1.0)
    assert plan_loads(suite, None, engine="server")[0].loads == 5  # loads were never seen to take time


# How many loads are held at once depends on everything that decides how much memory a load takes


TARGET = ModelFile(filename="target.gguf")
INSTALL = Install(
    root=Path("/llama"),
    origin="test",
    programs={},
    version=None,
    build_number=9000,
    commit=None,
    backend="cpu",
)


@pytest.fixture
def cards(monkeypatch: pytest.MonkeyPatch) -> dict[ModelFile, ModelCard]:
    """A model whose cache, at a long context, takes much more memory than its weights."""
    monkeypatch.setattr(machine, "memory", lambda gpus=(): Room(total_bytes=64 << 30, free_bytes=32 << 30))
    model = models.llama(n_layers=16, n_embd=512, n_ff=512, n_heads=8, vocabulary=shapes.LLAMA3)
    return {TARGET: models.card(model)}


def _capacity(cards: dict[ModelFile, ModelCard], install: Install = INSTALL, **axes: Any) -> int:
    sweep = Sweep(
        name="p", targets=(TARGET,), drafters=(), n_predict=9, context=32_768, draft_sizes=(), **axes
    )
    return arms.capacity(sweep, cards, install)


def test_caches_the_build_and_a_gpu_decide_how_many_loads_are_held(cards: dict[ModelFile, ModelCard]) -> None:
    assert (
        _capacity(cards, caches=(CacheTypes("q8_0", "q8_0"),))
        > _capacity(cards)
        == _capacity(cards, caches=(CacheTypes("f16", "f16"),))
    )
    assert _capacity(cards, caches=(CacheTypes("f32", "f32"),)) < _capacity(cards)
    assert _capacity(cards, replace(INSTALL, build_number=2697)) < _capacity(cards)
    assert _capacity(cards, replace(INSTALL, backend="cuda")) == 1


# How long a bench takes


def test_the_same_run_takes_what_it_took_and_a_longer_one_more() -> None:
    values.bench(values.run(), values.run(repeat=1))
    known = runplan.experience()
    assert known.expect(values.spec()) == pytest.approx(2.5)
    assert known.expect(replace(values.spec(prompt="another"), n_predict=64)) == pytest.approx(5.0)


def test_a_bench_takes_again_what_its_prompts_took_together() -> None:
    took = {"p1": 1.0, "p2": 1.0, "p3": 7.0}
    values.bench(*(replace(values.run(prompt=name), wall_s=seconds) for name, seconds in took.items()))
    prompts = tuple(values.spec(prompt=name).prompt for name in took)
    suite = RunPlan(blocks=(Block(arms=(values.spec(),)),), prompts=prompts, repeats=1, warmups=0)
    (expected,) = runplan.expect(suite, runplan.experience()).values()
    assert expected == pytest.approx(9.0)


def test_without_experience_the_weights_are_read_once_a_token(tmp_path: Path) -> None:
    model = tmp_path / "model.gguf"
    model.write_bytes(b"x" * 1000)
    spec = replace(
        values.spec(), pair=Pair(name="p", target=ModelFile(filename=model.name, path=model)), n_predict=99
    )
    known = Experience(bytes_per_s=1e5)
    assert known.expect(spec) == pytest.approx(1000 / 1e5 * 99)
    assert known.expect_load(spec) == pytest.approx(0.5 + 1000 / 1e5)


@pytest.mark.parametrize(
    ("engine", "run_s", "load_s"),
    [
        ("binary", (5.0, 5.0), 2.0),  # of 7 s, of which llama.cpp loaded for 2 s
        ("server", (4.0, 7.0), 3.0),  # 7 s with a load, of which the request took 4 s, and 7 s without one
    ],
)
def test_loading_is_learned_apart_from_runs(engine: str, run_s: tuple[float, float], load_s: float) -> None:
    loading = replace(values.run(), engine=engine, wall_s=7.0, program_s=4.0)
    loading = replace(loading, sample=replace(loading.sample, load_ms=2000.0))
    loaded = replace(
        loading, repeat=1, sample=replace(loading.sample, load_ms=2000.0 if engine == "binary" else None)
    )
    values.bench(loading, loaded)
    known = runplan.experience()
    assert known.expect(values.spec()) == pytest.approx(sum(run_s) / 2)
    assert known.expect_load(values.spec()) == pytest.approx(load_s)


@pytest.mark.parametrize(
    ("loads", "seconds"),
    [
        (None, 25 * (1 + 4)),  # 24 runs and a warm-up of 1 s, each with a load of 4 s
        (3, 24 + 3 * (1 + 4)),
        (1, 24 + 1 + 4),
    ],
)
def test_the_plan_counts_loads_and_their_warmups(loads: int | None, seconds: float) -> None:
    loaded = replace(values.run(), engine="server", wall_s=1.0, program_s=1.0)
    loading = replace(loaded, warmup=True, wall_s=5.0, sample=replace(loaded.sample, load_ms=4000.0))
    values.bench(loading, loaded)
    prompts = tuple(Prompt(id=f"p{number}", text="A") for number in range(8))
    suite = RunPlan(blocks=(Block(arms=(values.spec(),)),), prompts=prompts, repeats=3, loads=loads)
    (expected,) = runplan.expect(suite, runplan.experience()).values()
    assert expected == pytest.approx(seconds)


def test_a_sweep_is_shown_before_it_runs() -> None:
    values.bench(values.run(), values.run(Role.DRAFTER), values.run(Role.DRAFTING, draft=3))
    pair = values.spec(Role.DRAFTING).pair
    assert pair.draft is not None
    sweep = Sweep(
        name="tiny",
        targets=(pair.target,),
        drafters=(pair.draft,),
        n_predict=32,
        context=512,
        threads=(2,),
        draft_sizes=(3,),
    )
    prompts = tuple(Prompt(id=f"p{number}", text=f"Text of p{number}") for number in (1, 2))
    suite = RunPlan(blocks=sweep.blocks(), prompts=prompts, repeats=2, warmups=1)
    text = sweep_plan(suite, "md", "binary")
    assert isinstance(text, str)
    assert "3 arms with 1 baseline, 12 runs: about 37.5 s." in text
    text = sweep_plan(replace(suite, loads=2), "md", "server")
    assert isinstance(text, str)
    assert "3 arms with 1 baseline, 12 runs, 6 loads: about 45.0 s." in text
