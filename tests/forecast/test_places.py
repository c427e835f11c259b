"""The fastest places that fit into memory, on simulated machines of two memories and more."""

from __future__ import annotations

import itertools
import os
import random
import re
from dataclasses import replace

import pytest

from ggufspec.domain import ModelRun, Offload
from ggufspec.engines.library.model import _EXPERTS as OVERRIDDEN
from ggufspec.forecast import costs
from ggufspec.forecast.whatif import MachineMemory, Machines, PlacedPair, Places, expert_pattern
from ggufspec.modelfiles import gguf, memory
from ggufspec.modelfiles.gguf import ModelCard
from tests.support import models

HOST = costs.DevicePeaks(name="host", bandwidth=5e9, flops=1e11, source="", efficiency=costs.ON_HOST)
GPU = costs.DevicePeaks(name="gpu", bandwidth=1e11, flops=1e13, source="", efficiency=costs.ON_GPU)
"""Both are a tenth as fast as real ones, since the models are smaller: reading takes most of the time."""
MIB = 1 << 20


@pytest.fixture(scope="module")
def cards(tmp_path_factory: pytest.TempPathFactory) -> list[ModelCard]:
    """Return mixtures and dense models; a third of the first's layers are larger, as in Q4_K_M."""

    def types(name: str) -> str:
        return "Q8_0" if re.match(r"blk\.[036]\.ffn_down", name) else "Q4_0"

    folder = tmp_path_factory.mktemp("cards")
    shapes = [
        models.llama(n_layers=8, n_embd=512, n_ff=1024, n_heads=8, n_experts=16, types=types),
        models.llama(n_layers=5, n_embd=256, n_ff=768, n_heads=4, n_experts=8, types=lambda _: "Q8_0"),
        models.llama(n_layers=6, n_embd=512, n_ff=2048, n_heads=8, types=types),
        models.llama(n_layers=2, n_embd=256, n_ff=512, n_heads=4, types=types),
    ]
    return [
        gguf.read_card(models.write_model(folder / f"{number}.gguf", *shape))
        for number, shape in enumerate(shapes)
    ]


def _pair(cards: list[ModelCard], dice: random.Random, *, gpus: int = 1) -> PlacedPair:
    target, draft = dice.choice(cards[:3]), dice.choice([None, cards[3], cards[1]])
    context = dice.choice((256, 1024, 4096))
    settings = memory.MemorySettings(context=context, n_ubatch=dice.choice((16, 128)))
    whole = memory.plan(target, draft, Offload(), settings)
    settings = replace(settings, projector_bytes=dice.choice((0, whole.gpu_bytes // 5)))
    sizes = [int(whole.gpu_bytes * dice.uniform(0.1, 1.2) / gpus) for _ in range(gpus)]
    host = dice.choice((None, int((whole.gpu_bytes + whole.host_bytes) * dice.uniform(0.2, 1.5))))
    return PlacedPair(
        target=target,
        draft=draft,
        settings=settings,
        offload=Offload(),
        machines=Machines.of((GPU,), HOST, n_gpus=gpus),
        room=MachineMemory(vram_bytes=tuple(sizes), host_bytes=host, reserve_bytes=0),
        depth=context,
    )


@pytest.mark.parametrize("gpus", [1, 2, 3])
def test_no_place_exceeds_any_memory(cards: list[ModelCard], gpus: int) -> None:
    """Random machines and models, with two memories, three and four; with CASES=20, a thousand of them."""
    dice, placed = random.Random(38 + gpus), 0
    for _ in range(int(os.environ.get("CASES", "1")) * (40 if gpus == 1 else 5)):
        pair = _pair(cards, dice, gpus=gpus)
        for place in pair.fastest((0, dice.randint(1, 16))):
            placed += 1
            draft = pair.draft if place.n_max else None
            plan = memory.plan(pair.target, draft, place.offload, pair.settings)
            assert plan.host_bytes <= (pair.room.host_bytes or plan.host_bytes)
            assert plan.gpu_bytes <= sum(pair.room.vram_bytes)
            if gpus > 1:
                assert all(
                    need <= room for need, room in zip(plan.each_gpu_bytes, pair.room.vram_bytes, strict=True)
                )
    assert placed > 3


@pytest.mark.parametrize(("gpus", "cases"), [(1, 12), (2, 2)])
def test_the_place_found_is_nearly_the_fastest_of_all(cards: list[ModelCard], gpus: int, cases: int) -> None:
    """All numbers of layers, of layers with experts on the host, places of the drafter, and splits."""
    dice, compared = random.Random(2), 0
    splits = [(float(count), float(16 - count)) for count in range(1, 16)] if gpus == 2 else [()]
    for _ in range(cases):
        pair = _pair(cards if gpus == 1 else [cards[1]] * 4, dice, gpus=gpus)
        size = dice.choice((1, 3, 8)) if pair.draft else 0
        drafters = (ModelRun(layers="all"), ModelRun(layers=0), ModelRun(layers="all", cpu_moe="all"))
        every = [
            Offload(target=ModelRun(layers=layers, cpu_moe=kept), drafter=drafter, tensor_split=split)
            for layers, kept, drafter, split in itertools.product(
                range(pair.target.n_layers + 2), range(pair.target.n_layers + 1), drafters, splits
            )
        ]
        plans = [(offload, memory.plan(pair.target, pair.draft, offload, pair.settings)) for offload in every]
        times = [pair.round_seconds(place)(size) for place, plan in plans if pair.room.holds(plan)]
        found = pair.fastest((size,))
        assert bool(found) == bool(times)
        if times:
            compared += 1
            assert found[0].round_s <= 1.02 * min(times)
    assert compared >= cases / 2


def test_experts_leave_the_gpu_first_and_the_drafter_takes_their_room(cards: list[ModelCard]) -> None:
    """With little room the dense layers are on the GPU; with more, experts; with all, everything."""
    gpu, host = (replace(device, efficiency=costs.Efficiency()) for device in (GPU, HOST))
    pair = replace(_pair(cards, random.Random(0)), target=cards[0], draft=cards[3], depth=0)
    pair = replace(pair, machines=Machines.of((gpu,), host, n_gpus=1))
    pair = replace(pair, settings=memory.MemorySettings(context=256, n_ubatch=16))

    def place(mib: int, size: int) -> Places:
        room = MachineMemory(vram_bytes=(mib * MIB,), reserve_bytes=0)
        return replace(pair, room=room).fastest((size,))[0]

    few, some, all_of_it = (place(mib, 0).offload.target for mib in (20, 60, 500))
    assert (few.layers, few.cpu_moe) == (9, 8)
    assert some.layers == 9
    assert isinstance(some.cpu_moe, int)
    assert 0 < some.cpu_moe < 8
    assert (all_of_it.layers, all_of_it.cpu_moe) == (9, None)
    beside = place(60, 4)
    assert beside.offload.drafter.layers == "all"
    pair = replace(pair, offload=Offload(drafter=ModelRun(layers=0)))
    assert place(60, 4).offload.drafter.layers == 0
    assert place(60, 4).round_s > beside.round_s  # though more of the target is on the GPU


def test_a_pattern_names_just_the_experts_of_some_layers() -> None:
    pattern, _, device = expert_pattern((1, 12)).partition("=")
    names = [f"blk.{layer}.{part}.weight" for layer in (1, 2, 12) for part in ("ffn_up_exps", "ffn_up")]
    assert [name for name in names if re.search(pattern, name)] == [
        "blk.1.ffn_up_exps.weight",
        "blk.12.ffn_up_exps.weight",
    ]
    assert device == "CPU"
    assert OVERRIDDEN.decode() in pattern  # what the library itself keeps on the host
