"""Quantizations that the real llama-quantize makes: they load, draft, and are what their name says."""

from __future__ import annotations

from pathlib import Path

import pytest

from ggufspec import engines
from ggufspec.domain import Role, Status
from ggufspec.llama.install.installs import Install
from ggufspec.measure import find_drafters, prepare_session
from ggufspec.modelfiles import gguf
from ggufspec.options import BenchOptions, TuneOptions
from ggufspec.tuning import planning


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
