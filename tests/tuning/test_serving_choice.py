"""The context that a tuning measures at, and what is taken where the choice cannot be served."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from ggufspec import machine, tuning
from ggufspec.domain import ModelFile, Offload, Role, RunSpec, Runtime, Serving
from ggufspec.errors import GgufspecError
from ggufspec.machine import Room
from ggufspec.modelfiles import memory
from ggufspec.modelfiles.gguf import ModelCard, read_card
from tests.support import models, values

GIB = 1 << 30
Cards = dict[ModelFile, ModelCard]


def _cards(folder: Path, *, trained: int, drafter_trained: int = 1 << 20) -> Cards:
    """A target of 33 layers with a cache of some 128 KiB per token, and a small drafter."""
    vocabulary = models.tokens(1000)
    big = models.llama(
        n_layers=32,
        n_embd=4096,
        n_ff=11_008,
        n_heads=32,
        n_heads_kv=8,
        vocabulary=vocabulary,
        context=trained,
    )
    small = models.llama(vocabulary=vocabulary, context=drafter_trained)
    spec = values.spec(Role.DRAFTING, draft=3)
    assert spec.pair.draft is not None
    return {
        spec.pair.target: read_card(models.write_model(folder / "target.gguf", *big)),
        spec.pair.draft: read_card(models.write_model(folder / "drafter.gguf", *small)),
    }


def _arms(context: int = 512) -> list[RunSpec]:
    drafting = replace(values.spec(Role.DRAFTING, draft=3), context=context, offload=Offload())
    return [drafting.baseline, drafting]


def _choose(
    cards: Cards,
    *,
    wanted: int | None = None,
    slots: int = 1,
    vram_bytes: int | None = None,
    arms: Sequence[RunSpec] = (),
) -> Serving:
    serving, _ = tuning.choose_serving(
        wanted, slots, arms or _arms(), cards, layout=memory.TODAY, vram_bytes=vram_bytes
    )
    return serving


def _free(monkeypatch: pytest.MonkeyPatch, free_bytes: int) -> None:
    room = Room(total_bytes=free_bytes, free_bytes=free_bytes, gpus=())
    monkeypatch.setattr(machine, "memory", lambda *_: room)


def test_models_that_were_trained_for_little_are_served_with_that(tmp_path: Path) -> None:
    assert _choose(_cards(tmp_path, trained=1024)) == Serving(context=1024, slots=1)
    assert _choose(_cards(tmp_path, trained=32_768, drafter_trained=2048)).context == 2048


def test_the_largest_context_in_half_the_host_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cards = _cards(tmp_path, trained=131_072)
    contexts = []
    for free in (4 * GIB, 34 * GIB, 40 * GIB, 500 * GIB):
        _free(monkeypatch, free)
        contexts.append(_choose(cards).context)
    assert contexts == sorted(contexts)
    assert contexts[0] == 4096  # the smallest that is tried, even where it does not fit
    assert 4096 < contexts[2] <= contexts[3]
    assert contexts[3] == 65_536  # 8 GiB of caches beside 11 GiB of weights; 16 GiB would be more than these
    assert all(context.bit_count() == 1 for context in contexts)
    _free(monkeypatch, 500 * GIB)
    assert _choose(cards, slots=4).context == 16_384


def test_a_larger_context_costs_no_layers_on_the_gpu(tmp_path: Path) -> None:
    cards = _cards(tmp_path, trained=131_072)
    half = _choose(cards, vram_bytes=8 * GIB)
    assert half.context == 4096  # a part of the layers fits, and each of them needs more cache at 8,192
    whole = _choose(cards, vram_bytes=24 * GIB)
    assert whole.context > 4096
    assert _choose(cards, vram_bytes=80 * GIB).context == 131_072
    few = [replace(arm, offload=arm.offload.with_layers(2)) for arm in _arms()]
    assert _choose(cards, vram_bytes=8 * GIB, arms=few).context > 4096


def test_prompts_that_need_more_get_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _free(monkeypatch, GIB)
    cards = _cards(tmp_path, trained=131_072)
    assert _choose(cards, arms=_arms(context=9984)).context == 9984


def test_a_requested_context_is_taken_up_to_what_the_target_was_trained_for(tmp_path: Path) -> None:
    cards = _cards(tmp_path, trained=8192, drafter_trained=2048)
    assert _choose(cards, wanted=8192, slots=4) == Serving(context=8192, slots=4)
    assert _choose(cards, wanted=8192, slots=4).total_context == 32_768
    with pytest.raises(GgufspecError, match="trained for a context of 8,192 tokens, not 8,193"):
        _choose(cards, wanted=8193)
    stretched = [replace(arm, runtime=Runtime(args=("--rope-scaling", "yarn"))) for arm in _arms()]
    assert _choose(cards, wanted=16_384, arms=stretched).context == 16_384
