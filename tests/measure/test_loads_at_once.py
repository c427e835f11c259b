"""How many loads are held at once depends on everything that decides how much memory a load takes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ggufspec import machine
from ggufspec.domain import CacheTypes, ModelFile
from ggufspec.llama.install import Install
from ggufspec.machine import Room
from ggufspec.measure import fitting
from ggufspec.measure.sweep import Sweep
from ggufspec.modelfiles.gguf import ModelCard, parse_header
from tests.support import models, shapes

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
    metadata, tensors = models.llama(n_layers=16, n_embd=512, n_ff=512, n_heads=8, vocabulary=shapes.LLAMA3)
    content = models.encode(metadata, tensors)[0]
    return {TARGET: parse_header(models.Memory(content), name=TARGET.filename)}


def _capacity(cards: dict[ModelFile, ModelCard], install: Install = INSTALL, **axes: Any) -> int:
    sweep = Sweep(
        name="p", targets=(TARGET,), drafters=(), n_predict=9, context=32_768, draft_sizes=(), **axes
    )
    return fitting.capacity(sweep, cards, install)


def test_smaller_caches_let_more_loads_be_held(cards: dict[ModelFile, ModelCard]) -> None:
    assert (
        _capacity(cards, caches=(CacheTypes("q8_0", "q8_0"),))
        > _capacity(cards)
        == _capacity(cards, caches=(CacheTypes("f16", "f16"),))
    )
    assert _capacity(cards, caches=(CacheTypes("f32", "f32"),)) < _capacity(cards)


def test_the_layout_of_the_build_decides_how_many_loads_are_held(cards: dict[ModelFile, ModelCard]) -> None:
    assert _capacity(cards, replace(INSTALL, build_number=2697)) < _capacity(cards)


def test_one_load_is_held_on_a_gpu(cards: dict[ModelFile, ModelCard]) -> None:
    assert _capacity(cards, replace(INSTALL, backend="cuda")) == 1
