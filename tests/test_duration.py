from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from ggufspec.domain import ModelFile, Pair, Prompt, Role
from ggufspec.measure import duration
from ggufspec.measure.duration import Experience
from ggufspec.measure.sweep import RunPlan, Sweep
from ggufspec.report.text.sweep_plan import cells
from tests.support import values


def test_the_same_run_takes_what_it_took() -> None:
    values.bench(values.run(), values.run(repeat=1))
    known = duration.experience()
    assert known.expect(values.spec()) == pytest.approx(2.5)


def test_a_longer_run_of_the_same_models_takes_longer() -> None:
    values.bench(values.run())
    known = duration.experience()
    other = replace(values.spec(prompt="another"), n_predict=64)
    assert known.expect(other) == pytest.approx(5.0)


def test_without_experience_the_weights_are_read_once_a_token(tmp_path: Path) -> None:
    model = tmp_path / "model.gguf"
    model.write_bytes(b"x" * 1000)
    spec = replace(
        values.spec(), pair=Pair(name="p", target=ModelFile(filename=model.name, path=model)), n_predict=99
    )
    assert Experience(bytes_per_s=1e5).expect(spec) == pytest.approx(0.5 + 1000 / 1e5 * 100)


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
    text = cells(suite, "md", "binary")
    assert isinstance(text, str)
    assert "3 arms with 1 baseline, 12 runs: about 37.5 s." in text
