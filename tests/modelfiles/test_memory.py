"""Memory planning: what was measured, what fits, and what each kind of model keeps."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ggufspec import paths
from ggufspec.domain import CacheTypes, ModelRun, Offload
from ggufspec.errors import ModelFileError
from ggufspec.machine import Gpu, Room
from ggufspec.modelfiles import gguf, memory
from ggufspec.modelfiles.gguf import ModelCard, read_card
from ggufspec.modelfiles.memory import MemoryFit
from ggufspec.modelfiles.memory.settings import cache_bytes, windows
from tests.support import models, shapes, shell

TARGET = paths.models_dir() / "demo" / "target.gguf"
MIB = 1 << 20
NO_FLASH = replace(memory.TODAY, flash_attention=False)
APRIL_2024 = memory.layout_for(2697)
TIED, WINDOWS, EXPERTS = shapes.NAMES


def _settings(context: int = 512, **changes: Any) -> memory.MemorySettings:
    return memory.MemorySettings(context=context, **changes)


def _on_host(target: ModelCard, draft: ModelCard | None, **changes: Any) -> memory.Footprint:
    """Return what a target takes on the host where no GPU is used."""
    return memory.plan(target, draft, Offload().on_processor, _settings(**changes)).target.host


# What `llama-speculative -lv 4 --no-repack` of the summer of 2026 and `main` of April 2024 printed on a CPU
# for models with exactly these shapes: model, KV and compute buffers in MiB.
@pytest.mark.parametrize(
    ("name", "context", "changes", "measured"),
    [
        (TIED, 2048, {}, (727.75, 64.0, 66.01)),
        (TIED, 8192, {"caches": CacheTypes("q8_0", "q8_0")}, (727.75, 136.0, 68.04)),
        (TIED, 2048, {"layout": APRIL_2024}, (727.75, 64.0, 254.50)),
        (TIED, 8192, {"layout": APRIL_2024}, (727.75, 256.0, 544.01)),
        (WINDOWS, 4096, {}, (744.89, 38.0, 54.27)),
        (WINDOWS, 4096, {"layout": NO_FLASH}, (744.89, 38.0, 63.26)),
        (EXPERTS, 4096, {}, (495.97, 32.0, 36.01)),
        (EXPERTS, 2048, {"layout": NO_FLASH}, (495.97, 16.0, 79.01)),
        (EXPERTS, 512, {"layout": APRIL_2024}, (495.97, 4.0, 64.50)),
        (EXPERTS, 2048, {"layout": APRIL_2024}, (495.97, 16.0, 76.01)),
    ],
)
def test_plans_agree_with_what_llama_cpp_printed(
    name: str, context: int, changes: dict[str, Any], measured: tuple[float, float, float]
) -> None:
    card = models.card(shapes.measured(name))
    found = _on_host(card, card, context=context, **changes)
    weights, cache, compute = (size / MIB for size in (found.weights, found.cache, found.compute))
    assert weights == pytest.approx(measured[0], abs=0.1)
    assert cache == pytest.approx(measured[1], abs=0.1)
    assert compute == pytest.approx(measured[2], rel=0.08)
    assert found.total / MIB == pytest.approx(sum(measured), rel=0.03)


def _gemma(name: str) -> str:  # the types of gemma-3-270m-q4_k_m.gguf
    part = name.rpartition(".")[2]
    if part in {"attn_v", "ffn_down"}:
        larger = int(name.split(".")[1]) % 2 == 0  # half of the layers have them
        return {"attn_v": ("Q5_0", "Q8_0"), "ffn_down": ("Q4_K", "Q6_K")}[part][larger]
    return {"token_embd": "Q8_0", "attn_output": "Q4_K"}.get(part, "Q5_0")


@pytest.fixture(scope="module")
def gemma() -> ModelCard:
    """The header of Gemma 3 270M in Q4_K_M: a small model with a vocabulary of 262,144 tokens."""
    vocabulary = {"tokenizer.ggml.model": "llama", "tokenizer.ggml.tokens": [""] * 262_144}
    heads = {"n_layers": 18, "n_heads": 4, "n_heads_kv": 1, "head": 256, "window": 512}
    shape: dict[str, Any] = {"n_embd": 640, "n_ff": 2048, "types": _gemma, "vocabulary": vocabulary}
    return models.card(models.gemma3(**shape, **heads))


# What `llama-server -lv 4 --parallel 1` b11312 printed for that file on a CPU: mapped model, KV and
# compute buffers in MiB. Beside them it printed an output buffer of 1.00 and a repacked copy of 12.66.
@pytest.mark.parametrize(
    ("context", "measured"), [(2048, (235.16, 21.0, 20.77)), (32_768, (235.16, 111.0, 50.77))]
)
def test_a_server_keeps_logits_of_the_tokens_that_it_samples(
    gemma: ModelCard, context: int, measured: tuple[float, float, float]
) -> None:
    found = _on_host(gemma, None, context=context, n_draft=0)
    parts = (found.weights / MIB, found.cache / MIB, found.compute / MIB)
    assert parts == pytest.approx(measured, rel=0.05)


def test_the_plain_program_and_older_ones_keep_logits_of_a_whole_batch(gemma: ModelCard) -> None:
    logits = 512 * 262_144 * 4
    assert _on_host(gemma, None, context=2048, plain=True).compute > logits
    assert _on_host(gemma, None, context=2048, layout=memory.layout_for(10_475)).compute > logits


def test_every_user_has_logits_of_a_draft_to_verify(gemma: ModelCard) -> None:
    """As many as a batch has tokens, at most."""
    users, most = (
        _on_host(gemma, gemma, context=2048, n_draft=15, n_slots=slots).compute for slots in (8, 100)
    )
    assert users > 8 * 16 * 262_144 * 4
    assert 512 * 262_144 * 4 < most < 600 * 262_144 * 4


def _q3_k_s(name: str) -> str:  # llama.cpp's mix for a 70B
    return {"output": "Q6_K", "attn_v": "Q5_K"}.get(name.rpartition(".")[2], "Q3_K")


def _q3_k_l(name: str) -> str:
    part = name.rpartition(".")[2]
    return "Q6_K" if part == "output" else "Q5_K" if part in {"attn_v", "attn_output", "ffn_down"} else "Q3_K"


@pytest.fixture(scope="module")
def llama3(tmp_path_factory: pytest.TempPathFactory) -> tuple[ModelCard, ModelCard]:
    """Llama-3-70B in Q3_K_S and 8B in Q3_K_L: true headers, and holes for 35 GB of weights."""
    folder = tmp_path_factory.mktemp("llama3")
    both: dict[str, Any] = {"n_heads_kv": 8, "vocabulary": shapes.LLAMA3}
    big: dict[str, Any] = {"n_layers": 80, "n_embd": 8192, "n_ff": 28_672, "n_heads": 64, "types": _q3_k_s}
    small: dict[str, Any] = {"n_layers": 32, "n_embd": 4096, "n_ff": 14_336, "n_heads": 32, "types": _q3_k_l}
    target, draft = (
        read_card(models.write_model(folder / "m.gguf", *models.llama(**shape, **both)))
        for shape in (big, small)
    )
    return target, draft


@pytest.mark.parametrize(("on_device", "measured"), [(True, 258.99), (False, 133.25)])
def test_a_head_with_an_encoder_has_logits_of_a_whole_batch(
    llama3: tuple[ModelCard, ModelCard], on_device: bool, measured: float
) -> None:
    _, target = llama3
    head = models.card(models.eagle3(n_embd=4096, width=4096, vocabulary=128_256))
    settings = _settings(256, n_draft=3, samples_on_device=on_device)
    planned = memory.plan(target, head, Offload(drafter=ModelRun(layers="all")), settings)
    # "CUDA0 compute buffer size" of a random head for the 8B: reserved first without a sampler, then with one
    assert planned.draft.gpu.compute / MIB == pytest.approx(measured, rel=0.01)


def test_the_llama_3_notebook_fits_as_it_was_run(llama3: tuple[ModelCard, ModelCard]) -> None:
    target, draft = llama3
    assert target.size_bytes == pytest.approx(30.91e9, rel=0.001)  # as published, but for the tokenizer
    assert draft.size_bytes == pytest.approx(4.32e9, rel=0.002)
    plans = memory.plan_each_offload(target, draft, _settings(512, layout=APRIL_2024))
    assert len(plans) == 82
    best = memory.best_fit(plans, 24 << 30)
    assert 45 <= best.target.gpu_layers < 60
    assert best.draft.gpu_layers == best.draft.max_layers == 33
    assert plans[45].gpu_bytes + memory.RESERVE_BYTES < 24 << 30 < plans[81].gpu_bytes


def test_the_output_copied_for_long_prompts_counts(llama3: tuple[ModelCard, ModelCard]) -> None:
    target, _ = llama3
    partly = memory.plan(target, None, Offload(target=ModelRun(layers=45)), _settings(512, layout=APRIL_2024))
    # "CUDA0 compute buffer size = 1088.45 MiB": output.weight in Q6_K, logits of 512 tokens, and vectors
    assert partly.target.gpu.compute / MIB == pytest.approx(1088.45, rel=0.02)


def test_each_layer_takes_more_of_the_gpu_and_less_of_the_host(llama3: tuple[ModelCard, ModelCard]) -> None:
    target, draft = llama3
    for layout in (memory.TODAY, APRIL_2024):
        plans = memory.plan_each_offload(target, draft, _settings(2048, layout=layout))
        weights = [plan.target.gpu.weights for plan in plans]
        assert weights == sorted(weights)
        assert weights[0] == 0
        whole = sum(tensor.size_bytes for tensor in target.tensors)
        assert all(plan.target.gpu.weights + plan.target.host.weights == whole for plan in plans)
        cache = {plan.target.gpu.cache + plan.target.host.cache for plan in plans}
        assert len(cache) == 1


def test_builds_of_today_offload_the_output_first() -> None:
    card = models.card(models.llama(n_layers=2))
    now = memory.plan(card, None, Offload(target=ModelRun(layers=1)), _settings())
    then = memory.plan(card, None, Offload(target=ModelRun(layers=1)), _settings(layout=APRIL_2024))
    output = sum(tensor.size_bytes for tensor in card.tensors if tensor.name.startswith("output"))
    layer = sum(tensor.size_bytes for tensor in card.tensors if tensor.name.startswith("blk.1."))
    assert now.target.gpu.weights == output
    assert then.target.gpu.weights == layer


def test_a_tied_embedding_is_copied_to_the_gpu() -> None:
    card = models.card(models.llama(tied=True))
    embedding = card.tensors[0].size_bytes
    whole = memory.plan(card, None, Offload(target=ModelRun(layers="all")), _settings())
    assert whole.target.host.weights == embedding
    assert whole.target.gpu.weights == sum(tensor.size_bytes for tensor in card.tensors)


def test_nothing_fits_where_even_the_drafter_does_not(llama3: tuple[ModelCard, ModelCard]) -> None:
    target, draft = llama3
    plans = memory.plan_each_offload(target, draft, _settings(512))
    assert memory.best_fit(plans, 4 << 30) is None
    without_layers = memory.best_fit(plans, plans[0].gpu_bytes, reserve_bytes=0)
    assert without_layers.target.gpu_layers == 0


def test_caches_shrink_by_type_and_grow_by_cells() -> None:
    card = models.card(models.llama(n_layers=1, n_embd=256, n_heads=4))
    (full,) = cache_bytes(card, _settings(1024))
    (mixed,) = cache_bytes(card, _settings(1024, caches=CacheTypes("q8_0", "q4_0")))
    assert full == 1024 * 256 * 2 * 2
    assert mixed == 1024 * (256 * 34 // 32 + 256 * 18 // 32)
    card = models.card(models.llama(n_layers=1))
    assert cache_bytes(card, _settings(257)) == cache_bytes(card, _settings(512))


@pytest.mark.parametrize(
    ("arch", "changes", "expected"),
    [
        ("gemma3", {"sliding_window": 512}, (512, 512, 512, 512, 512, None, 512, 512)),
        ("gemma3", {}, (None,) * 8),
        ("gemma2", {}, (4096, None) * 4),
        ("llama4", {}, (8192, 8192, 8192, None) * 2),
        ("llama4", {"sliding_window": 0}, (None,) * 8),
        ("smallthinker", {"sliding_window": 99}, (None, 99, 99, 99) * 2),
        ("gemma3", {"sliding_window": 8, "sliding_window_pattern": 2}, (8, None) * 4),
        ("other", {"sliding_window": 8, "sliding_window_pattern": [True] * 8}, (8,) * 8),
        ("llama", {"sliding_window": 4096}, (None,) * 8),  # Mistral 7B: llama.cpp pays no heed
    ],
)
def test_windows(arch: str, changes: dict[str, models.Value], expected: tuple[int | None, ...]) -> None:
    keys = {f"{arch}.attention.{key}": value for key, value in changes.items()}
    assert windows(models.card(models.renamed(models.llama(n_layers=8), arch), **keys)) == expected


def test_architectures_cache_differently() -> None:
    card = models.card(shapes.measured(WINDOWS))
    now, then = (
        sum(cache_bytes(card, _settings(8192, layout=layout))) for layout in (memory.TODAY, APRIL_2024)
    )
    assert then == 26 * 8192 * 256 * 2 * 2
    assert now == (4 * 8192 + 22 * 1024) * 256 * 2 * 2
    card = models.card(
        models.llama(n_layers=1, n_heads=4, n_heads_kv=1),
        **{"llama.attention.key_length": 576, "llama.attention.key_length_mla": 192},
    )
    assert cache_bytes(card, _settings(256)) == (256 * 576 * 2,)
    card = models.card(models.llama(n_layers=4), **{"llama.attention.shared_kv_layers": 1})
    assert [bool(size) for size in cache_bytes(card, _settings())] == [True, True, True, False]


def test_recurrent_layers_keep_a_state_of_their_own_and_a_doubt() -> None:
    metadata, tensors = models.llama(
        n_layers=2, ssm__state_size=16, ssm__inner_size=128, ssm__conv_kernel=4, ssm__group_count=1
    )
    hybrid = [spec for spec in tensors if not spec[0].startswith("blk.0.attn_k")]
    card = models.card((metadata, [*hybrid, ("blk.0.ssm_in.weight", (64, 128), "F16")]))
    state, attention = cache_bytes(card, _settings())
    assert state == 4 * (3 * (128 + 2 * 16) + 16 * 128)
    assert attention == 512 * 64 * 2 * 2
    assert "recurrent" in memory.doubts(card)[0]
    assert memory.doubts(models.card(models.llama())) == ()


def test_what_reads_images_is_on_the_first_gpu(gemma: ModelCard, tmp_path: Path) -> None:
    projector = tmp_path / "mmproj.gguf"
    done = shell.script("make_random_mmproj", TARGET, "-o", projector)
    assert done.returncode == 0, done.stderr
    size = gguf.projector_bytes(projector)
    assert 0 < size < projector.stat().st_size
    with pytest.raises(ModelFileError, match="is no projector"):
        gguf.projector_bytes(TARGET)
    settings = memory.MemorySettings(context=512)
    for split in ((), (1.0, 1.0)):
        offload = Offload(tensor_split=split)
        without = memory.plan(gemma, None, offload, settings)
        plan = memory.plan(gemma, None, offload, replace(settings, projector_bytes=size))
        assert plan.gpu_bytes - without.gpu_bytes == plan.all_bytes - without.all_bytes == size
        assert plan.each_gpu_bytes == (without.each_gpu_bytes[0] + size, *without.each_gpu_bytes[1:])


def test_the_llama_3_notebook_is_judged_as_it_went(llama3: tuple[ModelCard, ModelCard]) -> None:
    plans = memory.plan_each_offload(*llama3, _settings(512, layout=APRIL_2024))
    card = Gpu(name="RTX 4090", total_bytes=24 << 30, free_bytes=int(23.6 * 2**30))
    for layers, fit in {45: MemoryFit.FITS, 81: MemoryFit.IMPOSSIBLE}.items():
        found = memory.verdict(plans[layers], _room(card, free=50), alternatives=lambda: plans)
        assert found.outcome is fit
        assert "of the target and 33 of the drafter need" in found.reason
    assert re.fullmatch(r"--ngl (4[5-9]|5\d) fits into what is free now: 2\d\.?\d* GiB", found.hint or "")


# Does a plan fit this machine? Made-up plans in GiB, on cards of 24 GiB and a host of 64


GIB = 1 << 30
CARD = "RTX 4090 has 24 GiB, of which 23 GiB are free now"
ALL = "weights, caches and compute buffers need"
HOST = "the machine has 64 GiB, of which 48 GiB are free now"
BUT = f"on the host, but {HOST}"
MAYBE_SLOW = ": some weights may be read from the disk time and again, which is slow"
SLOW = ": weights would be read from the disk time and again, which is slow"
KEPT = "caches and compute buffers need"
SMALLER = "use a smaller --ctx or quantization"


def _plan(gpu: float = 0, *, layers: int = 0, weights: float = 0, kept: float = 0) -> memory.MemoryPlan:
    host = memory.Footprint(weights=int(weights * GIB), cache=int(kept * GIB))
    gpus = (memory.Footprint(weights=int(gpu * GIB)),)
    target = memory.ModelMemory(gpu_layers=layers, max_layers=80, host=host, gpus=gpus)
    return memory.MemoryPlan(target=target, draft=None)


def _small_card(free: float = 23) -> Gpu:
    return Gpu(name="RTX 4090", total_bytes=24 * GIB, free_bytes=int(free * GIB))


def _room(*gpus: Gpu, total: int = 64, free: int = 48) -> Room:
    return Room(total_bytes=total * GIB, free_bytes=free * GIB, gpus=gpus)


ONE, TWO = (_small_card(),), (_small_card(), _small_card(1))


@pytest.mark.parametrize(
    ("plan", "gpus", "fit", "reason"),
    [
        (_plan(kept=1), (), MemoryFit.FITS, f"{ALL} 1 GiB on the host, {HOST}"),
        (_plan(23.5), ONE, MemoryFit.TIGHT, f"0 layers of the target need 23.5 GiB on the GPU, but {CARD}"),
        (_plan(30), ONE, MemoryFit.IMPOSSIBLE, f"0 layers of the target need 30 GiB on the GPU, but {CARD}"),
        (_plan(weights=45, kept=4), ONE, MemoryFit.TIGHT, f"{ALL} 49 GiB {BUT}{MAYBE_SLOW}"),
        (_plan(weights=63, kept=4), (), MemoryFit.TIGHT, f"{ALL} 67 GiB {BUT}{SLOW}"),
        (_plan(weights=1, kept=50), (), MemoryFit.TIGHT, f"{ALL} 51 GiB {BUT}"),
        (_plan(kept=65), (), MemoryFit.IMPOSSIBLE, f"{KEPT} 65 GiB {BUT}"),
        # without a GPU, all is on the host; of two faults the worse is named
        (_plan(40, weights=20), (), MemoryFit.TIGHT, f"{ALL} 60 GiB {BUT}{MAYBE_SLOW}"),
        (_plan(23.5, kept=65), ONE, MemoryFit.IMPOSSIBLE, f"{KEPT} 65 GiB {BUT}"),
    ],
)
def test_verdicts_say_what_is_needed_and_what_is_there(
    plan: memory.MemoryPlan, gpus: tuple[Gpu, ...], fit: MemoryFit, reason: str
) -> None:
    found = memory.verdict(plan, _room(*gpus))
    assert (found.outcome, found.reason) == (fit, reason)
    assert (found.hint is None) == (fit is MemoryFit.FITS)


def test_gpus_and_host_share_models() -> None:
    fits = memory.verdict(_plan(23.5), _room(*TWO))
    there = "2 GPUs (RTX 4090) have 48 GiB, of which 24 GiB are free now"
    assert fits.reason == (
        f"0 layers of the target need 23.5 GiB on the GPU, {there}; {ALL} 0 B on the host, {HOST}"
    )
    one = _plan(13, layers=33)
    pair = memory.MemoryPlan(target=one.target, draft=one.target)
    found = memory.verdict(pair, _room(*ONE))
    assert found.reason == f"33 layers of the target and 33 of the drafter need 26 GiB on the GPU, but {CARD}"
    assert found.hint == f"put fewer layers of the drafter on the GPU (--ngld), or {SMALLER}"


# 1 GiB per layer and 2 GiB for the drafter, beside 23 GiB free and 1 GiB to leave free: 20 layers fit
TRADE = tuple(_plan(layers + 2, layers=layers, weights=80 - layers) for layers in range(81))


@pytest.mark.parametrize(
    ("layers", "adjusts", "free", "host_free", "fit", "hint"),
    [
        (20, False, 23, 64, MemoryFit.FITS, None),
        (30, False, 23, 64, MemoryFit.IMPOSSIBLE, "--ngl 20 fits into what is free now: 22 GiB"),
        (21, False, 12, 64, MemoryFit.TIGHT, "--ngl 9 fits into what is free now: 11 GiB"),
        (21, False, 2, 64, MemoryFit.TIGHT, SMALLER),
        (80, True, 23, 64, MemoryFit.FITS, None),
        (80, True, 23, 50, MemoryFit.TIGHT, "use a smaller --ctx"),  # the rest is on the host
        (80, True, 1, 99, MemoryFit.TIGHT, SMALLER),
        (3, False, 23, 50, MemoryFit.TIGHT, "use a smaller --ctx, or put more layers on the GPU (--ngl)"),
    ],
)
def test_verdicts_know_the_most_layers_that_fit(
    layers: int, adjusts: bool, free: float, host_free: int, fit: MemoryFit, hint: str | None
) -> None:
    found = memory.verdict(
        TRADE[layers],
        _room(_small_card(free), total=99, free=host_free),
        alternatives=lambda: TRADE,
        adjusts_layers=adjusts,
    )
    assert (found.outcome, found.hint) == (fit, hint)
