"""A crossover on a real server, with the embedded pair."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ggufspec import engines, results
from ggufspec.domain import Role, Status
from ggufspec.llama.install.installs import Install
from ggufspec.measure import find_drafters, prepare_session
from ggufspec.modelfiles import gguf
from ggufspec.options import BenchOptions, TuneOptions
from ggufspec.tuning import budgeting, crossing, planning
from tests.support import shell
from tests.support.schemas import validate

_REPEATS, _TOKENS = 2, 8


@pytest.mark.takes(15)
@pytest.mark.timeout(900)
def test_a_crossover_maps_users_and_depth(llama: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GGUFSPEC_LLAMA", str(llama.root))
    # how many repeats a verdict needs is told by tests/tuning/test_crossover.py, without a program
    monkeypatch.setattr(budgeting, "plan_cells", lambda *_: (_TOKENS, _REPEATS))
    monkeypatch.setattr(crossing, "LOOKS", (_REPEATS,))
    words = ["crossover", "--pair", "demo", "--parallel", "1,2", "--depth", "0,64", "--draft", "2", "-t", "1"]
    limited = ["-n", str(_TOKENS), "--max-time", "10m", "--name", "map", "-o", "json"]
    texts = ["-p", "Story: Mira and the brass lantern"]
    content = json.loads(shell.done(*words, *limited, *texts).stdout)
    validate("crossover", content)
    assert [(cell["users"], cell["depth"]) for cell in content["cells"]] == [(1, 0), (1, 64), (2, 0), (2, 64)]
    assert {cell["source"] for cell in content["cells"]} == {"measured"}
    runs = results.load("map").current
    assert all(run.sample.status is Status.OK for run in runs)
    drafting = [run for run in runs if run.spec.drafting is not None]
    assert drafting
    assert all(run.sample.n_accepted for run in drafting)
    assert all(run.text_identical is not None for run in drafting)


# Quantizations that the real llama-quantize makes: they load, draft, and are what their name says


@pytest.mark.parametrize("pair", ["demo", "demo-eagle3"])
def test_a_quantized_drafter_drafts(
    llama: Install, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pair: str
) -> None:
    monkeypatch.setenv("GGUFSPEC_CACHE", str(home / "cache"))
    monkeypatch.setenv("GGUFSPEC_LLAMA", str(llama.root))
    asked, _ = planning.add_quantized(TuneOptions(pair=pair, n_predict=40, quantize_drafter="Q4_0"), llama)
    original, made = find_drafters(asked)
    assert gguf.validate_file(made.path).quant == "Q4_0"
    assert made.path.stat().st_size < original.path.stat().st_size
    session = prepare_session(BenchOptions(pair=pair, draft_model=asked.draft_model, n_predict=40))
    arms = session.suite.blocks[0].on(session.suite.prompts[0])
    [spec] = [arm for arm in arms if arm.role is Role.DRAFTING and arm.drafter == made]
    with engines.make("server", llama, timeout_s=200) as engine:
        sample = engine.measure(spec, tmp_path / "run").sample
    assert sample.status is Status.OK
    assert sample.n_accepted
