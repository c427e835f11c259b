"""Does a plan fit this machine? Made-up plans in GiB, on cards of 24 GiB and a host of 64."""

from __future__ import annotations

import pytest

from ggufspec.machine import Gpu, Room
from ggufspec.modelfiles import memory
from ggufspec.modelfiles.memory import MemoryFit

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
    return memory.MemoryPlan(
        target=memory.ModelMemory(
            gpu_layers=layers,
            max_layers=80,
            host=memory.Footprint(weights=int(weights * GIB), cache=int(kept * GIB)),
            gpu=memory.Footprint(weights=int(gpu * GIB)),
        ),
        draft=None,
    )


def _card(free: float = 23) -> Gpu:
    return Gpu(name="RTX 4090", total_bytes=24 * GIB, free_bytes=int(free * GIB))


ONE, TWO = (_card(),), (_card(), _card(1))


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
        (
            _plan(40, weights=20),
            (),
            MemoryFit.TIGHT,
            f"{ALL} 60 GiB {BUT}{MAYBE_SLOW}",
        ),  # no GPU: all on the host
        (
            _plan(23.5, kept=65),
            ONE,
            MemoryFit.IMPOSSIBLE,
            f"{KEPT} 65 GiB {BUT}",
        ),  # the worse of two is named
    ],
)
def test_verdicts_say_what_is_needed_and_what_is_there(
    plan: memory.MemoryPlan, gpus: tuple[Gpu, ...], fit: MemoryFit, reason: str
) -> None:
    found = memory.verdict(plan, Room(total_bytes=64 * GIB, free_bytes=48 * GIB, gpus=gpus))
    assert (found.outcome, found.reason) == (fit, reason)
    assert (found.hint is None) == (fit is MemoryFit.FITS)


def test_several_gpus_count_as_one() -> None:
    fits = memory.verdict(_plan(23.5), Room(total_bytes=64 * GIB, free_bytes=48 * GIB, gpus=TWO))
    there = "2 GPUs (RTX 4090) have 48 GiB, of which 24 GiB are free now"
    assert fits.reason == (
        f"0 layers of the target need 23.5 GiB on the GPU, {there}; {ALL} 0 B on the host, {HOST}"
    )


def test_a_drafter_that_does_not_fit_may_stay_on_the_host() -> None:
    one = _plan(13, layers=33)
    pair = memory.MemoryPlan(target=one.target, draft=one.target)
    found = memory.verdict(pair, Room(total_bytes=64 * GIB, free_bytes=48 * GIB, gpus=ONE))
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
        (
            80,
            True,
            23,
            50,
            MemoryFit.TIGHT,
            "use a smaller --ctx",
        ),  # what does not fit there lies on the host
        (80, True, 1, 99, MemoryFit.TIGHT, SMALLER),
        (3, False, 23, 50, MemoryFit.TIGHT, "use a smaller --ctx, or put more layers on the GPU (--ngl)"),
    ],
)
def test_verdicts_know_the_most_layers_that_fit(
    layers: int, adjusts: bool, free: float, host_free: int, fit: MemoryFit, hint: str | None
) -> None:
    found = memory.verdict(
        TRADE[layers],
        Room(total_bytes=99 * GIB, free_bytes=host_free * GIB, gpus=(_card(free),)),
        alternatives=lambda: TRADE,
        adjusts_layers=adjusts,
    )
    assert (found.outcome, found.hint) == (fit, hint)
