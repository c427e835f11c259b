from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from ggufspec.domain import ModelFile, Pair, Prompt, Role
from ggufspec.measure import runplan
from ggufspec.measure.runplan import Experience, RunPlan
from ggufspec.measure.sweep import Block, Sweep
from ggufspec.report.text.projections import sweep_plan
from tests.support import values


def test_the_same_run_takes_what_it_took() -> None:
    values.bench(values.run(), values.run(repeat=1))
    known = runplan.experience()
    assert known.expect(values.spec()) == pytest.approx(2.5)


def test_a_longer_run_of_the_same_models_takes_longer() -> None:
    values.bench(values.run())
    known = runplan.experience()
    other = replace(values.spec(prompt="another"), n_predict=64)
    assert known.expect(other) == pytest.approx(5.0)


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
